package natsbroker

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
)

type feed struct {
	b   *Broker
	sub *nats.Subscription
	c   chan *broker.LiveMsg
	// dropped and reconnects are the losses known at the last call of Lost.
	dropped    int
	reconnects uint64
}

func (f *feed) Copies() <-chan *broker.LiveMsg { return f.c }

// Lost reports whether copies may have been lost since the last call: they came faster than they were read, or the
// connection was lost.
func (f *feed) Lost() bool {
	dropped, err := f.sub.Dropped()
	reconnects := f.b.Reconnects()
	lost := err != nil || dropped != f.dropped || reconnects != f.reconnects
	f.dropped, f.reconnects = dropped, reconnects
	return lost
}

// FollowEvents starts a feed of a batch's events. Subscribe first, then read, so that nothing is missed. More copies
// than there is room for are dropped.
func (b *Broker) FollowEvents(k toolyard.BatchKey, room int) (broker.Feed, error) {
	return b.follow(prefixLive+subjectEvents(k)[len("ty."):], room)
}

func (b *Broker) follow(subject string, room int) (broker.Feed, error) {
	f := &feed{b: b, c: make(chan *broker.LiveMsg, room), reconnects: b.Reconnects()}
	var err error
	if f.sub, err = b.nc.ChanSubscribe(subject, f.c); err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	return f, nil
}

// Record reads a message of the feed. before is the sequence of the previous message of its subject, by which a reader
// detects a gap.
func (f *feed) Record(ctx context.Context, m *broker.LiveMsg) (r batch.Record, before uint64, err error) {
	stored, before, err := fromLive(m)
	if err != nil {
		return r, 0, err
	}
	_, r, _, err = f.b.tolerant(ctx, stored)
	return r, before, err
}

// Head parses the position of a live copy's message, and does not decode its content: a record without a body.
func (f *feed) Head(m *broker.LiveMsg) (r batch.Record, err error) {
	stored, _, err := fromLive(m)
	if err != nil {
		return r, err
	}
	p, err := parseSubject(stored.subject)
	return batch.Record{Chain: p.chain, Index: p.index, Pool: p.pool, Seq: stored.seq, Time: stored.time}, err
}

// WorkerOf returns the worker that wrote the message of a live copy in a chain of a pool; "" if no worker of that pool
// did. The header is the writer's, and the chain is what its account lets it write to.
func (f *feed) WorkerOf(m *broker.LiveMsg, pool toolyard.Pool) string {
	id, ok := strings.CutPrefix(m.Header.Get(headerSource), broker.SourceWorker)
	if !ok {
		return ""
	}
	if own := poolOf(id); own != broker.NoPool && own != string(pool) {
		return ""
	}
	return id
}

// Stop ends the feed.
func (f *feed) Stop() error {
	if err := f.sub.Unsubscribe(); err != nil {
		return fmt.Errorf("unsubscribe from %s: %w", f.sub.Subject, err)
	}
	return nil
}

// Abort tells all workers to stop calls.
func (b *Broker) Abort(n broker.AbortNotice) error {
	data, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encode an abort: %w", err)
	}
	if err := b.nc.Publish(subjectAbort, data); err != nil {
		return fmt.Errorf("broadcast an abort: %w", err)
	}
	return nil
}

// OnAbort calls stop with each abort notice, until the returned function is called.
func (b *Broker) OnAbort(stop func(broker.AbortNotice, error)) (func() error, error) {
	sub, err := b.nc.Subscribe(subjectAbort, func(m *nats.Msg) {
		var n broker.AbortNotice
		err := json.Unmarshal(m.Data, &n)
		stop(n, err)
	})
	if err != nil {
		return nil, fmt.Errorf("listen for aborts: %w", err)
	}
	return sub.Unsubscribe, nil
}
