package sim

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/admission"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/worker"
)

// The times of a history, scaled so that all that can happen happens within two minutes.
const (
	openIdle   = 2500 * time.Millisecond
	restAfter  = 200 * time.Millisecond
	workerWait = 20 * time.Second
	queueWait  = 30 * time.Second
	drainGrace = time.Second
	ticketIdle = 2 * time.Second
	storeEvery = 5 * time.Second // each look is twenty steps
)

// settings are those of one node, as they are.
var settings = broker.Settings{MaxStoreBytes: 256 << 20}.WithDefaults()

// dispatch is a dispatcher's process.
func dispatch(p *party) error {
	nc, err := p.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	b, err := natsbroker.Open(p.ctx, nc, p.w.sc.settings(), "/dispatcher/"+p.name)
	if err != nil {
		return err
	}
	d := dispatcher.New(b, dispatcher.Config{
		ID: p.name, Planner: dispatcher.Planner{Pipeline: &pipeline.Pipeline{}}, OpenIdle: openIdle,
		RestAfter:    restAfter,
		ApprovalWait: p.w.sc.approvalWait, WorkerWait: workerWait,
		QueueWait: cmp.Or(p.w.sc.queueWait, queueWait), TicketIdle: ticketIdle, StoreEvery: storeEvery, Log: p.log,
		ArchiveAfter: p.w.sc.archiveAfter, Quotas: admission.Grants{Tools: p.w.sc.rates, Budgets: p.w.sc.budgets},
		RunCode: p.w.sc.backgroundCalls > 0, BackgroundCalls: p.w.sc.backgroundCalls,
	})
	defer p.whenReady(d.Ready())()
	return d.Run(p.ctx)
}

// whenReady notes that the party has begun its work, when it has. What it returns ends that.
func (p *party) whenReady(ready <-chan struct{}) (end func()) {
	var waits sync.WaitGroup
	ended := make(chan struct{})
	waits.Go(func() {
		select {
		case <-ready:
			p.up()
			p.ready()
		case <-ended:
		}
	})
	return func() {
		close(ended)
		waits.Wait()
	}
}

// work is a worker's process. It serves no directory, so that it touches no file.
func work(s workerSpec) func(*party) error {
	return func(p *party) error {
		nc, err := p.connect()
		if err != nil {
			return err
		}
		defer nc.Close()
		b, err := natsbroker.Join(p.ctx, nc, "/worker/"+p.name, nil)
		if err != nil {
			return err
		}
		tools, err := p.tools(s.lacks)
		if err != nil {
			return err
		}
		cfg := worker.Config{
			ID: p.name, Classes: s.classes, Tools: tools, Origin: registry.Toolset, Mode: policy.Default, Rules: rules,
			Unsandboxed: true,
			DrainGrace:  drainGrace, Log: p.log, Slots: map[toolyard.Class]int{},
		}
		if p.w.sc.undoes || p.w.sc.overlays {
			cfg.Snapshots = ofParty{p.w.shelf, p}
		}
		if p.w.sc.repairs {
			cfg.Repair = repair
		}
		for _, c := range toolyard.Classes {
			cfg.Slots[c] = s.slots
		}
		w, err := worker.New(b, cfg)
		if err != nil {
			return err
		}
		defer p.whenReady(w.Ready())()
		return w.Run(p.ctx)
	}
}

// rules allow every tool but those for which a person is asked.
var rules = func() (rs policy.Rules) {
	for _, k := range kinds {
		r, err := policy.ParseRule(k.name)
		if err != nil {
			panic(err) // the harness's own names
		}
		if k.asks {
			rs.Ask = append(rs.Ask, r)
		} else {
			rs.Allow = append(rs.Allow, r)
		}
	}
	return rs
}()

// site is where the HTTP API listens: in memory.
type site struct {
	mu    sync.Mutex
	conns chan net.Conn
	done  chan struct{}
}

func newSite() *site { return &site{conns: make(chan net.Conn), done: make(chan struct{})} }

// Accept, Close and Addr make it a listener.
func (s *site) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

func (s *site) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.done:
	default:
		close(s.done)
	}
	return nil
}

func (s *site) Addr() net.Addr { return &net.IPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// dial connects to it.
func (s *site) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case s.conns <- theirs:
		return ours, nil
	case <-s.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// errAway is why the HTTP API cannot reach the system.
var errAway = errors.New("there is no connection to NATS")

// serve is the process of the HTTP API.
func serve(p *party) (err error) {
	nc, err := p.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	b, err := natsbroker.Join(p.ctx, nc, "/api/"+p.name, nil)
	if err != nil {
		return err
	}
	c, err := client.Connect(p.ctx, nc, client.Options{})
	if err != nil {
		return err
	}
	handler, err := api.New(api.Config{Client: c, Reader: follow.New(b, follow.Options{Shared: true}),
		Loopback: true, Log: p.log, Ready: func() error {
			if b.Away() {
				return errAway
			}
			return nil
		}})
	if err != nil {
		return err
	}
	p.up()
	at := newSite()
	server := &http.Server{Handler: handler, ConnContext: handler.ConnContext, ConnState: handler.ConnState,
		ReadHeaderTimeout: time.Minute}
	p.w.setSite(at)
	defer context.AfterFunc(p.ctx, func() {
		handler.Stop()
		_ = server.Close() // it is over in any case
	})()
	defer handler.Stop()
	if err := server.Serve(at); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (w *world) setSite(s *site) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.site = s
}

// overHTTP makes a client of the HTTP API, wherever it is now.
func (p *party) overHTTP() (*client.Client, func(), error) {
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		p.w.mu.Lock()
		at := p.w.site
		p.w.mu.Unlock()
		if at == nil || p.gone() {
			return nil, net.ErrClosed
		}
		return at.dial(ctx)
	}}
	for {
		c, err := client.ConnectHTTP(p.ctx, "http://127.0.0.1", client.HTTPOptions{Client: &http.Client{Transport: t}})
		if err == nil {
			return c, t.CloseIdleConnections, nil
		}
		if p.sleep(retryAfter) != nil {
			return nil, nil, err
		}
	}
}

// client makes a client of a party that is an agent, a person or the reader of the log.
func (p *party) client(http bool) (c *client.Client, end func(), err error) {
	if http {
		return p.overHTTP()
	}
	nc, err := p.connect()
	if err != nil {
		return nil, nil, err
	}
	for {
		c, err := client.Connect(p.ctx, nc, client.Options{})
		if err == nil {
			return c, nc.Close, nil
		}
		if p.sleep(retryAfter) != nil {
			nc.Close()
			return nil, nil, err
		}
	}
}
