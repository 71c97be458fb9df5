// Package bubble gives tests a NATS server in memory, and virtual time. The clock jumps to when something happens next,
// so a test of what happens after seconds takes milliseconds.
package bubble

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/membroker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
)

// Env is what a test in a bubble runs against.
type Env struct {
	*testing.T
	Server   *membroker.Server
	settings broker.Settings
}

// linger is longer than anything lasts that a party leaves to its timers.
const linger = 5 * time.Minute

// StepTime is how long each step of the server takes: operations and deliveries follow each other.
const StepTime = 50 * time.Microsecond

// Run runs a test in a bubble by itself: see [membroker.Bubble]. What the test starts ends with it, by its cleanups;
// what does not end fails it.
func Run(t *testing.T, settings broker.Settings, run func(e *Env)) {
	t.Helper()
	membroker.Bubble(t, func(t *testing.T) {
		e := &Env{T: t, settings: settings}
		t.Cleanup(func() { time.Sleep(linger) })
		e.Server = membroker.New(membroker.Options{
			Settle:    func() { synctest.Wait(); time.Sleep(StepTime); synctest.Wait() },
			Fail:      func(err error) { t.Errorf("the server: %v", err) },
			Clustered: settings.Replicas > 1,
		})
		t.Cleanup(e.Server.Close)
		run(e)
	})
}

// Conn is a connection of a party, closed with the test. The server's faults name the party.
func (e *Env) Conn(party string) *nats.Conn {
	e.Helper()
	opts := append(natsbroker.ConnectOptions(party, slog.New(slog.DiscardHandler)),
		nats.InProcessServer(e.Server.Dial(party)))
	nc, err := nats.Connect("", opts...)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(nc.Close)
	return nc
}

// Broker is a broker on a connection of a party of its own.
func (e *Env) Broker(party string) *natsbroker.Broker {
	e.Helper()
	b, err := natsbroker.Open(e.Context(), e.Conn(party), e.settings, "/"+party)
	if err != nil {
		e.Fatal(err)
	}
	return b
}

// Log is a logger whose lines stand in the test's output.
func (e *Env) Log() *slog.Logger {
	return slog.New(slog.NewTextHandler(e.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Part is a dispatcher or a worker that runs.
type Part struct {
	e    *Env
	stop context.CancelFunc
	done chan struct{}
	err  error
}

// Start runs a dispatcher or a worker until the test ends, and waits until it is ready.
func (e *Env) Start(r interface {
	Run(context.Context) error
	Ready() <-chan struct{}
}) *Part {
	e.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(e.Context()))
	p := &Part{e: e, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = r.Run(ctx)
	}()
	e.Cleanup(func() { stop(); <-p.done })
	select {
	case <-r.Ready():
	case <-p.done:
		e.Fatalf("it did not start: %v", p.err)
	}
	return p
}

// End stops it and waits until nothing of it runs.
func (p *Part) End() {
	p.e.Helper()
	p.stop()
	if <-p.done; p.err != nil {
		p.e.Errorf("it ended with %v", p.err)
	}
}

// Eventually waits until something holds that is looked at every few milliseconds, and less often as time goes by, for
// at most five minutes of the bubble's time.
func (e *Env) Eventually(what string, holds func() bool) {
	e.Helper()
	const most = 5 * time.Minute
	for began := time.Now(); !holds(); {
		waited := time.Since(began)
		if waited > most {
			e.Fatalf("after %s it does not hold that %s", most, what)
		}
		time.Sleep(5*time.Millisecond + waited/50)
	}
}
