package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/broker"
)

// How a connection to NATS is kept. A restart of the server within a tenth of a second must not cost a worker its
// lease, and a connection that is cut silently must be detected soon.
const (
	reconnectWait   = 50 * time.Millisecond
	reconnectJitter = 50 * time.Millisecond
	pingInterval    = 5 * time.Second
	maxPingsOut     = 2
)

// maxWaiting is how many messages wait in a subscription that is read one by one. nats.go makes room for them with each
// request that has an answer of its own: half a MiB by default. The longest such answers are the list of dispatchers
// ([maxRoll]) and an object in pieces.
const maxWaiting = 2 * maxRoll

// ConnectOptions are the options of every connection of a dispatcher, worker or client: it reconnects fast and without
// a limit, sends nothing later that could not be sent, and logs when it is lost and when it is back.
func ConnectOptions(name string, log *slog.Logger) []nats.Option {
	return []nats.Option{
		nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectJitter, reconnectJitter),
		nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(maxPingsOut),
		// Otherwise what is published while the connection is lost is sent when it is back: its publisher may have
		// given up by then.
		nats.ReconnectBufSize(-1),
		nats.SyncQueueLen(maxWaiting),
		nats.IgnoreAuthErrorAbort(), // the server may not know the account yet, or no longer
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("lost the connection to NATS; connecting again", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Warn("connected to NATS again", "server",
				ShownURL(nc.ConnectedUrlRedacted()))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			if _, cut := errors.AsType[*net.OpError](err); cut { // the handler of the lost connection says it
				log.Debug("a write to NATS failed", "error", err)
				return
			}
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			log.Warn("NATS reports an error", "subject", subject, "error", err)
		}),
	}
}

// connectPause is the pause before [Connect] tries again.
const connectPause = 200 * time.Millisecond

// Connect connects to NATS with [ConnectOptions]. It waits for the server until ctx ends, but not for a server that
// refuses.
func Connect(ctx context.Context, url, name string, log *slog.Logger, opts ...nats.Option) (*nats.Conn, error) {
	return Dial(ctx, ShownURL(url), log, func() (*nats.Conn, error) {
		return nats.Connect(url,
			append(ConnectOptions(name, log), opts...)...)
	})
}

// ShownURL is the URL of a server, or several with commas between them, as others may read it: what stands before an @
// is a password or a token.
func ShownURL(url string) string {
	parts := strings.Split(url, ",")
	for i, one := range parts {
		end := strings.LastIndex(one, "@")
		if end < 0 {
			continue
		}
		begin := 0
		if scheme := strings.Index(one[:end], "//"); scheme >= 0 {
			begin = scheme + len("//")
		}
		parts[i] = one[:begin] + "xxxxx" + one[end:]
	}
	return strings.Join(parts, ",")
}

