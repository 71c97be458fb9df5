package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/replay"
)

// Event is something that happened to a batch, as it is stored.
type Event struct {
	Batch toolyard.BatchKey
	// Type is the CloudEvents type.
	Type string
	// Time is when it was stored; over HTTP, when it was written.
	Time time.Time
	// What says in one line what happened, for a person. Names in it are as agents and tools gave them.
	What string
	// Gap, if it is not empty, says that events are missing before this one, or may be. An event with an empty Type
	// says nothing else. Only [Client.Watch] has gaps.
	Gap string

	// JSON is the event as a CloudEvent in structured mode.
	JSON json.RawMessage
}

func eventOf(k toolyard.BatchKey, l logged, s *batch.State) Event {
	return Event{Batch: k, Type: string(l.record.Body.EventType()), Time: l.record.Time,
		What: replay.Words(l.record, s), JSON: l.json}
}

// Watch yields what is stored about the batch, from its submission on, and then each event as it is stored, none left
// out and none twice. It ends after the last one, when the batch is complete or was refused. An error ends it too: of a
// log that contradicts itself, for one.
func (b *Batch) Watch(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		err := b.watch(ctx, func(e Event) bool { return yield(e, nil) })
		if err != nil && !errors.Is(err, errLeft) {
			yield(Event{}, err)
		}
	}
}

func (b *Batch) watch(ctx context.Context, yield func(Event) bool) error {
	s := batch.State{Key: b.key}
	return b.follow(ctx, true, func(l logged) error {
		if err := s.Apply(l.record); err != nil {
			return err
		}
		if sub, ok := l.record.Body.(events.Submitted); ok {
			s.Key.Agent = sub.Agent // where it is the token's, this says whose
		}
		if !yield(eventOf(s.Key, l, &s)) {
			return errLeft
		}
		return nil
	})
}

// Watch follows all batches of an agent, of all agents if agent is empty. From when it returns, the events of these
// batches are yielded as they are stored, those of one batch in their order. Where this connection was too slow or was
// lost, events are missing, and a Gap says so. Submissions are not among them: a batch appears when it is planned. It
// goes on until ctx ends, the loop does, or the NATS connection is closed; whoever does not loop ends ctx.
func (c *Client) Watch(ctx context.Context, agent toolyard.Agent) (iter.Seq2[Event, error], error) {
	events, err := c.t.subscribe(ctx, agent)
	if err != nil {
		return nil, err
	}
	return func(yield func(Event, error) bool) {
		err := events(func(e Event) bool { return yield(e, nil) })
		if err != nil && !errors.Is(err, errLeft) {
			yield(Event{}, err)
		}
	}, nil
}
