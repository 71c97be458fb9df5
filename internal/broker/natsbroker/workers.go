package natsbroker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/presence"
	"github.com/toolyard/toolyard/internal/version"
)

// Beat writes the worker's key once; the key expires after the worker TTL. For a worker with its own account a
// dispatcher writes it, and answers when it is stored.
func (b *Broker) Beat(ctx context.Context, w broker.Worker) error {
	w.Version, w.WireVersion, w.Shards, w.Only = b.build, version.Wire, 0, b.serves
	if n := b.view().Served(); n > 1 {
		w.Shards = n
	}
	if b.guest != nil {
		return b.guest.beat(ctx, b, beating{Worker: w})
	}
	return b.storeBeat(ctx, w)
}

func (b *Broker) storeBeat(ctx context.Context, w broker.Worker) error {
	value, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("encode worker %s: %w", w.ID, err)
	}
	msg := nats.NewMsg("$KV." + bucketAlive + "." + broker.Escape(w.ID))
	msg.Data = value
	if _, err := b.js.PublishMsg(ctx, msg, jetstream.WithMsgTTL(b.Settings().WorkerTTL),
		jetstream.WithRetryAttempts(0)); err != nil {
		return fmt.Errorf("beat of worker %s: %w", w.ID, err)
	}
	return nil
}

// Gone removes the worker's key: it takes no more calls. The marker of the removal expires, so that workers that come
// and go leave nothing behind.
func (b *Broker) Gone(ctx context.Context, id string) error {
	if b.guest != nil {
		return b.guest.beat(ctx, b, beating{Worker: broker.Worker{ID: id, Pool: toolyard.Pool(b.guest.who.Name)},
			Gone: true})
	}
	if err := b.workers.Purge(ctx, broker.Escape(id), jetstream.PurgeTTL(b.Settings().WorkerTTL)); err != nil {
		return fmt.Errorf("sign off worker %s: %w", id, err)
	}
	return nil
}

// goneIfThere is Gone for a worker with an account of its own. Who signs off workers that there are none of would fill
// the registry with the markers, and keep the workers of all pools from saying that they live.
func (b *Broker) goneIfThere(ctx context.Context, id string) error {
	at, err := b.ReadEntry(ctx, id)
	if err != nil || at.Kind != presence.Present {
		return err
	}
	return b.Gone(ctx, id)
}

// WatchWorkers calls see with every entry of the registry and with each later change, until ctx ends. An entry that
// cannot be read comes with an error. A value on again restarts the watch, because it has missed something.
func (b *Broker) WatchWorkers(ctx context.Context, again <-chan struct{}, see func(broker.WorkerChange, error)) error {
	if b.guest != nil {
		return b.guest.watch(ctx, see)
	}
	return b.watchKeys(ctx, b.workers, again, keyWatch{
		see: func(e jetstream.KeyValueEntry) {
			id, err := broker.Unescape(e.Key())
			if err != nil {
				see(broker.WorkerChange{ID: e.Key()}, err)
				return
			}
			c := broker.WorkerChange{ID: id, Revision: e.Revision()}
			if e.Operation() == jetstream.KeyValuePut {
				c.Worker, err = decodeWorker(id, e)
			}
			see(c, err)
		},
		vanished: func(key string) {
			id, err := broker.Unescape(key)
			see(broker.WorkerChange{ID: id}, err)
		},
		state: func(s broker.WatchState) { see(broker.WorkerChange{State: s}, nil) },
	})
}

func decodeWorker(id string, e jetstream.KeyValueEntry) (*broker.Worker, error) {
	var v broker.Worker
	if err := json.Unmarshal(e.Value(), &v); err != nil {
		return nil, fmt.Errorf("the key of worker %q is not readable: %w", id, err)
	}
	v.Bound()
	return &v, nil
}

// ReadEntry reads a worker's registry entry from the leader of its stream. An owner uses it to prove that a silent
// worker has stored nothing.
func (b *Broker) ReadEntry(ctx context.Context, id string) (presence.Reading, error) {
	m, ok, err := b.last(ctx, streamWorkers, "$KV."+bucketAlive+"."+broker.Escape(id))
	switch {
	case err != nil:
		return presence.Reading{}, err
	case !ok:
		return presence.Reading{Kind: presence.Missing}, nil
	case m.header.Get(jetstream.MarkerReasonHeader) == "MaxAge":
		return presence.Reading{Kind: presence.Expired, Seq: m.seq}, nil
	case m.header.Get(jetstream.MarkerReasonHeader) != "" || m.header.Get(headerOperation) != "":
		return presence.Reading{Kind: presence.Removed, Seq: m.seq}, nil
	}
	return presence.Reading{Kind: presence.Present, Seq: m.seq}, nil
}

// LastEntry returns the revision of the newest entry of the registry, or of a removal's marker, read from the leader; 0
// if there is none. A watch that has reported it has reported everything that workers had stored.
func (b *Broker) LastEntry(ctx context.Context) (uint64, error) {
	m, _, err := b.last(ctx, streamWorkers, "$KV."+bucketAlive+".>")
	return m.seq, err
}

// Workers returns the live workers.
func (b *Broker) Workers(ctx context.Context) ([]broker.Worker, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var out []broker.Worker
	var failed error
	err := b.WatchWorkers(ctx, nil, func(c broker.WorkerChange, err error) {
		switch {
		case err != nil:
			failed = errors.Join(failed, err)
		case c.State == broker.WatchCaughtUp:
			cancel()
		case c.Worker != nil && ctx.Err() == nil:
			out = append(out, *c.Worker)
		}
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		return nil, err
	}
	slices.SortFunc(out, func(a, b broker.Worker) int { return cmp.Compare(a.ID, b.ID) })
	return out, failed
}
