package admission

import (
	"fmt"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
)

// ratesFull has as many calls wait as may wait, of so many agents and dependencies.
func ratesFull(g Grants, agents, dependencies int, now time.Time) *Rates {
	r := NewRates(g)
	r.Know(true)
	for n := range MaxRateWaiting {
		r.Ask(uint64(n+1), RateKey{Agent: toolyard.Agent(fmt.Sprint("a", n%agents)), Tool: "t",
			Dependency: fmt.Sprint("d", n%dependencies)}, 1, now)
	}
	return r
}

var wideRate = Grants{Tools: []NamedRate{{"*", Rate{Calls: MaxRateWaiting}}}}

func TestRatesLookAtCallsAFewTimesEach(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	for _, agents := range []int{1, 100, MaxRateWaiting} {
		r := ratesFull(wideRate, agents, 1, now)
		if reserved, _ := r.Advance(now); !reserved || len(r.waiting) > 0 || len(r.reserved) != MaxRateWaiting {
			t.Fatalf("%d agents: %d calls are reserved, %d wait", agents, len(r.reserved), len(r.waiting))
		}
		if r.looks > 3*MaxRateWaiting {
			t.Errorf("%d agents: %d looks for %d calls", agents, r.looks, MaxRateWaiting)
		}
	}
}

// TestRatesBeginInPieces: of many lines each may have the next call, so looking for it takes long.
func TestRatesBeginInPieces(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	g := wideRate
	g.Dependencies = []NamedRate{{"*", Rate{Calls: 50}}}
	r := ratesFull(g, 200, 200, now)
	pieces, before := 0, 0
	for more := true; more; pieces++ {
		reserved, again := r.Advance(now)
		if r.looks > rateLooks+MaxRateWaiting {
			t.Fatalf("%d looks in one piece", r.looks)
		}
		more = again.Equal(now)
		if !reserved || more && len(r.reserved) == before {
			t.Fatalf("%d calls are reserved, as many as before", len(r.reserved))
		}
		before = len(r.reserved)
	}
	if len(r.waiting) > 0 || pieces < 2 {
		t.Errorf("%d calls wait after %d pieces", len(r.waiting), pieces)
	}
	for n, c := range r.reserved[1:] {
		if c.id <= r.reserved[n].id {
			t.Fatalf("call %d begins after %d", c.id, r.reserved[n].id)
		}
	}
}

func TestRatesRefuseInPieces(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	r := ratesFull(Grants{Tools: []NamedRate{{"*", Rate{Calls: 1}}}}, MaxRateWaiting, 1, now)
	r.Advance(now)
	r.Take()
	now = now.Add(time.Hour)
	for left := len(r.waiting); left > 0; left = len(r.waiting) {
		_, again := r.Advance(now)
		if n := left - len(r.waiting); n == 0 || n > rateRefusals {
			t.Fatalf("%d calls of %d are refused at once", n, left)
		}
		if len(r.waiting) > 0 && !again.Equal(now) {
			t.Fatalf("%d calls are to be refused, and it is to be asked again at %v", len(r.waiting), again)
		}
	}
}

// BenchmarkRatesAdvance measures for how long a dispatcher stands still when as many calls wait as may, and all of them
// may begin.
func BenchmarkRatesAdvance(b *testing.B) {
	now := time.Unix(1_000_000, 0)
	for _, agents := range []int{1, 100, MaxRateWaiting} {
		b.Run(fmt.Sprint(agents, "agents"), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				r := ratesFull(wideRate, agents, 1, now)
				b.StartTimer()
				r.Advance(now)
			}
		})
	}
}
