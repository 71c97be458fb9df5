package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker/membroker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
)

// bus is the NATS server of a history, and what stands between it and the parties.
type bus interface {
	// dial makes a connection for a party.
	dial(party string) (net.Conn, error)
	// server is the server that fails when it is told to; nil: it does not.
	server() *membroker.Server
}

// world is one history.
type world struct {
	seed uint64
	bus  bus
	sc   *scenario
	book *book
	site *site
	// shelf is what workspaces are and were, where calls can be undone.
	shelf *shelf
	seen  map[toolyard.BatchKey]*seen
	// behind are the batches that calls have started, when all is over.
	behind []*started
	// settled is when a batch was settled; zero: nobody saw that.
	settled func(toolyard.BatchKey) time.Time
	trace   *trace
	log     *slog.Logger
	// versions are those of the parties.
	versions *versions

	began   time.Time
	quietAt time.Duration // when the faults stop
	opens   time.Duration // when the agents begin
	// announced is when more shards were announced, and nearly is called when they are nearly used.
	announced time.Time
	nearly    func()
	ahead     time.Duration // by how much the server's clock is ahead
	// disturbed says that something happened to the server, or on the way to it, so that anybody may seem to be lost.
	disturbed atomic.Bool

	mu       sync.Mutex
	machines []*machine
	parties  []*party      // all that ever ran
	problems []string      // what somebody found wrong while it ran
	broken   chan struct{} // closed with the first problem
	over     chan struct{} // closed when the history is judged
	fate     *fate         // nil: nothing goes wrong
	stage    *stage        // plays what is to happen at chosen steps
	running  sync.WaitGroup
	// workersReady is done when the first workers take calls: until then a batch would see no tools.
	workersReady sync.WaitGroup
}

// random gives a source of randomness of its own to each purpose, so that one more draw changes no other.
func (w *world) random(purpose string) *rand.Rand {
	return rand.New(&source{src: rand.NewPCG(w.seed, hashOf(purpose))})
}

// source is one that several goroutines draw from. The scheduler decides which of them is first, so a seed still
// decides what each of them gets.
type source struct {
	mu  sync.Mutex
	src rand.Source
}

func (s *source) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.src.Uint64()
}

func hashOf(text string) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range []byte(text) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}

// fail notes what is wrong.
func (w *world) fail(invariant, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.problems) == 0 {
		close(w.broken)
	}
	w.problems = append(w.problems, invariant+": "+fmt.Sprintf(format, args...))
}

// now is the time since the history began.
func (w *world) now() time.Duration { return time.Since(w.began) }

// machine starts parties of one kind one after the other, under names of their own.
type machine struct {
	name  string
	boots int
	p     *party
	run   func(*party) error
	// worker says that its parties are workers.
	worker bool
}

// party is one process: it has its own connections and ends as a whole.
type party struct {
	w    *world
	name string
	id   int // of its process, from 1
	boot int // of its machine, from 1
	rand *rand.Rand
	// drawn counts what was drawn for each run of a call.
	drawn map[string]int
	log   *slog.Logger
	// ctx ends when the party is to stop, or has crashed.
	ctx  context.Context
	stop context.CancelCauseFunc
	done chan struct{}
	// ready is called when a worker takes calls, or has ended.
	ready func()

	mu      sync.Mutex
	dead    bool          // it has crashed: nothing that it does from then on happens
	wounded bool          // it was cut off for a while, or the like
	refused bool          // it can make no connection
	running bool          // it has begun its work; an error from then on is one too many
	still   chan struct{} // while its tools stand still; closed when they go on
	stood   bool          // its tools have stood still
}

// errStopped is why the context of a party ends that was asked to end.
var errStopped = errors.New("the process was asked to end")

// errRefused is what who connects is told while it is cut off.
var errRefused = &net.OpError{Op: "dial", Net: "sim", Err: errors.New("connection refused")}

// errCrash is why the context of a party ends that has crashed.
var errCrash = errors.New("the process has crashed")

