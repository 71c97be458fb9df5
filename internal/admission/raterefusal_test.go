package admission

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestARefusalNamesTheLimitThatWasMet: a call that is refused although its rate has room is told why.
func TestARefusalNamesTheLimitThatWasMet(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	for what, c := range map[string]struct {
		grants Grants
		want   string
		key    func(n uint64) RateKey
	}{
		"too many wait": {Grants{Tools: []NamedRate{{"fetch", Rate{Calls: 1, Wait: time.Hour}}}}, "10000 calls wait",
			func(uint64) RateKey { return RateKey{Agent: "a", Tool: "fetch"} }},
		"too many hosts": {hosts, "dependencies", func(n uint64) RateKey {
			return RateKey{Agent: "a", Tool: "fetch", Dependency: fmt.Sprintf("%d.%s", n, strings.Repeat("x", 200))}
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := NewRates(c.grants)
			for id := range uint64(MaxRateWaiting + 1) {
				r.Ask(id, c.key(id), 1, now)
				if _, refused := r.Take(); len(refused) > 0 {
					if why := refused[0].Why(); !strings.Contains(why, c.want) {
						t.Errorf("call %d is told %q, want that %s", id, why, c.want)
					}
					return
				}
			}
			t.Error("no call was refused")
		})
	}
}
