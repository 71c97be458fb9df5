package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
)

// maxStockLanes bounds the lanes of the work queue that are looked at for one [broker.Stock]: as many as
// [broker.MaxPools] have.
const maxStockLanes = broker.MaxPools * 3 * broker.Lanes // a pool has three classes

// Stock reads how full each stream is, and what stands in the work queues.
func (b *Broker) Stock(ctx context.Context) (broker.Stock, error) {
	s := broker.Stock{Streams: map[string]int{}}
	each, err := b.all(ctx)
	if err != nil {
		return s, err
	}
	ours, err := definitions(b.Settings())
	if err != nil {
		return s, err
	}
	all := b.js.ListStreams(ctx)
	for info := range all.Info() {
		if slices.ContainsFunc(ours, func(c jetstream.StreamConfig) bool { return c.Name == info.Config.Name }) {
			s.Streams[info.Config.Name] = fillOf(info)
			if info.Config.Name == streamDead {
				s.DeadLetters = info.State.LastSeq
			}
		}
	}
	if err := all.Err(); err != nil {
		return s, fmt.Errorf("list the streams: %w", err)
	}
	queues := map[batch.Route]*broker.WorkQueue{}
	for _, one := range each {
		if err := one.stockOf(ctx, queues); err != nil {
			return s, err
		}
	}
	for _, r := range slices.SortedFunc(maps.Keys(queues), func(x, y batch.Route) int {
		return cmp.Or(cmp.Compare(x.Pool, y.Pool), cmp.Compare(x.Class, y.Class))
	}) {
		s.Queues = append(s.Queues, *queues[r])
	}
	return s, nil
}

// DropsOldest reports whether a stream makes room for what is new: that it is full hinders nothing.
func DropsOldest(stream string) bool { return stream == streamDead }

// stockOf adds what stands in the work queues of a shard.
func (b *Broker) stockOf(ctx context.Context, queues map[batch.Route]*broker.WorkQueue) error {
	// The shared handle is safe for concurrent use only as long as its Info is not called.
	calls, err := b.js.Stream(ctx, b.name(streamCall))
	if err != nil {
		return fmt.Errorf("stream %s: %w", b.name(streamCall), err)
	}
	consumers, err := consumersOf(ctx, calls)
	if err != nil {
		return err
	}
	lanes := 0
	for _, info := range consumers {
		r, ok := routeOf(canonical(info.Config.FilterSubject))
		if !ok || lanes == maxStockLanes {
			continue
		}
		lanes++
		q := queues[r]
		if q == nil {
			q = &broker.WorkQueue{Pool: r.Pool, Class: r.Class}
			queues[r] = q
		}
		q.Waiting, q.Taken = q.Waiting+int(info.NumPending), q.Taken+info.NumAckPending
		if info.NumPending == 0 {
			continue
		}
		oldest, err := oldestAfter(ctx, calls, info)
		if err != nil {
			return err
		}
		if !oldest.IsZero() && (q.Oldest.IsZero() || oldest.Before(q.Oldest)) {
			q.Oldest = oldest
		}
	}
	return nil
}

// consumersOf reads all consumers of a stream. Who left the client library's list before its end would leave a
// goroutine behind.
func consumersOf(ctx context.Context, s jetstream.Stream) (out []*jetstream.ConsumerInfo, err error) {
	all := s.ListConsumers(ctx)
	for info := range all.Info() {
		out = append(out, info)
	}
	if err := all.Err(); err != nil {
		return nil, fmt.Errorf("list the consumers of %s: %w", s.CachedInfo().Config.Name, err)
	}
	return out, nil
}

// routeOf reads the route in the filter of a lane's consumer.
func routeOf(filter string) (batch.Route, bool) {
	rest, ok := strings.CutPrefix(filter, prefixCall)
	class, rest, found := strings.Cut(rest, ".")
	pool, _, more := strings.Cut(rest, ".")
	r := batch.Route{Pool: toolyard.Pool(pool), Class: toolyard.Class(class)}
	return r, ok && found && more && r.Class.Known()
}

// oldestAfter returns when the oldest message of a lane was stored that no worker was given; the zero time if there is
// none by now.
func oldestAfter(ctx context.Context, calls jetstream.Stream, lane *jetstream.ConsumerInfo) (time.Time, error) {
	m, err := calls.GetMsg(ctx, lane.Delivered.Stream+1, jetstream.WithGetMsgSubject(lane.Config.FilterSubject))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, fmt.Errorf("read the oldest message of %s: %w", lane.Name, err)
	}
	return m.Time, nil
}

// Clock implements [broker.Clock].
func (b *Broker) Clock(ctx context.Context) (time.Time, error) {
	s, err := b.js.Stream(ctx, streamBatch)
	if err != nil {
		return time.Time{}, fmt.Errorf("stream %s: %w", streamBatch, err)
	}
	return s.CachedInfo().TimeStamp, nil
}
