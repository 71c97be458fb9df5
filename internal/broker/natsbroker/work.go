package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/traceparent"
)

// headerAgain marks a call message that may have been queued before: the worker must claim the call.
const headerAgain = "Toolyard-Again"

// QueueAll queues calls of one batch for the workers of their routes in a lane, one message for each request, all
// published at once, and returns an outcome for each. What is already in the queue, after the same event of its item's
// chain, is not changed.
func (b *Broker) QueueAll(ctx context.Context, lane int, calls []batch.Queue) []broker.Queued {
	out := make([]broker.Queued, len(calls))
	if len(calls) > 0 {
		of, err := b.of(ctx, calls[0].Request.Key())
		if err != nil {
			for i := range out {
				out[i].Err = err
			}
			return out
		}
		b = of
	}
	lane %= b.lanes()
	msgs := make([]*nats.Msg, len(calls))
	futures := make([]jetstream.PubAckFuture, len(calls))
	for i := range calls {
		req := &calls[i].Request
		k := req.Key()
		subject := subjectCall(calls[i].Route, lane, req)
		if msgs[i], out[i].Err = b.message(ctx, subject, b.meta(ctx, k, aboutCall(k, req.Calls[0].Index)),
			*req); out[i].Err != nil {
			continue
		}
		// If too many publishes are pending, or the connection is being restored, the code below publishes one by one.
		async := &nats.Msg{Subject: b.out(subject), Header: msgs[i].Header, Data: msgs[i].Data}
		futures[i], _ = b.js.PublishMsgAsync(async, jetstream.WithExpectStream(b.name(streamCall)),
			jetstream.WithExpectLastSequencePerSubject(0),
			jetstream.WithRetryAttempts(0))
	}
	for i := range calls {
		if out[i].Err != nil {
			continue
		}
		req := &calls[i].Request
		failpoint.HitIf(i > 0, failpoint.CallsPartlyQueued)
		seq, err := b.await(ctx, futures[i], msgs[i])
		if out[i].Seq, out[i].Err = b.numbered(seq), err; err != nil {
			if msgs[i].Header.Get(headerAgain) != "" { // also when the caller queues it anew
				for n := range req.Calls {
					req.Calls[n].Again = true
				}
			}
			out[i].Err = fmt.Errorf("queue call %d of %s/%s: %w", req.Calls[0].Index, req.Agent, req.Batch, out[i].Err)
		}
	}
	return out
}

// await waits for the answer to an asynchronous publish, and repeats the publish while none comes. It returns the
// sequence of the message in the queue.
func (b *Broker) await(ctx context.Context, f jetstream.PubAckFuture, msg *nats.Msg) (uint64, error) {
	var err error
	if f != nil {
		select {
		case ack := <-f.Ok():
			return ack.Sequence, nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case err = <-f.Err():
		}
	}
	pause := firstPause
	for {
		if err != nil {
			switch again, verdict := classify(err); {
			case errors.Is(verdict, broker.ErrConflict):
				// None is there if it was removed since, or if this is no conflict: see [errNoConflict].
				if m, ok, err := b.hotLastOrLost(ctx, streamCall, msg.Subject); err != nil || ok {
					return m.seq, err
				}
			case !again:
				return 0, verdict
			}
			// The first one may have been stored, run and removed: a search would not find it any more.
			msg.Header.Set(headerAgain, "1")
			if err := wait(ctx, &pause); err != nil {
				return 0, err
			}
		}
		var ack *jetstream.PubAck
		ack, err = b.send(ctx, streamCall, msg, jetstream.WithExpectLastSequencePerSubject(0))
		if err == nil {
			return ack.Sequence, nil
		}
	}
}

// publish stores a message, and repeats that while no answer comes: it may be stored twice.
func (b *Broker) publish(ctx context.Context, stream string, msg *nats.Msg) (*jetstream.PubAck, error) {
	pause := firstPause
	for {
		ack, err := b.send(ctx, stream, msg)
		if err == nil {
			return ack, nil
		}
		if again, verdict := classify(err); !again {
			return nil, verdict
		}
		if err := wait(ctx, &pause); err != nil {
			return nil, err
		}
	}
}

// Unqueue removes a message from the work queue, wherever it is, because its call is over. It is no error if it is
// gone.
func (b *Broker) Unqueue(ctx context.Context, number uint64) error {
	b, seq, err := b.sequence(number)
	if err != nil {
		return err
	}
	err = b.streams[streamCall].DeleteMsg(ctx, seq)
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) && !errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		return fmt.Errorf("take message %d out of the work queue: %w", seq, err)
	}
	return nil
}

