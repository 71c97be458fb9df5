package replay

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// asking is the log of a batch whose second call waits for a person.
func asking() logged {
	var l logged
	l.add(0, batch.ChainSubmission, 0, "/client/1", submitted(2))
	l.add(1, batch.ChainBatch, 0, "/dispatcher/d1", planned(1, 1))
	l.add(2, batch.ChainBatch, 0, "/dispatcher/d1", events.Started{Group: 0, Ticket: 7})
	l.add(3, batch.ChainItem, 0, "/worker/w1", events.Claimed{Worker: "w1", Attempt: 1, Ticket: 7})
	l.add(5, batch.ChainItem, 0, "/worker/w1", events.Finish(events.End{Result: result(0, "done", "")}))
	l.add(6, batch.ChainBatch, 0, "/dispatcher/d1", events.Started{Group: 1, Ticket: 8})
	l.add(7, batch.ChainItem, 1, "/worker/w1", events.Waiting{Call: 1, Worker: "w1", Reason: "a person has to allow it",
		Class: toolyard.WriteExclusive})
	l.add(50, batch.ChainItem, 1, "/people/olga", events.Decided{Call: 1, Decision: events.Approve, By: "olga"})
	l.add(52, batch.ChainItem, 1, "/worker/w1", events.Claimed{Call: 1, Worker: "w1", Attempt: 1, Ticket: 9})
	l.add(57, batch.ChainItem, 1, "/worker/w1", events.Finish(events.End{Result: result(1, "done", "")}))
	return l
}

// TestRowsOfAnyEvent: at each event the rows are those of the log up to there, also when only those are taken that have
// changed since another event.
func TestRowsOfAnyEvent(t *testing.T) {
	for name, log := range map[string]logged{"whole": whole(), "asking": asking()} {
		for from := range log {
			var p Replay
			var kept []Row
			for n, e := range log {
				if err := p.Add(e); err != nil {
					t.Fatalf("%s: event %d: %v", name, n+1, err)
				}
				if n < from {
					continue
				}
				since := n
				if n == from { // whoever comes now has nothing
					since = 0
				}
				shape, rows := p.Shape(since)
				for _, r := range rows {
					for len(kept) <= r.Index {
						kept = append(kept, Row{})
					}
					kept[r.Index] = r
				}
				if _, all := p.Shape(0); !reflect.DeepEqual(kept, all) {
					t.Fatalf("%s: from event %d, at event %d the changes add up to\n%+v\nand the rows are\n%+v", name,
						from+1, n+1, kept, all)
				}
				if shape.Calls != len(kept) {
					t.Errorf("%s: at event %d there are %d calls and %d rows", name, n+1, shape.Calls, len(kept))
				}
			}
		}
	}
}

// TestShapeChangesNothing: a replay that was looked at between its events ends as one that was not.
func TestShapeChangesNothing(t *testing.T) {
	for name, log := range map[string]logged{"whole": whole(), "asking": asking()} {
		var looked, not Replay
		for _, e := range log {
			if looked.Add(e) != nil || not.Add(e) != nil {
				t.Fatalf("%s contradicts itself", name)
			}
			looked.Shape(0)
			looked.Report()
			looked.Call(0)
		}
		if a, b := looked.Report().Text(), not.Report().Text(); a != b {
			t.Errorf("%s: with looks between\n%s\nand without\n%s", name, a, b)
		}
	}
}

// TestWaitsAndRuns: a row says when a call waited for a person and when it ran, and who decided.
func TestWaitsAndRuns(t *testing.T) {
	var p Replay
	log := asking()
	for _, e := range log[:7] {
		must.OK(t, p.Add(e))
	}
	shape, rows := p.Shape(0)
	if r := rows[1]; r.Status != "waiting" || len(r.Waits) != 1 || r.Waits[0].FromMS != 7 || r.Waits[0].ToMS != nil {
		t.Errorf("while it waits the row is %+v", r)
	}
	if g := shape.Groups; len(g) != 2 || *g[1].ReadyMS != 5 || *g[1].StartedMS != 6 || g[1].First != 1 {
		t.Errorf("the groups are %+v", g)
	}
	for _, e := range log[7:] {
		must.OK(t, p.Add(e))
	}
	_, rows = p.Shape(0)
	r := rows[1]
	if len(r.Waits) != 1 || *r.Waits[0].ToMS != 50 || len(r.Runs) != 1 || r.Runs[0].FromMS != 52 ||
		*r.Runs[0].ToMS != 57 {
		t.Errorf("at the end the row is %+v", r)
	}
	call, ok := p.Call(1)
	if !ok || call.DecidedBy != "olga" || call.Decision != events.Approve || call.Result == nil ||
		call.AskedReason != "a person has to allow it" {
		t.Errorf("the call is %+v", call)
	}
	if _, ok := p.Call(2); ok {
		t.Error("there is a call behind the last")
	}
}

// TestBlame: a call that was aborted says by what.
func TestBlame(t *testing.T) {
	var p Replay
	for _, e := range whole() {
		must.OK(t, p.Add(e))
	}
	shape, rows := p.Shape(0)
	if ran, not := rows[2], rows[3]; ran.Blame != "stopped" || not.Blame != "it did not run" || ran.NotRun != "" ||
		not.NotRun == "" || rows[1].Blame != "" {
		t.Errorf("the rows are %+v", rows)
	}
	if !slices.ContainsFunc(shape.Happened, func(m Moment) bool {
		return strings.Contains(m.What, "no longer needed")
	}) {
		t.Errorf("nobody canceled it: %+v", shape.Happened)
	}
}
