package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/toolyard/toolyard/internal/broker"
)

// AwayAfter is how long the connection to NATS may be lost before a request gets an error. A restart of the server on
// the same machine takes less.
const AwayAfter = 700 * time.Millisecond

// awayLook is the interval of checks of the connection.
const awayLook = AwayAfter / 7

var errAway = fmt.Errorf(
	"%w: there is no connection to it now. The same again, under the same id, is safe", broker.ErrNoAnswer)

// Present waits until there is a connection to NATS, for at most [AwayAfter]. Its error wraps [ErrNoAnswer].
func (b *Broker) Present(ctx context.Context) error {
	if b.nc.IsConnected() || b.nc.IsDraining() {
		return nil
	}
	waiting, cancel := context.WithTimeoutCause(ctx, AwayAfter, errAway)
	defer cancel()
	return b.linked(waiting)
}

// WhilePresent returns a context that ends with [ErrNoAnswer] as its cause when the connection to NATS is lost for
// [AwayAfter].
func (b *Broker) WhilePresent(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, sync.OnceFunc(b.linkWatch.watch(b.nc, cancel, func() { cancel(nil) }))
}

// linkWatch checks the connection for all who wait, and only while there are any.
type linkWatch struct {
	mu      sync.Mutex
	waiting map[uint64]context.CancelCauseFunc // by when they began, so that they end in that order
	began   uint64
	last    time.Time // when the connection last existed
	looking bool      // a check is scheduled
}

// watch calls cancel when the connection is lost for [AwayAfter]. The returned function ends that.
func (p *linkWatch) watch(nc *nats.Conn, cancel context.CancelCauseFunc, ended func()) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == nil {
		p.waiting = map[uint64]context.CancelCauseFunc{}
	}
	if !p.looking {
		p.last, p.looking = time.Now(), true
		time.AfterFunc(awayLook, func() { p.check(nc) })
	}
	p.began++
	number := p.began
	p.waiting[number] = cancel
	return func() {
		ended()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waiting, number)
	}
}

// check runs every awayLook while somebody waits.
func (p *linkWatch) check(nc *nats.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case nc.IsConnected() || nc.IsDraining():
		p.last = time.Now()
	case time.Since(p.last) >= AwayAfter:
		for _, number := range slices.Sorted(maps.Keys(p.waiting)) {
			p.waiting[number](errAway)
		}
		clear(p.waiting)
	}
	if p.looking = len(p.waiting) > 0; p.looking {
		time.AfterFunc(awayLook, func() { p.check(nc) })
	}
}

// awaySettles is how long after the connection is back a failure may still be due to its loss: operations that began
// without it end in this time.
const awaySettles = 15 * time.Second

// outage knows when the connection was last restored.
type outage struct {
	mu   sync.Mutex
	back time.Time
}

// watch follows the connection until it is closed.
func (o *outage) watch(nc *nats.Conn) {
	link := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	go func() {
		defer nc.RemoveStatusListener(link)
		for status := range link {
			if status == nats.CLOSED || nc.IsClosed() {
				return
			}
			o.mu.Lock()
			o.back = time.Now()
			o.mu.Unlock()
		}
	}()
}

// Away reports whether the connection to NATS is lost, or was until a moment ago: then a missing answer has that cause.
// The connection itself logs when it is lost and when it is back: see [ConnectOptions].
func (b *Broker) Away() bool {
	if !b.nc.IsConnected() {
		return true
	}
	b.outage.mu.Lock()
	defer b.outage.mu.Unlock()
	return time.Since(b.outage.back) < awaySettles
}

// Quiet returns a log that writes errors of a lost connection at the level debug, because the loss is logged once.
// Other errors keep their level.
func (b *Broker) Quiet(log *slog.Logger) *slog.Logger {
	return slog.New(&quietLog{log.Handler(), b})
}

type quietLog struct {
	slog.Handler
	b *Broker
}

func (q *quietLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Level > slog.LevelDebug && unanswered(&r) && q.b.Away() {
		if r.Level = slog.LevelDebug; !q.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return q.Handler.Handle(ctx, r)
}

func (q *quietLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &quietLog{q.Handler.WithAttrs(attrs), q.b}
}

func (q *quietLog) WithGroup(name string) slog.Handler {
	return &quietLog{q.Handler.WithGroup(name), q.b}
}

// unanswered reports whether a line has an error that says that NATS did not answer.
func unanswered(r *slog.Record) (found bool) {
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		found = ok && (MayPass(err) || errors.Is(err, broker.ErrNoAnswer))
		return !found
	})
	return found
}