// Withdraw removes messages of one route and lane from the work queue, and returns those that were never delivered to a
// worker; about the others nothing is known. The queue delivers messages in the order in which they were stored, so a
// removed one after the last delivered one was never delivered. The caller knows that the server has not restarted
// since they were queued, which could have lost its record of deliveries.
func (b *Broker) Withdraw(ctx context.Context, r batch.Route, lane int, seqs []uint64) (never []uint64, err error) {
	for _, seq := range seqs {
		if err := b.Unqueue(ctx, seq); err != nil {
			return nil, err
		}
	}
	if len(seqs) > 0 { // they are of one batch
		if b, _, err = b.sequence(seqs[0]); err != nil {
			return nil, err
		}
	}
	lane %= b.lanes()
	cons, err := retry(ctx, func(ctx context.Context) (jetstream.Consumer, error) {
		return b.streams[streamCall].Consumer(ctx, consumerCalls(r, lane))
	})
	handed := uint64(0)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound): // no worker has ever asked
	case err != nil:
		return nil, fmt.Errorf("look at consumer %s of %s: %w", consumerCalls(r, lane), streamCall, err)
	default:
		handed = cons.CachedInfo().Delivered.Stream
	}
	return slices.DeleteFunc(slices.Clone(seqs), func(number uint64) bool {
		return number&maxSequence <= handed
	}), nil
}

// delivery is the message below a [broker.Delivery].
type delivery struct {
	msg        *nats.Msg
	b          *Broker
	acks       *lateAck
	reconnects uint64 // how often the connection had been restored when it came
}

func (d *delivery) Alive(ctx context.Context) error {
	_, err := d.b.nc.RequestWithContext(ctx, d.msg.Reply, []byte("+WPI"))
	return err
}

func (d *delivery) Reconnected() bool { return d.b.Reconnects() != d.reconnects }

// Done waits for no answer: a message whose acknowledgement is lost is delivered again, and its calls are found to be
// answered.
func (d *delivery) Done() error { return d.acks.done(d.msg) }

func (d *delivery) Return(pause time.Duration) error { return d.msg.NakWithDelay(pause) }

// lane is one lane of a route, from which one worker takes calls.
type lane struct {
	b    *Broker
	pull *pull
	acks *lateAck
}

func consumerCalls(r batch.Route, lane int) string {
	return fmt.Sprintf("call_%s_%s_%d", r.Class, r.Pool, lane)
}

// Lane opens a lane of a route. It requests nothing before Take. Messages that have come and were not taken when the
// lane is stopped go to unwanted, which must give them back; if it is nil, the lane gives them back.
func (b *Broker) Lane(ctx context.Context, r batch.Route, number int, unwanted func(*broker.Delivery)) (broker.Lane,
	error) {
	if err := broker.CheckPool(r.Pool); err != nil {
		return nil, err
	}
	if v := b.view(); !b.one && len(v.sets) > 0 {
		n, lane := v.laneIn(b.serves, number)
		return b.inOf(v, n).Lane(ctx, r, lane, unwanted)
	}
	name := consumerCalls(r, number)
	if err := b.openLane(ctx, r, number); err != nil {
		return nil, err
	}
	acks := newLateAck(b.Settings().CallAckWait)
	p, err := b.pull(streamCall, name, b.Settings().CallAckWait, func(m message) {
		if unwanted == nil {
			nak(m)
			return
		}
		reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTimeout)
		defer cancel()
		if d, err := b.delivery(reading, &m, acks); err == nil { // otherwise it was given back, or buried
			unwanted(d)
		}
	})
	if err != nil {
		return nil, err
	}
	if b.guest != nil {
		p.subject = prefixNext + string(r.Class) + "." + strconv.Itoa(number) + "." + b.name(streamCall)
	}
	return &lane{b: b, pull: p, acks: acks}, nil
}

// openLane creates the consumer of a lane, unless it exists.
func (b *Broker) openLane(ctx context.Context, r batch.Route, lane int) error {
	name := consumerCalls(r, lane)
	if b.guest != nil {
		if lane > 0 { // they are created together
			return nil
		}
		_, err := retry(ctx, func(ctx context.Context) (*nats.Msg,
			error) {
			return b.question(ctx, opLanes, r.Class, nil)
		})
		return err
	}
	// A cluster that is electing a leader answers late; a worker that starts then waits like a running one.
	_, err := retry(ctx, func(ctx context.Context) (jetstream.Consumer, error) {
		return consumer(ctx, b.streams[streamCall], jetstream.ConsumerConfig{
			Durable: name, FilterSubject: b.out(filterCalls(r, lane)), AckPolicy: jetstream.AckExplicitPolicy,
			AckWait:    b.Settings().CallAckWait,
			MaxDeliver: -1, MaxAckPending: broker.MaxCallsInFlight, MaxWaiting: broker.MaxWaitingPulls,
			// A pool that nobody serves any more costs nothing in the end. What it has delivered is over by then.
			InactiveThreshold: b.Settings().Lifetime + b.Settings().Slack,
		}, func() error { return b.roomForLane(ctx, r.Pool) })
	})
	if err != nil {
		return fmt.Errorf("consumer %s of %s: %w", name, streamCall, err)
	}
	return nil
}

