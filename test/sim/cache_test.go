package sim

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/test/verdict"
)

// playsCache is how a history says how a call has used its tool's cache.
func playsCache(use toolyard.CacheUse) string { return "cache: " + string(use) }

// checkOutputs holds what calls tell of their workspace against how it was when they ended: a call has its ticket until
// then, so that nothing has changed since the output was read that answers it.
func (w *world) checkOutputs(r *report, h *verdict.History) {
	for key, b := range h.Batches {
		spec := w.seen[key].spec
		ws, onCopy := spec.batch.Workspace, spec.batch.Options.Overlay
		for _, l := range b.Log {
			end, ok := l.Body.(events.Finished)
			if !ok {
				continue
			}
			for _, res := range end.Results() {
				if k, _ := kindOf(res.Tool); !k.recalls || res.IsError {
					continue
				}
				if onCopy {
					if res.Output != ofCopy {
						w.fail("overlay", "%s/%d (%s) runs on an overlay, and tells %q of the workspace", key,
							res.Index, res.Cache, res.Output)
					}
					continue
				}
				r.saw(playsCache(res.Cache), true)
				if was := fmt.Sprint(w.book.changes(ws, l.Time)); res.Output != was {
					w.fail("outputs", "%s/%d (%s) says that %s was changed %s times, and that was %s times", key,
						res.Index, res.Cache, ws, res.Output, was)
				}
			}
		}
	}
}

// TestOutputsInHistories plays histories in which outputs answer other calls while owners and workers are lost.
func TestOutputsInHistories(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const drawn = 12
	all := played{}
	play := func(by attack, seed uint64) *report {
		r := inMemory(t, seed, options{attack: by})
		if len(r.problems) > 0 {
			t.Errorf("%s: %s", by, r)
		}
		all.add(r)
		return r
	}
	for by, want := range map[attack]toolyard.CacheUse{
		staleOutput: toolyard.CacheHit, lostLeader: toolyard.CacheShared,
	} {
		if r := play(by, 1); !r.plays[playsCache(want)] || !r.plays[playsCache(toolyard.CacheMiss)] {
			t.Errorf("%s: it plays %v", by, r.plays)
		}
	}
	for seed := range uint64(drawn) {
		play(keptOutputs, seed)
	}
	for _, use := range toolyard.CacheUses {
		if all[playsCache(use)] < 2 {
			t.Errorf("%d histories play %q", all[playsCache(use)], use)
		}
	}
	t.Logf("so many histories have played what: %v", all)
}
