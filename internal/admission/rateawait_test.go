package admission

import (
	"fmt"
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
	for range 3 { // the first of them stands for all
		y.ask(1, slow)
	}
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

// TestASlowDependencyHasNoOtherCallsRefused: calls that wait for a slow dependency are not before those that do not
// need it. Under the rate of their tool all of these begin at once.
func TestASlowDependencyHasNoOtherCallsRefused(t *testing.T) {
	t.Parallel()
	y := newRateYard(t, 0, 1, Grants{Tools: []NamedRate{{"fetch", Rate{PerSecond: 1}}},
		Dependencies: []NamedRate{{"slow", Rate{Calls: 1}}}})
	for n := range 31 {
		y.ask(0, RateKey{Agent: toolyard.Agent(fmt.Sprint("b", n)), Tool: "fetch", Dependency: "slow"})
	}
	for range 4 {
		y.round()
		y.now = y.now.Add(time.Second)
	}
	y.ask(0, RateKey{Agent: "last", Tool: "fetch", Dependency: "slow"})
	y.round()
	if len(y.runs[0]) != 1 || y.refused > 0 {
		t.Fatalf("%d calls of the slow dependency run, and %d are refused", len(y.runs[0]), y.refused)
	}
	y.ask(0, RateKey{Agent: "a", Tool: "fetch", Dependency: "fast"})
	y.round()
	if len(y.runs[0]) != 2 || y.refused > 0 {
		t.Errorf("the call of another dependency does not begin; %d are refused", y.refused)
	}
}
