package worker

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
)

// TestPlaces asks for places and gives them back at random: no class and no tool ever has more calls than it may, no
// place stays free that somebody could use, and no agent that could be served is passed over twice for another.
func TestPlaces(t *testing.T) {
	caps := map[string]int{"": 0, "one": 1, "two": 2}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 11))
		slots := map[toolyard.Class]int{toolyard.ReadOnly: 1 + r.IntN(4), toolyard.WriteExclusive: 1 + r.IntN(2)}
		p := newSlots(slots)
		var waiting, running []*waiter
		passed := map[[2]toolyard.Agent]int{}
		may := func(c *waiter) bool {
			class, same := 0, 0
			for _, o := range running {
				if o.class == c.class {
					class++
				}
				if c.cap > 0 && o.tool == c.tool {
					same++
				}
			}
			return class < slots[c.class] && (c.cap == 0 || same < c.cap)
		}
		// settle takes down who was given a place.
		settle := func() {
			for {
				var got []*waiter
				for _, c := range waiting {
					select {
					case <-c.granted:
						got = append(got, c)
					default:
					}
				}
				if len(got) == 0 {
					break
				}
				// A call that ends may make room in its class and for its tool, for one call each.
				slices.SortFunc(got, func(a, b *waiter) int {
					return cmp.Compare(p.agents[a.agent].last,
						p.agents[b.agent].last)
				})
				c, once := got[0], map[toolyard.Agent]bool{}
				if !may(c) {
					t.Fatalf("seed %d: %+v has a place beyond what its class or tool may have, beside %d", seed, c,
						len(running))
				}
				for _, o := range waiting {
					switch {
					case o.agent == c.agent:
						if o == c {
							continue
						}
						if len(got) == 1 && may(o) && slices.Index(waiting, o) < slices.Index(waiting, c) {
							t.Fatalf("seed %d: %s was given a place for a later call first", seed, c.agent)
						}
					case may(o):
						once[o.agent] = true
					}
				}
				// Who could have had this place comes before this agent the next time.
				for k := range passed {
					if k[0] == c.agent {
						delete(passed, k)
					}
				}
				for o := range once {
					if passed[[2]toolyard.Agent{o, c.agent}]++; passed[[2]toolyard.Agent{o, c.agent}] > 2 {
						t.Fatalf("seed %d: %s is passed over for %s again and again", seed, o, c.agent)
					}
				}
				waiting = slices.DeleteFunc(waiting, func(o *waiter) bool { return o == c })
				running = append(running, c)
			}
			for k := range passed { // who has nothing that could run waits for no turn
				if !slices.ContainsFunc(waiting, func(c *waiter) bool { return c.agent == k[0] }) {
					delete(passed, k)
				}
			}
			for _, c := range waiting {
				if may(c) {
					t.Fatalf("seed %d: %+v waits, and there is a place for it", seed, c)
				}
			}
		}
		for range 300 {
			switch n := r.IntN(10); {
			case n < 5:
				tool := []string{"", "", "one", "two"}[r.IntN(4)]
				c := &waiter{class: []toolyard.Class{toolyard.ReadOnly, toolyard.WriteExclusive}[r.IntN(2)], tool: tool,
					cap:   caps[tool],
					agent: toolyard.Agent(fmt.Sprint(r.IntN(4)))}
				waiting = append(waiting, c)
				p.enqueue(c)
			case n < 6 && len(waiting) > 0:
				c := waiting[r.IntN(len(waiting))]
				if p.await(t.Context(), c, 0) {
					t.Fatalf("seed %d: %+v has a place that nobody gave back", seed, c)
				}
				waiting = slices.DeleteFunc(waiting, func(o *waiter) bool { return o == c })
			case len(running) > 0:
				i := r.IntN(len(running))
				c := running[i]
				running = slices.Delete(running, i, i+1)
				p.release(c)
			}
			settle()
		}
		for len(running) > 0 {
			c := running[0]
			running = running[1:]
			p.release(c)
			settle()
		}
		if len(waiting) > 0 || len(p.agents) > 0 || len(p.taken) > 0 || len(p.queue) > 0 {
			t.Fatalf("seed %d: %d wait, and the places remember %v, %v, %d", seed, len(waiting), p.agents, p.taken,
				len(p.queue))
		}
		for class, n := range slots {
			if p.free[class] != n {
				t.Fatalf("seed %d: %d of %d places of %s are free in the end", seed, p.free[class], n, class)
			}
		}
	}
}

// TestAgentsTakeTurns: however many calls of one agent wait, another's is the next.
func TestAgentsTakeTurns(t *testing.T) {
	p := newSlots(map[toolyard.Class]int{toolyard.ReadOnly: 1})
	ask := func(a toolyard.Agent) *waiter {
		c := &waiter{class: toolyard.ReadOnly, agent: a}
		p.enqueue(c)
		return c
	}
	runs := ask("flood")
	for range 8 {
		ask("flood")
	}
	quiet := ask("quiet")
	if !p.await(t.Context(), runs, time.Minute) {
		t.Fatal("the first call has no place")
	}
	p.release(runs)
	if !p.await(t.Context(), quiet, 0) {
		t.Error("the other agent's call is not the next")
	}
}

// TestStalled: a message lay beside the worker for as long as it was there, the lane was asked, and there was room.
func TestStalled(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, c := range map[string]struct{ stored, asked, room, want time.Duration }{
		"all the time":              {9 * time.Second, 9 * time.Second, time.Hour, 9 * time.Second},
		"just queued":               {time.Millisecond, time.Hour, time.Hour, time.Millisecond},
		"others came before it":     {9 * time.Second, time.Millisecond, time.Hour, time.Millisecond},
		"every slot was taken":      {9 * time.Second, 9 * time.Second, time.Millisecond, time.Millisecond},
		"the server's clock is off": {-time.Minute, time.Hour, time.Hour, -time.Minute},
	} {
		if got := stalled(now, ago(c.stored), ago(c.asked), ago(c.room)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	p := newSlots(map[toolyard.Class]int{toolyard.ReadOnly: 1})
	c := &waiter{class: toolyard.ReadOnly, agent: "a"}
	p.enqueue(c)
	if since, ok := p.freeSince(toolyard.ReadOnly); ok {
		t.Errorf("the only place is taken, and there is room since %s", since)
	}
	before := time.Now()
	p.release(c)
	if since, ok := p.freeSince(toolyard.ReadOnly); !ok || since.Before(before) {
		t.Errorf("the only place was given back after %s, and there is room since %s, %v", before, since, ok)
	}
}
