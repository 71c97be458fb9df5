package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

// QueueAll hands calls to the workers of their routes, one message each, all on their way at once. When it returns nil
// they are in the work queue; when not, some may be. A message that is stored twice does no harm: only one claim and
// one result win.
func (b *Broker) QueueAll(ctx context.Context, routes []batch.Route, requests []events.Requested) error {
	futures := make([]jetstream.PubAckFuture, len(requests))
	for i, req := range requests {
		k := toolyard.BatchKey{Agent: req.Agent, ID: req.Batch}
		index := req.Calls[0].Index
		msg, err := b.message(ctx, subjectCall(routes[i], k, index), b.meta(k, aboutCall(k, index)), req)
		if err != nil {
			return err
		}
		if futures[i], err = b.js.PublishMsgAsync(msg, jetstream.WithExpectStream(streamCall)); err != nil {
			return fmt.Errorf("queue call %d of %s: %w", index, k, err)
		}
	}
	var errs []error
	for i, f := range futures {
		if err := b.await(ctx, f); err != nil {
			errs = append(errs, fmt.Errorf("queue call %d of %s/%s: %w", requests[i].Calls[0].Index, requests[i].Agent, requests[i].Batch, err))
		}
	}
	return errors.Join(errs...)
}

// await waits for the answer to an asynchronous publish, and repeats the publish while none comes.
func (b *Broker) await(ctx context.Context, f jetstream.PubAckFuture) error {
	select {
	case <-f.Ok():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case err := <-f.Err():
		pause := firstPause
		for {
			again, verdict := classify(err)
			if !again {
				return verdict
			}
			if err := wait(ctx, &pause); err != nil {
				return err
			}
			msg := f.Msg()
			msg.Reply = "" // the first publish's
			attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
			_, err = b.js.PublishMsg(attempt, msg, jetstream.WithRetryAttempts(0))
			cancel()
			if err == nil {
				return nil
			}
		}
	}
}

// Delivery is a message of the work queue in the hands of one worker.
type Delivery struct {
	events.Requested
	// Deliveries counts them, this one included.
	Deliveries uint64
	msg        jetstream.Msg
	b          *Broker
}

// Key is the batch's.
func (d *Delivery) Key() toolyard.BatchKey {
	return toolyard.BatchKey{Agent: d.Agent, ID: d.Batch}
}

// Alive tells the queue that the call is in work. It is answered: an error means that it may be another's by now.
func (d *Delivery) Alive(ctx context.Context) error {
	_, err := d.b.nc.RequestWithContext(ctx, d.msg.Reply(), []byte("+WPI"))
	return err
}

// Done takes the message out of the queue.
func (d *Delivery) Done(ctx context.Context) error { return d.msg.DoubleAck(ctx) }

// Return gives the message back, for another worker, after a pause.
func (d *Delivery) Return(pause time.Duration) error { return d.msg.NakWithDelay(pause) }

// Work is one slot's line to the queue of a route.
type Work struct {
	b  *Broker
	it jetstream.MessagesContext
}

// Work opens the queue of a route for one slot. Nothing is fetched ahead: a slot asks for one message when it is free.
func (b *Broker) Work(ctx context.Context, r batch.Route) (*Work, error) {
	if err := CheckPool(r.Pool); err != nil {
		return nil, err
	}
	name := "call_" + string(r.Class) + "_" + string(r.Pool)
	cons, err := b.streams[streamCall].Consumer(ctx, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		cons, err = b.streams[streamCall].CreateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: name, FilterSubject: filterCalls(r), AckPolicy: jetstream.AckExplicitPolicy, AckWait: b.settings.CallAckWait,
			MaxDeliver: -1, MaxAckPending: MaxCallsInFlight, MaxWaiting: MaxWaitingPulls,
		})
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %s of %s: %w", name, streamCall, err)
	}
	it, err := cons.Messages(jetstream.PullMaxMessages(1), jetstream.PullExpiry(30*time.Second))
	if err != nil {
		return nil, fmt.Errorf("take calls of %s: %w", name, err)
	}
	return &Work{b: b, it: it}, nil
}

// Next waits for calls to run. [ErrStopped] is the end. A message that cannot be read is taken out of the queue and
// reported as an [*events.UnreadableError]: its batch's owner sees that nothing comes, and answers.
func (w *Work) Next(ctx context.Context) (*Delivery, error) {
	m, meta, err := next(w.it)
	if err != nil {
		return nil, err
	}
	_, body, err := w.b.decode(ctx, m.Headers(), m.Data())
	if _, unreadable := errors.AsType[*events.UnreadableError](err); unreadable {
		return nil, errors.Join(err, m.TermWithReason(err.Error()))
	}
	if err != nil {
		return nil, errors.Join(err, m.Nak())
	}
	req, ok := body.(events.Requested)
	if !ok || len(req.Calls) == 0 {
		err := &events.UnreadableError{ID: m.Headers().Get(headerID), Problem: fmt.Sprintf("%T is no work", body)}
		return nil, errors.Join(err, m.TermWithReason(err.Problem))
	}
	return &Delivery{Requested: req, Deliveries: meta.NumDelivered, msg: m, b: w.b}, nil
}

// Stop ends Next.
func (w *Work) Stop() { w.it.Stop() }
