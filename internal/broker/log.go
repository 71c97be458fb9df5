package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

// Logged is one stored event of a batch with what stands around it.
type Logged struct {
	batch.Record
	Meta events.Meta
}

// JSON is the event as a CloudEvent in structured mode.
func (l Logged) JSON() ([]byte, error) {
	e, err := events.Encode(l.Meta, l.Body)
	if err != nil {
		return nil, err
	}
	return json.Marshal(e)
}

// Log reads everything that is stored about a batch, in the order in which it was stored: the submission, then the events
// in the order of their stream, each reply among them by its time.
func (b *Broker) Log(ctx context.Context, k toolyard.BatchKey) ([]Logged, error) {
	m, ok, err := b.last(ctx, streamBatch, subjectBatch(k))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrNoBatch, k)
	}
	var out, replies []Logged
	read := func(to *[]Logged, ms ...raw) error {
		for _, m := range ms {
			_, r, meta, err := b.record(ctx, m)
			if err != nil {
				return err
			}
			*to = append(*to, Logged{Record: r, Meta: meta})
		}
		return nil
	}
	if err := read(&out, m); err != nil {
		return nil, err
	}
	s, err := b.Fold(ctx, k)
	if _, refused := errors.AsType[*toolyard.InputError](err); err != nil && !refused {
		return nil, err
	}
	var chains []string
	for _, c := range ownChains {
		chains = append(chains, subjectChain(k, c, "", 0))
	}
	for _, g := range slices.Sorted(maps.Keys(s.Started)) {
		for _, i := range s.Plan.Groups[g].Calls {
			chains = append(chains, subjectChain(k, batch.ChainCall, s.Plan.Calls[i].Pool, i))
		}
	}
	for _, subject := range chains {
		ms, err := b.chain(ctx, streamEvent, subject, 0)
		if err != nil {
			return nil, err
		}
		if err := read(&out, ms...); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(out[1:], func(x, y Logged) int { return cmp.Compare(x.Seq, y.Seq) })
	ms, err := b.chain(ctx, streamReply, subjectReply(k), 0)
	if err != nil {
		return nil, err
	}
	if err := read(&replies, ms...); err != nil {
		return nil, err
	}
	return mergeByTime(out, replies), nil
}

// mergeByTime puts the replies among the events, keeping the order of each.
func mergeByTime(log, replies []Logged) []Logged {
	out := make([]Logged, 0, len(log)+len(replies))
	for _, l := range log {
		for len(replies) > 0 && replies[0].Time.Before(l.Time) {
			out = append(out, replies[0])
			replies = replies[1:]
		}
		out = append(out, l)
	}
	return append(out, replies...)
}
