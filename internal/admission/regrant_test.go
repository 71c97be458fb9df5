package admission

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestQuotasThatChange plays a dispatcher whose quotas change all the time: what starts is within the quotas of that
// time beside what runs, nothing is counted twice or for ever, and everything starts in the end.
func TestQuotasThatChange(t *testing.T) {
	others := []Grants{grants, {}, {Teams: []Grant{{"*", Quota{Batches: 3, Calls: 12}}}},
		{Agents: []Grant{{"free", Quota{Calls: 2, WaitingBytes: 50}}, {"web-*", Quota{Batches: 1}}},
			Teams: []Grant{{"web-*", Quota{Batches: 9, Calls: 30}}}}}
	changed, past := 0, 0
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 6))
		y := newYard(t, seed, 1)
		q, now := y.queues[0], &y.quotas[0].grants
		used := func(s Scope) (batches, calls int) {
			for k, b := range y.runs[0] {
				for _, at := range now.of(k.Agent) {
					if at.scope == s {
						batches++
						calls += y.quotas[0].reserves(&b)
					}
				}
			}
			return batches, calls
		}
		admitted, started := 0, 0
		start := func() bool {
			b, ok := q.Next(y.now)
			if !ok {
				return false
			}
			started++
			y.runs[0][b.Key] = b
			for _, s := range now.of(b.Key.Agent) {
				if n, calls := used(s.scope); s.quota.Batches > 0 && n > s.quota.Batches ||
					s.quota.Calls > 0 && calls > s.quota.Calls {
					t.Fatalf("seed %d: %s starts as batch %d of %s with %d calls, of %+v", seed, b.Key, n, s.scope,
						calls, *s.quota)
				}
			}
			return true
		}
		for range 400 {
			switch n := r.IntN(16); {
			case n < 4:
				if y.arrive(0, agents[r.IntN(len(agents))], 1+r.IntN(30), r.IntN(60)) == Admitted {
					admitted++
				}
			case n < 9:
				start()
			case n < 11:
				y.end(0)
			case n < 12:
				y.report(0)
			case n < 14:
				y.hear(0)
			case n < 15:
				q.Regrant(others[r.IntN(len(others))], y.now)
				changed++
				for _, a := range agents {
					for _, s := range now.of(a) {
						if n, _ := used(s.scope); s.quota.Batches > 0 && n > s.quota.Batches {
							past++
						}
					}
				}
			default:
				y.now = y.now.Add(time.Duration(r.IntN(20_000)) * time.Millisecond)
			}
			for scope, u := range y.quotas[0].used {
				if u.mine.Batches < 0 || u.mine.Calls < 0 || u.mine.Bytes < 0 || u.mine.Asked < 0 {
					t.Fatalf("seed %d: %s uses %+v", seed, scope, u.mine)
				}
			}
		}
		for turns := 0; started < admitted; turns++ {
			if turns > 1_000 {
				t.Fatalf("seed %d: %d of %d batches start", seed, started, admitted)
			}
			y.now = y.now.Add(30 * time.Second)
			for range 3 {
				for start() {
				}
				y.hearAll()
			}
			for len(y.runs[0]) > 0 {
				y.end(0)
			}
		}
		y.now = y.now.Add(2 * time.Minute)
		if got := y.quotas[0].report(y.now); len(got) != 0 || len(y.quotas[0].used) != 0 {
			t.Fatalf("seed %d: it still has %v of %d scopes", seed, got, len(y.quotas[0].used))
		}
		if q.running != 0 || q.waiting != 0 || len(q.agents) != 0 || len(q.reserved) != 0 || len(q.granted) != 0 {
			t.Fatalf("seed %d: it still has %+v", seed, q)
		}
	}
	if changed < 1_000 || past < 10 {
		t.Errorf("quotas changed %d times, %d times to less than was used: the test sees too little", changed, past)
	}
}

// TestAReportOfFormerQuotas lets nothing start: the others did not see in it what the new ones bound.
func TestAReportOfFormerQuotas(t *testing.T) {
	y := newYard(t, 0, 2)
	for d := range 2 {
		y.arrive(d, "web-1", 1, 0)
		y.start(d)
	}
	y.report(0) // by the quotas of that time
	last := Grants{Agents: []Grant{{"web-1", Quota{Batches: 1}}}}
	for _, q := range y.queues {
		q.Regrant(last, y.now)
	}
	y.hear(0)
	if y.start(0) {
		t.Error("a batch starts by a report of former quotas")
	}
	for range 5 {
		y.hearAll()
		for d := range 2 {
			y.start(d)
		}
		if n := len(y.runs[0]) + len(y.runs[1]); n > 1 {
			t.Fatalf("%d batches run, and one may", n)
		}
	}
	if len(y.runs[0])+len(y.runs[1]) != 1 {
		t.Error("no batch has started")
	}
}
