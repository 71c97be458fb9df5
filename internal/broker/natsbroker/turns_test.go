package natsbroker

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/broker"
)

// TestEachProcessHasItsTurn plays a server's queue of requests with three processes whose requests last for a lease,
// and a message that two of them give back for a second, as dispatchers of an older version do. The third soon gets it.
// The control: if all requests have the same expiry, the third may never get it, since the order of the requests is the
// same whenever the message comes.
func TestEachProcessHasItsTurn(t *testing.T) {
	const lease, enough, never = 1125 * time.Millisecond, 60, 2_000
	deliveries := func(r *rand.Rand, stands func() time.Duration) int {
		type request struct {
			by   int
			ends time.Duration
		}
		var queue []request
		for by := range 3 {
			queue = append(queue, request{by, time.Duration(r.Int64N(int64(lease)))})
		}
		slices.SortFunc(queue, func(a, b request) int { return int(a.ends - b.ends) })
		for n, now := 1, lease; n < never; n, now = n+1, now+broker.MaxNewerPause+3*time.Millisecond {
			for {
				over := slices.IndexFunc(queue, func(q request) bool {
					return q.ends <= now && !slices.ContainsFunc(queue, func(o request) bool { return o.ends < q.ends })
				})
				if over < 0 {
					break
				}
				q := queue[over]
				queue = append(slices.Delete(queue, over, over+1), request{q.by, q.ends + stands()})
			}
			head := queue[0]
			if head.by == 2 {
				return n
			}
			queue = append(queue[1:], head)
		}
		return never
	}
	worst, worstFixed := 0, 0
	for seed := range uint64(300) {
		own := rand.New(rand.NewPCG(seed, 2))
		worst = max(worst, deliveries(rand.New(rand.NewPCG(seed, 1)),
			func() time.Duration { return standing(own, lease) }))
		worstFixed = max(worstFixed, deliveries(rand.New(rand.NewPCG(seed, 1)), func() time.Duration { return lease }))
	}
	if worst > enough {
		t.Errorf("one process got a message only as delivery %d of it", worst)
	}
	if worstFixed < never {
		t.Errorf("with requests that stand for the same time each process has its turn after %d deliveries: the test "+
			"proves nothing", worstFixed)
	}
}

// TestStanding: a request's expiry is at most the lease, and not much less.
func TestStanding(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, lease := range []time.Duration{time.Millisecond, 1125 * time.Millisecond, time.Minute} {
		for range 1_000 {
			if d := standing(r, lease); d > lease || d < lease/2 {
				t.Fatalf("a lease of %s: %s", lease, d)
			}
		}
	}
}
