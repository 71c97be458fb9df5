package presence

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// The times of the model, in ticks: the parts of a TTL of 8 that the broker's leases are made of.
const (
	tick     = time.Second
	ttl      = 8
	beat     = 2
	lease    = 6
	stopped  = 11 // a tool was stopped by then, or left behind
	patience = 12
)

// told is a pending report of the watch.
type told struct {
	revision uint64 // 0: gone
	snapshot bool   // it comes from a watch that begins anew
	caughtUp bool
}

// model is a worker, the registry and the watch of one dispatcher.
type model struct {
	r    *rand.Rand
	book *Book
	log  []string

	now     int
	stored  int     // when the worker last stored its entry
	alive   bool    // it beats
	last    Reading // what stands in the registry
	expires int     // when that expires; 0: never
	counter uint64

	dead    bool // the watch tells nothing, and nobody knows
	pending []told
}

func (m *model) at() time.Time { return time.Unix(0, 0).Add(time.Duration(m.now) * tick) }

func (m *model) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf("%3d ", m.now)+fmt.Sprintf(format, args...))
}

func (m *model) tell(t told) {
	if !m.dead {
		m.pending = append(m.pending, t)
	}
}

// restart restarts the watch: it reports everything in the registry, and then that it has caught up.
func (m *model) restart() {
	m.book.Deaf()
	m.dead, m.pending = false, nil
	t := told{snapshot: true}
	if m.last.Kind == Present {
		t.revision = m.last.Seq
	}
	m.pending = append(m.pending, t, told{caughtUp: true})
	m.note("the watch begins anew")
}

func (m *model) deliver() {
	for len(m.pending) > 0 && m.r.IntN(3) > 0 {
		t := m.pending[0]
		m.pending = m.pending[1:]
		switch {
		case t.caughtUp:
			m.book.CaughtUp(m.at())
			m.note("caught up")
		case t.revision != 0:
			m.book.Entry("w", t.revision, m.at())
			m.note("told revision %d", t.revision)
		case t.snapshot:
			m.book.Gone("w", m.at())
			m.note("told that it has vanished")
		default:
			m.book.Gone("w", m.at())
			m.note("told that it is gone")
		}
	}
}

// set changes the registry.
func (m *model) set(k Kind, expires int, what string) {
	m.counter++
	m.last, m.expires = Reading{k, m.counter}, expires
	switch k {
	case Present:
		m.tell(told{revision: m.counter})
	case Missing:
		m.last.Seq = 0
	default:
		m.tell(told{})
	}
	m.note("%s: %v", what, m.last)
}

// step is one tick. It returns the verdict about the worker, if it was read.
func (m *model) step() Verdict {
	m.now++
	if m.expires > 0 && m.now >= m.expires {
		switch {
		case m.r.IntN(8) == 0:
			m.expires = 0
			m.note("a server that was restarted has lost the time to live")
		case m.last.Kind == Present:
			m.set(Expired, m.now+ttl, "the entry expires")
		default:
			m.set(Missing, 0, "its mark expires")
		}
	}
	switch m.r.IntN(60) {
	case 0:
		m.alive = !m.alive
		m.note("the worker is connected: %v", m.alive)
	case 1:
		m.dead, m.pending = true, nil
		m.note("the watch dies")
	case 2:
		m.restart()
	case 3:
		m.set(Removed, 0, "somebody removes the entry")
	case 4:
		m.set(Missing, 0, "the store loses the entry")
	}
	if m.alive && m.now%beat == 0 {
		m.stored = m.now
		m.set(Present, m.now+ttl, "the worker stores")
	}
	if m.now-m.stored <= lease && m.r.IntN(20) == 0 {
		m.book.Sign("w", m.at())
		m.note("a claim")
	}
	m.deliver()
	for range m.book.Overdue(m.at()) {
		if m.book.Read("w", m.last, m.at()) == Alive {
			m.restart()
		}
	}
	if m.book.ToRead("w", m.at()) {
		v := m.book.Read("w", m.last, m.at())
		m.note("read %v: %s", m.last, v)
		return v
	}
	return Unproven
}

