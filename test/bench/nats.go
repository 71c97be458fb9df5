package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsFloor is the least that a pool on JetStream costs: a pool without locks, permissions, events and takeover. Every
// publish is acknowledged and has an id, every stream is in files, and the submitter, the dispatcher and the worker
// have a connection each, as they would be processes.
//
//	js    submitter -> CALLS -> worker -> RESULTS -> submitter: two stored messages a call
//	js3   a dispatcher reads RESULTS and publishes those of a batch in order on REPLIES: three
//	js4   the submitter publishes the batch as one message on BATCHES, the dispatcher its calls: 3 + 1/K
//	js5   the replies of a batch are one message: 2 + 2/K
type natsFloor struct {
	c        config
	submit   *nats.Conn
	dispatch *nats.Conn
	work     *nats.Conn
	js       jetstream.JetStream // on submit
	g        *gatherer
	stops    []func()
	running  context.Context // ends with the first error of a handler
	fail     context.CancelCauseFunc
}

const (
	maxAsync     = 1 << 14 // publishes that are not acknowledged yet
	maxUnacked   = 4096    // messages of a consumer
	gatherers    = 64      // batches and results that the dispatcher handles at a time
	floorAckWait = 30 * time.Second
	floorMaxAge  = 10 * time.Minute
	floorDupes   = 2 * time.Minute
)

func newNATS(ctx context.Context, c config) (peer, error) {
	p := &natsFloor{c: c, g: newGatherer()}
	p.running, p.fail = context.WithCancelCause(context.Background())
	err := p.connect()
	if err == nil {
		err = p.start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *natsFloor) connect() (err error) {
	for name, nc := range map[string]**nats.Conn{
		"submitter": &p.submit, "dispatcher": &p.dispatch, "worker": &p.work,
	} {
		if *nc, err = nats.Connect(p.c.server, nats.Name("bench "+name)); err != nil {
			return err
		}
	}
	return nil
}

func (p *natsFloor) start(ctx context.Context) error {
	var err error
	if p.js, err = jetstream.New(p.submit, jetstream.WithPublishAsyncMaxPending(maxAsync)); err != nil {
		return err
	}
	djs, err := jetstream.New(p.dispatch, jetstream.WithPublishAsyncMaxPending(maxAsync))
	if err != nil {
		return err
	}
	wjs, err := jetstream.New(p.work)
	if err != nil {
		return err
	}
	for kind, keep := range map[string]jetstream.RetentionPolicy{
		"batches": jetstream.WorkQueuePolicy, "calls": jetstream.WorkQueuePolicy,
		"results": jetstream.LimitsPolicy, "replies": jetstream.LimitsPolicy,
	} {
		if _, err := p.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: streamOf(kind), Subjects: []string{"bench." + kind + ".>"}, Retention: keep,
			Storage: jetstream.FileStorage, Replicas: p.c.replicas, MaxAge: floorMaxAge, Duplicates: floorDupes,
		}); err != nil {
			return fmt.Errorf("make the stream of %s: %w", kind, err)
		}
	}
	answers := "results"
	if p.c.mode != "js" {
		answers = "replies"
		if err := p.pull(ctx, djs, "results", gatherers, p.gather(djs)); err != nil {
			return err
		}
	}
	if p.batches() {
		if err := p.pull(ctx, djs, "batches", gatherers, func(m jetstream.Msg) error {
			var calls []call
			if err := json.Unmarshal(m.Data(), &calls); err != nil {
				return err
			}
			if err := publishCalls(p.running, djs, calls); err != nil {
				return err
			}
			return m.Ack()
		}); err != nil {
			return err
		}
	}
	// No more calls run than there are slots. A slot is held until the result is stored.
	if err := p.pull(ctx, wjs, "calls", p.c.workers, func(m jetstream.Msg) error {
		var a call
		if err := json.Unmarshal(m.Data(), &a); err != nil {
			return err
		}
		if _, err := wjs.Publish(p.running, subject("results", a.Batch, a.K, a.Index), []byte(noop(a)),
			jetstream.WithMsgID(a.Batch+"."+strconv.Itoa(a.Index))); err != nil {
			return err
		}
		return m.Ack()
	}); err != nil {
		return err
	}
	return p.read(ctx, answers)
}

// batches says whether the submitter publishes a batch as one message.
func (p *natsFloor) batches() bool { return p.c.mode == "js4" || p.c.mode == "js5" }

func streamOf(kind string) string { return "BENCH_" + strings.ToUpper(kind) }

// subject names a message by its batch, the batch's size and its place in it.
func subject(kind, batch string, k, i int) string {
	return fmt.Sprintf("bench.%s.%s.%d.%d", kind, batch, k, i)
}

func placeOf(subject string) (batch string, k, i int, err error) {
	t := strings.Split(subject, ".")
	if len(t) != 5 {
		return "", 0, 0, fmt.Errorf("subject %q has no place", subject)
	}
	k, err = strconv.Atoi(t[3])
	if err == nil {
		i, err = strconv.Atoi(t[4])
	}
	if err == nil && (i < 0 || i >= k) {
		err = fmt.Errorf("subject %q has place %d of %d", subject, i, k)
	}
	return t[2], k, i, err
}