// start starts the next party of a machine.
func (w *world) start(m *machine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m.boots++
	name := m.name
	if m.boots > 1 {
		name = fmt.Sprintf("%s.%d", m.name, m.boots)
	}
	p := &party{w: w, name: name, id: len(w.parties) + 1, boot: m.boots, rand: w.random(name),
		log: slog.New(severe{w.log.With("party", name).Handler(), w}), done: make(chan struct{}), ready: func() {}}
	if m.boots == 1 && m.worker {
		p.ready = sync.OnceFunc(w.workersReady.Done)
	}
	p.ctx, p.stop = context.WithCancelCause(context.Background())
	m.p = p
	w.parties = append(w.parties, p)
	w.running.Go(func() {
		defer close(p.done)
		defer p.ready()
		// No two parties have a timer that is due at one instant: the runtime fires such timers in any order.
		if p.sleep(time.Duration(p.rand.Int64N(int64(20*time.Millisecond))|1)) != nil {
			return
		}
		err := m.run(p)
		if err == nil || p.ctx.Err() != nil {
			return
		}
		if w.fate != nil && !p.isUp() { // as whoever looks after processes does
			w.note(p.name, "cannot start: %v", err)
			w.restart(m, time.Second)
		} else {
			w.fail("ended", "%s ended: %v", p.name, err)
		}
	})
}

// up notes that the party has begun its work.
func (p *party) up() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = true
}

func (p *party) isUp() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

// gone reports whether the party has crashed.
func (p *party) gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// hurt reports whether anything happened to the party.
func (p *party) hurt() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead || p.wounded
}

// hasStood reports whether the party's tools have stood still.
func (p *party) hasStood() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stood
}

// wound notes that something happened to the party.
func (p *party) wound() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wounded = true
}

// crash ends the party at once: nothing of it reaches anybody any more.
func (p *party) crash(noticed bool) {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	p.sever(noticed)
	p.stop(errCrash)
}

// sever cuts the party's connections, and refuses new ones until it is healed. A server that does not notice goes on
// sending for a while what nobody hears.
func (p *party) sever(noticed bool) {
	p.mu.Lock()
	p.refused = true
	p.mu.Unlock()
	if noticed {
		p.w.bus.server().Cut(p.name)
		return
	}
	p.w.bus.server().Deafen(p.name)
	p.w.bus.server().Mute(p.name)
	p.w.after(noticeAfter, func() {
		if p.gone() {
			p.w.bus.server().Cut(p.name)
		}
	})
}

// noticeAfter is when a server closes a connection that was cut without a word. A real one does so after two pings.
const noticeAfter = 10 * time.Second

// hold holds back what comes in or goes out, and the party's tools.
func (p *party) hold(in, out, tools bool) {
	if in {
		p.w.bus.server().Deafen(p.name)
	}
	if out {
		p.w.bus.server().Mute(p.name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if tools && p.still == nil {
		p.still, p.stood = make(chan struct{}), true
	}
}

// heal ends what was done to the party's connections. One that has crashed stays so.
func (p *party) heal() {
	if p.gone() || p.w.fate == nil {
		return
	}
	p.mu.Lock()
	if p.refused {
		p.w.bus.server().Drop(p.name) // what was held is lost
	}
	p.refused = false
	if p.still != nil {
		close(p.still)
		p.still = nil
	}
	p.mu.Unlock()
	p.w.bus.server().Heal(p.name)
}

// awake waits while the party stands still.
func (p *party) awake() {
	for {
		p.mu.Lock()
		still := p.still
		p.mu.Unlock()
		if still == nil {
			return
		}
		select {
		case <-still:
		case <-p.ctx.Done():
			return
		}
	}
}

// after does something later, unless the history is over by then.
func (w *world) after(d time.Duration, do func()) {
	w.running.Go(func() {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			do()
		case <-w.over:
		}
	})
}

// restart starts the next party of a machine after a while.
func (w *world) restart(m *machine, d time.Duration) {
	w.after(d, func() { w.start(m) })
}

// sleep waits, or says why it may not.
func (p *party) sleep(d time.Duration) error { return sleep(p.ctx, d) }

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// InProcessConn makes nats.go dial the bus.
func (p *party) InProcessConn() (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused || p.dead {
		return nil, errRefused
	}
	return p.w.bus.dial(p.name)
}

// connect connects the party as the commands do. Only what is random in nats.go is replaced: the pause before a
// reconnect.
func (p *party) connect() (*nats.Conn, error) {
	pauses := p.w.random(p.name + " reconnects")
	var mu sync.Mutex
	opts := append(natsbroker.ConnectOptions(p.name, p.log), nats.InProcessServer(p),
		nats.CustomReconnectDelay(func(int) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return 50*time.Millisecond + time.Duration(pauses.Int64N(int64(50*time.Millisecond)))
		}))
	return natsbroker.Dial(p.ctx, "the simulation", p.log,
		func() (*nats.Conn, error) { return nats.Connect("", opts...) })
}
