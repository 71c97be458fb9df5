package replay

import (
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
)

// TestAll: mixed logs are replayed each for itself, whatever the submissions say of whose they are, and one that
// contradicts itself leaves the others as they are.
func TestAll(t *testing.T) {
	// of is the log of a batch of another agent.
	of := func(agent string) logged {
		l := slices.Clone(whole())
		for i := range l {
			l[i].Meta.ID = agent + l[i].Meta.ID
			l[i].Meta.Subject = strings.Replace(l[i].Meta.Subject, "agent=2e1/", agent+"/", 1)
			if sub, ok := l[i].Body.(events.Submitted); ok {
				sub.Agent = toolyard.Agent(agent)
				l[i].Body = sub
			}
		}
		return l
	}
	reports := func(logs ...logged) []*Report {
		var a All
		for i := 0; ; i++ {
			more := false
			for _, l := range logs {
				if i < len(l) {
					a.Add(l[i])
					more = true
				}
			}
			if !more {
				return a.Reports()
			}
		}
	}
	consistent := func(what string, got []*Report, want ...bool) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%s: %d batches, want %d", what, len(got), len(want))
		}
		for i, r := range got {
			if r.Consistent != want[i] {
				t.Errorf("%s, batch %s of %s: %v", what, r.Batch.ID, r.Batch.Agent, r.Contradiction)
			}
		}
	}
	consistent("one", reports(whole()), true)
	consistent("three", reports(whole(), of("x"), of("y")), true, true, true)
	nameless := slices.Clone(whole())
	sub := nameless[0].Body.(events.Submitted)
	sub.Agent, sub.ID = "", ""
	nameless[0].Body, nameless[0].Meta.Subject = sub, "whatever the agent wrote"
	consistent("a submission that does not say whose it is", reports(nameless), true)
	bad := slices.Clone(of("x"))
	bad = slices.Delete(bad, 3, 4)
	consistent("one is wrong", reports(whole(), bad), true, false)
	got := reports(whole(), of("x")[1:])
	if consistent("one has no beginning", got, true, false); got[1].Contradiction != nil || !got[1].Missing ||
		!strings.Contains(got[1].Text(), "not checked") {
		t.Errorf("%+v\n%s", got[1], got[1].Text())
	}
	if got := reports(whole()[1:]); len(got) != 1 || got[0].Contradiction == nil {
		t.Errorf("alone, a log without a beginning is %+v", got)
	}
}