// pull calls f for each message of a stream, n at a time. An error of f ends the run.
func (p *natsFloor) pull(
	ctx context.Context, js jetstream.JetStream, kind string, n int, f func(jetstream.Msg) error,
) error {
	cons, err := js.CreateConsumer(ctx, streamOf(kind), jetstream.ConsumerConfig{
		Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy, AckWait: floorAckWait, MaxAckPending: maxUnacked,
	})
	if err != nil {
		return err
	}
	slots := make(chan struct{}, n)
	reading, err := cons.Consume(func(m jetstream.Msg) {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			if err := f(m); err != nil {
				p.fail(fmt.Errorf("handle %s: %w", m.Subject(), err))
			}
		}()
	}, jetstream.PullMaxMessages(2*n))
	if err != nil {
		return err
	}
	p.stops = append(p.stops, reading.Stop)
	return nil
}

// read hands out results to the batches that wait for them.
func (p *natsFloor) read(ctx context.Context, kind string) error {
	cons, err := p.js.OrderedConsumer(ctx, streamOf(kind), jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	reading, err := cons.Consume(func(m jetstream.Msg) {
		batch, _, i, err := placeOf(m.Subject())
		if err != nil {
			p.fail(err)
			return
		}
		if p.c.mode != "js5" {
			p.g.put(batch, i, string(m.Data()))
			return
		}
		var all []string
		if err := json.Unmarshal(m.Data(), &all); err != nil {
			p.fail(err)
			return
		}
		for i, r := range all {
			p.g.put(batch, i, r)
		}
	})
	if err != nil {
		return err
	}
	p.stops = append(p.stops, reading.Stop)
	return nil
}

// gather holds the results of each batch until all are there, publishes them in order and then acknowledges them.
func (p *natsFloor) gather(js jetstream.JetStream) func(jetstream.Msg) error {
	var mu sync.Mutex
	held := map[string][]jetstream.Msg{}
	add := func(m jetstream.Msg) (batch string, whole []jetstream.Msg, err error) {
		batch, k, i, err := placeOf(m.Subject())
		if err != nil {
			return "", nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		all := held[batch]
		if all == nil {
			all = make([]jetstream.Msg, k)
			held[batch] = all
		}
		all[i] = m
		for _, m := range all {
			if m == nil {
				return batch, nil, nil
			}
		}
		delete(held, batch)
		return batch, all, nil
	}
	return func(m jetstream.Msg) error {
		batch, whole, err := add(m)
		if err != nil || whole == nil {
			return err
		}
		replies, err := p.replies(batch, whole)
		if err != nil {
			return err
		}
		if err := publish(p.running, js, replies); err != nil {
			return err
		}
		for _, m := range whole {
			if err := m.Ack(); err != nil {
				return err
			}
		}
		return nil
	}
}

func (p *natsFloor) replies(batch string, results []jetstream.Msg) ([]*nats.Msg, error) {
	all := make([]string, len(results))
	out := make([]*nats.Msg, len(results))
	for i, m := range results {
		all[i] = string(m.Data())
		out[i] = message("replies", batch, len(results), i, m.Data())
	}
	if p.c.mode != "js5" {
		return out, nil
	}
	data, err := json.Marshal(all)
	return []*nats.Msg{message("replies", batch, len(results), 0, data)}, err
}

func message(kind, batch string, k, i int, data []byte) *nats.Msg {
	m := nats.NewMsg(subject(kind, batch, k, i))
	m.Header.Set(jetstream.MsgIDHeader, batch+"."+strconv.Itoa(i))
	m.Data = data
	return m
}

// publish returns when all messages are stored.
func publish(ctx context.Context, js jetstream.JetStream, ms []*nats.Msg) error {
	acks := make([]jetstream.PubAckFuture, len(ms))
	for i, m := range ms {
		var err error
		if acks[i], err = js.PublishMsgAsync(m); err != nil {
			return err
		}
	}
	for _, f := range acks {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func publishCalls(ctx context.Context, js jetstream.JetStream, calls []call) error {
	ms := make([]*nats.Msg, len(calls))
	for i, a := range calls {
		data, err := json.Marshal(a)
		if err != nil {
			return err
		}
		ms[i] = message("calls", a.Batch, a.K, i, data)
	}
	return publish(ctx, js, ms)
}

func (p *natsFloor) runBatch(ctx context.Context, batch string, k int) ([]string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.running, func() { cancel(context.Cause(p.running)) })()
	w := p.g.expect(batch, k)
	calls := make([]call, k)
	for i := range k {
		calls[i] = p.c.call(batch, i)
		calls[i].K = k
	}
	if !p.batches() {
		if err := publishCalls(ctx, p.js, calls); err != nil {
			return nil, err
		}
		return w.wait(ctx)
	}
	data, err := json.Marshal(calls)
	if err != nil {
		return nil, err
	}
	if _, err := p.js.PublishMsg(ctx, message("batches", batch, k, 0, data)); err != nil {
		return nil, err
	}
	return w.wait(ctx)
}

func (p *natsFloor) stored(ctx context.Context) (storedSum, error) { return storedIn(ctx, p.submit) }

func (p *natsFloor) close() error {
	p.fail(nil) // what handlers say from now on is of no account
	for _, stop := range p.stops {
		stop()
	}
	for _, nc := range []*nats.Conn{p.work, p.dispatch, p.submit} {
		if nc != nil {
			nc.Close()
		}
	}
	return nil
}
