package membroker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Limits of a server.
const (
	// maxPayloadBytes is the default of [Options.MaxPayload].
	maxPayloadBytes = 1 << 20
	// maxPendingBytes is how much may wait to be delivered to one connection. nats-server closes such a connection;
	// here the run fails, since no simulation means to get there.
	maxPendingBytes = 64 << 20
	// maxPendingOps is how many operations of one connection may wait to be performed. More fail the run.
	maxPendingOps = 100_000
	// maxLineBytes is how long a line of the protocol may be, but for CONNECT.
	maxLineBytes = 4 << 10
)

// Options say how a server runs. The zero Options are for a plain test: real time, steps in the order in which they
// came.
type Options struct {
	// Settle returns when no party can do anything more by itself: synctest.Wait in a bubble. Nil: nobody is waited
	// for.
	Settle func()
	// Seed seeds every choice. 0 takes steps in the order in which they came.
	Seed uint64
	// Pick chooses the next step: an index into steps, which is not empty. Nil: by Seed. It must not call the server,
	// nor keep the slice.
	Pick func(steps []Step) int
	// Trace is told of each step before it is performed. It must not call the server.
	Trace func(Step)
	// Fail ends the run: a limit of the server was passed, or a client broke the protocol. Nil: it panics.
	Fail func(error)
	// Clustered allows streams with replicas, which keep what they know of deliveries when the server is killed.
	Clustered bool
	// Indirect makes streams without direct gets, as an older version of their maker does: they are read through their
	// leaders.
	Indirect bool
	// Unfenced reports whether a message is stored wherever its subject ends, whatever its sender expects: so a
	// simulation takes a fence away and sees what it is for. Nil: never. It must not call the server.
	Unfenced func(subject string, header func(name string) string) bool
	// Lens shows a party what it gets, and the server what the party has sent, as another version would write it: it
	// returns the headers and the data of a message. Nil: as they are. It must not call the server.
	Lens func(party string, sent bool, subject string, hdr, data []byte) ([]byte, []byte)
	// Manual leaves the steps to calls of [Server.Step].
	Manual bool
	// MaxPayload is the longest message. Default 1 MiB, as nats-server has it.
	MaxPayload int
}

// Server is a NATS server in memory. It is safe for concurrent use. [New] makes one; all of its goroutines, channels
// and timers belong to the bubble in which it was made.
type Server struct {
	opts Options
	wake chan struct{} // something may be pending
	done chan struct{} // closed by Close
	over sync.WaitGroup

	mu      sync.Mutex
	rng     *rand.Rand
	closed  bool
	parties map[string]*party
	conns   []*conn // those that are connected, in the order of their keys
	arrived uint64  // numbers steps
	timers  timers
	// timersMade numbers timers, so that those that are due at the same time keep their order.
	timersMade uint64
	aliases    map[string]string
	steps      []Step          // the memory of what pending returns
	held       func(Step) bool // the steps that are kept from happening; nil: none
	js         *jetStream
	ahead      time.Duration // of the server's clock: see [Server.SetClock]
}

// party is one who connects, under a name that stays over its connections.
type party struct {
	name  string
	conns int // how many it has made
	fault partyFault
}

// New starts a server.
func New(opts Options) *Server {
	if opts.MaxPayload == 0 {
		opts.MaxPayload = maxPayloadBytes
	}
	s := &Server{
		opts: opts, wake: make(chan struct{}, 1), done: make(chan struct{}),
		rng: rand.New(rand.NewPCG(opts.Seed, 0)), parties: map[string]*party{}, aliases: map[string]string{},
	}
	s.js = newJetStream(s)
	if !opts.Manual {
		s.over.Go(s.run)
	}
	return s
}

// Close ends the server and drops all connections.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.done)
		for _, c := range s.conns {
			c.drop()
		}
		s.conns = nil
	}
	s.mu.Unlock()
	s.over.Wait()
}

// Last is the last message that a stream has on a subject, nil if there is none. It is no step, and neither is
// [Server.Unacknowledged]: a test looks at what is stored.
func (s *Server) Last(name, subject string) *server.StoredMsg {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.js.stream(name)
	if st == nil {
		return nil
	}
	m := st.lastOn(subject)
	if m == nil {
		return nil
	}
	return &server.StoredMsg{Subject: m.subject, Sequence: m.seq, Header: m.hdr, Data: m.data, Time: m.stamp}
}

// Unacknowledged reports whether a consumer still has a message to deliver, or has delivered it and waits for its
// acknowledgement.
func (s *Server) Unacknowledged(name, consumer string, seq uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.js.stream(name)
	if st == nil {
		return false
	}
	o := st.consumer(consumer)
	if o == nil {
		return false
	}
	_, pending := o.pending[seq]
	return st.get(seq) != nil && (pending || seq >= o.sseq)
}

func (s *Server) now() time.Time { return time.Now() }

// stamp is what the server's clock shows. Nothing of its own goes by it.
func (s *Server) stamp() time.Time { return s.now().Add(s.ahead).UTC() }

// fail ends the run.
func (s *Server) fail(format string, args ...any) {
	err := fmt.Errorf("membroker: "+format, args...)
	if s.opts.Fail == nil {
		panic(err)
	}
	s.opts.Fail(err)
}

func (s *Server) party(name string) *party {
	p := s.parties[name]
	if p == nil {
		p = &party{name: name}
		s.parties[name] = p
	}
	return p
}

// Dialer connects one party. Use it as nats.InProcessServer or nats.SetCustomDialer (with nats.SkipHostLookup).
type Dialer struct {
	s     *Server
	party string
}

// Dial returns the dialer of a party. Steps of parties are told apart by their names, so parties that run at the same
// time have different ones.
func (s *Server) Dial(party string) *Dialer { return &Dialer{s, party} }

// Dial is for nats.SetCustomDialer.
func (d *Dialer) Dial(_, _ string) (net.Conn, error) { return d.InProcessConn() }

// SkipTLSHandshake is for nats.SetCustomDialer.
func (d *Dialer) SkipTLSHandshake() bool { return true }

// errRefused is what a dialer says while nobody listens. It is a [*net.OpError], as on a network.
var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

// InProcessConn is for nats.InProcessServer. The connection is made at once: it is no step.
func (d *Dialer) InProcessConn() (net.Conn, error) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	p := d.s.party(d.party)
	if d.s.closed || d.s.js.down || p.fault.cut {
		return nil, errRefused
	}
	return d.s.connect(p), nil
}
