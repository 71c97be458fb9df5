package admission

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
)

// hosts gives each host a rate.
var hosts = Grants{Dependencies: []NamedRate{{"*", Rate{PerMinute: 100, Wait: time.Hour}}}}

// TestSomeAgentsLeaveRoomForOthersHosts: agents whose calls go to as many hosts as they may do not keep the calls of
// one more from theirs.
func TestSomeAgentsLeaveRoomForOthersHosts(t *testing.T) {
	t.Parallel()
	r := NewRates(hosts)
	r.Know(true)
	now, id := time.Unix(1_000_000, 0), uint64(0)
	ask := func(agent toolyard.Agent, host string) (begins bool) {
		id++
		r.Ask(id, RateKey{Agent: agent, Tool: "fetch", Dependency: host}, 1, now)
		_, refused := r.Take()
		return len(refused) == 0
	}
	for _, agent := range []toolyard.Agent{"a", "b", "c"} {
		began := 0
		for ask(agent, fmt.Sprintf("%s%d.%s", agent, began, strings.Repeat("x", 200))) {
			began++
		}
		if began < 50 {
			t.Errorf("%d calls of agent %s begin, each to its own host", began, agent)
		}
	}
	for n := range 10 {
		if !ask("quiet", fmt.Sprintf("%d.example.com:443", n)) {
			t.Fatalf("call %d of one more agent does not begin", n)
		}
	}
}
