package client

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/replay"
)

// Event is something that happened to a batch, as it is stored.
type Event struct {
	Batch toolyard.BatchKey
	// Type is the CloudEvents type.
	Type string
	// Time is when it was stored.
	Time time.Time
	// What says in one line what happened, for a person. Names in it are as agents and tools gave them.
	What string
	// Gap, if it is not empty, says that events are missing before this one, or may be. An event with an empty Type says
	// nothing else. Only [Client.Watch] has gaps.
	Gap string

	stored broker.Logged
}

// JSON is the event as a CloudEvent in structured mode.
func (e Event) JSON() ([]byte, error) { return e.stored.JSON() }

func eventOf(k toolyard.BatchKey, l broker.Logged, s *batch.State) Event {
	return Event{Batch: k, Type: string(l.Body.EventType()), Time: l.Time, What: replay.Words(l.Record, s), stored: l}
}

// Watch yields what is stored about the batch, from its submission on, and then each event as it is stored, none left out
// and none twice. It ends after the last one, when the batch is complete or was refused. An error ends it too: of a log that
// contradicts itself, for one.
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
	return b.c.b.Follow(ctx, b.key, true, rereadAfter, func(l broker.Logged) error {
		if err := s.Apply(l.Record); err != nil {
			return err
		}
		if !yield(eventOf(b.key, l, &s)) {
			return errLeft
		}
		return nil
	})
}

// Watch follows all batches of an agent, of all agents if agent is empty. From when it returns, the events of these batches
// are yielded as they are stored, those of one batch in their order. Where this connection was too slow or was lost, events
// are missing, and a Gap says so. Submissions are not among them: a batch appears when it is planned. It goes on until ctx
// ends or the loop does; whoever does not loop ends ctx.
func (c *Client) Watch(ctx context.Context, agent toolyard.Agent) (iter.Seq2[Event, error], error) {
	out, err := c.b.Lookout(ctx, agent)
	if err != nil {
		return nil, err
	}
	stop := sync.OnceValue(out.Stop)
	unneeded := context.AfterFunc(ctx, func() { _ = stop() }) // the loop reports it
	return func(yield func(Event, error) bool) {
		defer unneeded()
		err := watchAll(ctx, out, func(e Event) bool { return yield(e, nil) })
		if err = errors.Join(err, stop()); err != nil && !errors.Is(err, errLeft) {
			yield(Event{}, err)
		}
	}, nil
}

// errLeft says that the loop was left: nothing may be yielded any more.
var errLeft = errors.New("the loop was left")

func watchAll(ctx context.Context, out *broker.Lookout, yield func(Event) bool) error {
	tick := time.NewTicker(rereadAfter)
	defer tick.Stop()
	for {
		e := Event{Time: time.Now()}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			if e.Gap = out.Missed(); e.Gap == "" {
				continue
			}
		case m := <-out.C:
			k, l, gap, err := out.Read(ctx, m)
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case err != nil:
				e.Gap = "an event cannot be read: " + err.Error()
			default:
				e = eventOf(k, l, nil)
				if gap {
					e.Gap = "an event of this batch before this one was not seen"
				}
			}
		}
		if !yield(e) {
			return errLeft
		}
	}
}