// Dial is [Connect] with the caller's own way to connect. where names the server, for messages.
func Dial(ctx context.Context, where string, log *slog.Logger, dial func() (*nats.Conn, error)) (*nats.Conn, error) {
	for waiting := false; ; waiting = true {
		nc, err := dial()
		if err == nil {
			return nc, nil
		}
		err = fmt.Errorf("connect to NATS at %s: %w", where, err)
		if !unreachable(err) {
			return nil, err
		}
		if !waiting {
			log.Warn("waiting for NATS", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(connectPause):
		}
	}
}

// unreachable reports whether there was no answer, or only a part of one, as opposed to a refusal.
func unreachable(err error) bool {
	_, network := errors.AsType[*net.OpError](err)
	for _, passes := range []error{io.EOF, io.ErrUnexpectedEOF, nats.ErrNoServers, nats.ErrTimeout,
		nats.ErrStaleConnection, nats.ErrConnectionClosed} {
		network = network || errors.Is(err, passes)
	}
	return network
}

// CheckRoundTrip returns an error if the round trip to NATS is too long for a worker to keep its leases.
func (b *Broker) CheckRoundTrip() error {
	rtt, err := b.nc.RTT()
	if err != nil {
		return nil //nolint:nilerr // unknown: heartbeats will tell
	}
	wait := min(b.Settings().CallAckWait, b.Settings().WorkerTTL)
	if rtt <= broker.MaxRoundTrip(wait) {
		return nil
	}
	needed := (4*rtt + time.Second - 1).Truncate(time.Second)
	return fmt.Errorf("a round trip to NATS takes %s, and the system's ack wait is %s: a worker here would lose its "+
		"calls while it runs them; "+
		"run it nearer, or make the system with an ack wait of at least %s (dispatcher serve --ack-wait)",
		rtt.Round(time.Millisecond), wait, needed)
}

// Reconnects counts how often the connection was restored: while it is unchanged, the server at its other end has not
// restarted.
func (b *Broker) Reconnects() uint64 { return b.nc.Stats().Reconnects }

// keyWatch has the callbacks of a watch of a bucket.
type keyWatch struct {
	// see gets every key and each later change.
	see func(jetstream.KeyValueEntry)
	// vanished gets the keys that were seen and do not exist any more after a restart of the watch. Nil: not called.
	vanished func(key string)
	// state gets the state of the watch, which is deaf at first.
	state func(broker.WatchState)
}

// watchKeys watches a bucket until ctx ends or the connection is closed. It restarts, with all keys, when the
// connection was lost, and when a value comes on again.
func (b *Broker) watchKeys(ctx context.Context, kv jetstream.KeyValue, again <-chan struct{}, to keyWatch) error {
	link := b.nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer b.nc.RemoveStatusListener(link)
	pause := firstPause
	before := map[string]bool{}
	for {
		now := map[string]bool{}
		err := b.watchOnce(ctx, kv, link, again, keyWatch{
			see: func(e jetstream.KeyValueEntry) {
				if to.vanished != nil && e.Operation() == jetstream.KeyValuePut {
					now[e.Key()] = true
				} else {
					delete(now, e.Key())
				}
				delete(before, e.Key())
				to.see(e)
			},
			state: func(s broker.WatchState) {
				pause = firstPause
				for key := range before { // the watch has caught up without them
					to.vanished(key)
				}
				clear(before)
				to.state(s)
			},
		})
		maps.Copy(before, now)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		to.state(broker.WatchDeaf)
		if b.nc.IsClosed() {
			return nats.ErrConnectionClosed
		}
		if err != nil {
			if retry, verdict := classify(err); !retry {
				return fmt.Errorf("watch bucket %s: %w", kv.Bucket(), verdict)
			}
			if err := wait(ctx, &pause); err != nil {
				return err
			}
		}
	}
}

// linked waits until the connection exists. What is published before that, the client library keeps and sends later,
// even if the publisher has long given up.
func (b *Broker) linked(ctx context.Context) error {
	if b.nc.IsConnected() || b.nc.IsDraining() {
		return nil
	}
	link := b.nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer b.nc.RemoveStatusListener(link)
	return b.awaitLink(ctx, link)
}

// awaitLink waits until the connection exists, or is closed.
func (b *Broker) awaitLink(ctx context.Context, link <-chan nats.Status) error {
	for !b.nc.IsConnected() {
		if b.nc.IsClosed() {
			return nats.ErrConnectionClosed
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-link:
		}
	}
	return nil
}

// watchOnce is one watch of a bucket. It returns nil if the watch must restart.
func (b *Broker) watchOnce(
	ctx context.Context, kv jetstream.KeyValue, link <-chan nats.Status, again <-chan struct{}, to keyWatch,
) error {
	if err := b.awaitLink(ctx, link); err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the caller checks the context
		}
		return err
	}
	for drained := false; !drained; { // earlier states do not matter: the connection exists
		select {
		case _, ok := <-link:
			drained = !ok
		default:
			drained = true
		}
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	w, err := kv.WatchAll(watching)
	if err != nil {
		return err
	}
	go func() {
		<-watching.Done()
		// It asks the server to delete the watch, which the server does anyway.
		go w.Stop()               //nolint:errcheck // see above
		for open := true; open; { // the watcher's own goroutine would block forever on an update that is not received
			select {
			case _, open = <-w.Updates():
			case <-time.After(attemptTimeout): // a connection that was closed closes no updates
				open = false
			}
		}
	}()
	for {
		select {
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				return nil
			case e == nil:
				to.state(broker.WatchCaughtUp)
			default:
				to.see(e)
			}
		case <-link: // it was lost, and may be back already
			return nil
		case <-again:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}
