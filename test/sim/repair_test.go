package sim

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/test/faults/ledger"
	"github.com/toolyard/toolyard/test/verdict"
)

// Paths of inputs that no repair mends: of one it makes another that does not fit either, and of one nothing.
const wrongPath, lostPath = "wrong", "lost"

// mends reports whether the workers' repair makes a good input of one with a path.
func mends(path string) bool { return path != wrongPath && path != lostPath }

// malform has some calls name their file by another word than their tool does.
func (d draws) malform(sc *scenario) {
	if !d.one(4) {
		return
	}
	sc.repairs = true
	for _, a := range sc.agents {
		for _, b := range a.batches {
			b.batch.Options.Repair = !d.one(5)
			for i := range b.batch.Calls {
				c := &b.batch.Calls[i]
				name, ok := map[string]string{"read": "view", "write": "edit"}[c.Tool]
				if !ok || d.one(2) {
					continue
				}
				id, path := c.ID, pick(d, []string{"a", "./a", "b", "c/d", wrongPath, lostPath})
				*c = malformed(name, path, d.between(ms, time.Second))
				c.ID = id
			}
		}
	}
}

// malformed is a call that works for so long, with an input that its tool cannot take.
func malformed(tool, path string, work time.Duration) toolyard.Call {
	c := call(tool, work)
	var in input
	if err := json.Unmarshal(c.Input, &in); err != nil {
		panic(err) // it was made here
	}
	in.Path = path
	c.Input = raw(in)
	return c
}

// repair is that of all workers. It mends a path.
func repair(_ context.Context, m worker.Malformed) (worker.Repaired, error) {
	var in input
	if err := json.Unmarshal(m.Input, &in); err != nil {
		return worker.Repaired{}, err
	}
	switch in.Path {
	case lostPath, "":
		return worker.Repaired{}, errors.New("nothing is known of it")
	case wrongPath:
		in.Ignores = !in.Ignores
	default:
		in.File, in.Path = in.Path, ""
	}
	return worker.Repaired{Input: raw(in), Note: "the path is the file"}, nil
}

// checkInputs: a call begins on the input of its plan, or on one that a person has put in its place. One whose input
// does not fit is handed to no worker.
func (w *world) checkInputs(r *report, h *verdict.History) {
	for n, l := range h.Ledger {
		if l.Kind != ledger.Begin {
			continue
		}
		calls, log := plannedOf(h.Batches[l.Key()]), logOf(h.Batches[l.Key()], l.Index)
		if l.Index >= len(calls) {
			continue // Q3 says so
		}
		want := calls[l.Index].InputSHA256
		if log.decided != nil && log.decision.Edited != "" && !log.decision.Answers {
			want = log.decision.InputSHA256
		}
		if ranOn := w.book.ranOn[n]; ranOn != want {
			w.fail("repair", "%s/%d begins on %s, and the log has %s", l.Key(), l.Index, ranOn, want)
		}
		m := calls[l.Index].Mended
		r.saw(playsMended, m != nil && l.Tool != toolyard.BackgroundStart)
	}
	for _, sub := range h.Submissions {
		for i, res := range h.Batches[sub.Key()].Results() {
			if res.Code != toolyard.SchemaValidationFailed {
				continue
			}
			r.saw(playsMalformed, true)
			if log := logOf(h.Batches[sub.Key()], i); len(log.claimed) > 0 || res.Worker != "" {
				w.fail("repair", "%s/%d has an input that does not fit, and was handed to worker %s", sub.Key(), i,
					res.Worker)
			}
		}
	}
}
