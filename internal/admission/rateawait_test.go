package admission

import (
	"testing"
	"time"

	"github.com/toolyard/toolyard"
)

// TestRoomIsLeftToThoseWhoCanUseIt: a call of another dispatcher that waits for another of its rates has no turn that
// anybody would wait for.
func TestRoomIsLeftToThoseWhoCanUseIt(t *testing.T) {
	t.Parallel()
	y := newRateYard(t, 0, 2, Grants{Tools: []NamedRate{{"fetch", Rate{Calls: 100, Wait: time.Hour}}},
		Dependencies: []NamedRate{{"slow", Rate{Calls: 1, Wait: time.Hour}}}})
	slow := RateKey{Agent: "b", Tool: "fetch", Dependency: "slow"}
	y.ask(1, slow)
	y.round()
	if len(y.runs[1]) != 1 {
		t.Fatal("the first call of the slow dependency does not run")
	}
	y.ask(1, slow)
	y.round()
	const calls = 40
	for range calls {
		y.ask(0, RateKey{Agent: toolyard.Agent("a"), Tool: "fetch"})
	}
	for range 20 {
		y.round()
		y.now = y.now.Add(10 * time.Millisecond)
	}
	if n := len(y.runs[0]); n != calls {
		t.Errorf("%d calls of %d have begun in 200 ms, and there is room for all", n, calls)
	}
	y.end(1)
	for range 3 {
		y.round()
	}
	if len(y.runs[1]) != 1 {
		t.Error("the second call of the slow dependency does not begin when the first one is over")
	}
}