// roomForLane returns an error if there are as many lanes as may be: those of [broker.MaxPools] pools. Workers that
// start at one time may each find the last place free: there are a few more then.
func (b *Broker) roomForLane(ctx context.Context, pool toolyard.Pool) error {
	if pool == toolyard.DefaultPool { // it always has its queues
		return nil
	}
	most := b.pools * broker.Lanes * len(toolyard.Classes)
	s, err := b.js.Stream(ctx, b.name(streamCall)) // the shared handle's Info is not safe for concurrent use
	if err != nil || s.CachedInfo().State.Consumers < most {
		return err
	}
	return fmt.Errorf("%w: pool %q would be one more than the %d that may have work queues; those that nobody serves "+
		"are deleted after %s", broker.ErrFull, pool, b.pools, b.Settings().Lifetime+b.Settings().Slack)
}

// Take requests up to n messages and yields them as they come, until the request is over: when all have come, or when
// it has lasted for a lease of the call ack wait. A [*BadWorkError] is about one message only; any other error is the
// end, and [ErrStopped] the regular one. Only one goroutine at a time takes from a lane.
func (l *lane) Take(ctx context.Context, n int) iter.Seq2[*broker.Delivery, error] {
	return func(yield func(*broker.Delivery, error) bool) {
		for m, err := range l.pull.all(n) {
			var d *broker.Delivery
			if err == nil {
				d, err = l.b.delivery(ctx, m, l.acks)
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// delivery reads a message of the work queue.
func (b *Broker) delivery(ctx context.Context, m *message, acks *lateAck) (*broker.Delivery, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read a delivery's metadata: %w", err)
	}
	bad := &broker.BadWorkError{}
	if bad.Key, bad.Index, err = parseCallSubject(m.Subject); err == nil {
		ctx := broker.ForCall(ctx, bad.Key, bad.Index)
		var envelope events.Meta
		var body events.Body
		envelope, body, err = b.decode(ctx, m.Header, m.Data)
		if req, ok := body.(events.Requested); ok && len(req.Calls) > 0 {
			if b.view().Served() > 1 {
				b.system.where.note(bad.Key, b.shard)
			}
			if m.Header.Get(headerAgain) != "" || meta.NumDelivered == 1 &&
				b.mayHaveForgotten(ctx, meta.Sequence.Stream) {
				for i := range req.Calls {
					req.Calls[i].Again = true
				}
			}
			return &broker.Delivery{
				Requested: req, Deliveries: meta.NumDelivered, Received: m.received, Stored: meta.Timestamp,
				OwnerWait:       b.Settings().BatchAckWait,
				Trace:           traceparent.Of(envelope.TraceParent, envelope.TraceState, envelope.Baggage),
				DeliveryMessage: &delivery{msg: m.Msg, b: b, acks: acks, reconnects: b.Reconnects()},
			}, nil
		}
		if err == nil {
			err = &events.UnreadableError{ID: m.Header.Get(headerID), Problem: fmt.Sprintf("%T is no work", body)}
		}
	}
	if _, unreadable := errors.AsType[*events.UnreadableError](err); unreadable {
		_, err = b.classifyUnknown(ctx, m.Header, m.Data, err)
	}
	bad.Err = err
	if _, unreadable := errors.AsType[*events.UnreadableError](err); unreadable || errors.Is(err, broker.ErrDamaged) {
		letter := broker.DeadLetter{Kind: broker.DeadCall, Subject: m.Subject, Seq: meta.Sequence.Stream,
			Cause: err.Error()}
		if bad.Key.ID != "" {
			letter.Agent, letter.Batch, letter.Call = bad.Key.Agent, bad.Key.ID, &bad.Index
		}
		bad.Err = errors.Join(err, b.Bury(ctx, letter, m.Data), terminate(m.Msg, "it cannot be read"))
	} else {
		pause := longestPause
		if errors.Is(err, events.ErrNewer) {
			pause = broker.NewerPause(meta.NumDelivered)
		}
		bad.Again = true
		bad.Err = errors.Join(err, m.NakWithDelay(pause))
	}
	return nil, bad
}

// terminate removes a message from its stream's queue with a reason.
func terminate(m *nats.Msg, why string) error { return m.Respond([]byte("+TERM " + why)) }

// Stop ends Take. Messages that are on their way are given back.
func (l *lane) Stop() {
	l.pull.stop()
	l.acks.stop()
}