// play plays one history, and returns it if a worker that may act was found silent.
func play(seed uint64, patience int) (found int, wrong []string) {
	m := &model{r: rand.New(rand.NewPCG(seed, 0)), book: New(ttl*tick, time.Duration(patience)*tick),
		last: Reading{Kind: Missing}, alive: true}
	m.restart()
	for range 200 {
		if m.step() == Silent {
			found++
			if m.now-m.stored < stopped {
				return found, m.log
			}
		}
	}
	return found, nil
}

// TestWhoIsSilentCannotAct: whatever dies, is lost or comes late, no worker that may act is found silent, and workers
// that cannot act are found.
func TestWhoIsSilentCannotAct(t *testing.T) {
	found := 0
	for seed := range uint64(5_000) {
		n, wrong := play(seed, patience)
		if found += n; wrong != nil {
			t.Fatalf("seed %d: silent while it may act:\n%s", seed, strings.Join(wrong[max(0, len(wrong)-40):], "\n"))
		}
	}
	if found < 5_000 {
		t.Errorf("%d times in 5,000 histories a worker was found to be silent: the test shows little", found)
	}
}

// TestPatienceIsNeeded: with a shorter patience, workers that may act are found silent.
func TestPatienceIsNeeded(t *testing.T) {
	for seed := range uint64(5_000) {
		if _, wrong := play(seed, stopped-1); wrong != nil {
			return
		}
	}
	t.Error("a patience that is too short harms nobody: the model proves nothing")
}

// TestADeadWorkerIsSettledSoon: if nothing else fails, a patience after its last sign.
func TestADeadWorkerIsSettledSoon(t *testing.T) {
	for _, stands := range []Reading{{Present, 7}, {Expired, 8}} {
		b, start := New(ttl*tick, patience*tick), time.Unix(0, 0)
		b.CaughtUp(start.Add(-100 * tick))
		b.Entry("w", 7, start)
		if stands.Kind == Expired {
			b.Gone("w", start.Add(ttl*tick))
			b.Read("w", stands, start.Add(ttl*tick))
		}
		if v := b.Read("w", stands, start.Add(patience*tick-1)); v != Unproven {
			t.Errorf("%s: a moment before its patience is over it is %s", stands.Kind, v)
		}
		if v := b.Read("w", stands, start.Add(patience*tick)); v != Silent {
			t.Errorf("%s: when its patience is over it is %s", stands.Kind, v)
		}
	}
}

// TestADeafDispatcherConcludesNothing from silence, and waits for a whole patience after its watch works again.
func TestADeafDispatcherConcludesNothing(t *testing.T) {
	b, start := New(ttl*tick, patience*tick), time.Unix(0, 0)
	at := func(n int) time.Time { return start.Add(time.Duration(n) * tick) }
	b.CaughtUp(at(0))
	b.Entry("w", 7, at(0))
	b.Deaf()
	if v := b.Read("w", Reading{Present, 7}, at(100)); v != Unproven {
		t.Errorf("while the watch is deaf it is %s", v)
	}
	b.CaughtUp(at(100))
	if v := b.Read("w", Reading{Present, 7}, at(100+patience-1)); v != Unproven {
		t.Errorf("before it can have come back it is %s", v)
	}
	if v := b.Read("w", Reading{Present, 7}, at(100+patience)); v != Silent {
		t.Errorf("a patience after the watch has caught up it is %s", v)
	}
}

// TestTheBookIsBounded: workers that come and go leave nothing behind.
func TestTheBookIsBounded(t *testing.T) {
	b, start := New(ttl*tick, patience*tick), time.Unix(0, 0)
	for n := range 3 * Limit {
		id := fmt.Sprint("w", n)
		b.Entry(id, uint64(n+1), start)
		b.Gone(id, start)
	}
	if len(b.workers) > Limit {
		t.Errorf("%d workers are remembered; at most %d are", len(b.workers), Limit)
	}
}
