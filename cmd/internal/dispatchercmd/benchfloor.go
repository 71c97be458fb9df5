package dispatchercmd

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

	"github.com/toolyard/toolyard/internal/broker"
)

// The limits of a floor. Its streams go when it is measured.
const (
	floorMaxAge     = 10 * time.Minute // after which a floor's messages go, if it was killed
	floorMaxMsgs    = 1_000_000        // messages that a floor's stream keeps
	floorDuplicates = time.Minute      // how long a floor knows the id of a message
	floorAckWait    = 30 * time.Second // silence after which a floor's message is delivered again
	floorUnacked    = 4096             // messages of a floor that are not acknowledged
	floorGathers    = 64               // batches and results that a floor's dispatcher handles at a time
	floorResult     = 200              // characters of a result of a floor
	floorArgument   = 150              // characters of the arguments of a call of a floor

	floorPrefix = "BENCH_"
)

// benchFloor is the least that a pool on JetStream costs: it stores a batch as one message, its calls, their results
// and one reply, each acknowledged, in files. It has no permissions, locks, claims, events or takeover. Submitter,
// dispatcher and worker have a connection each, as they would be processes.
type benchFloor struct {
	submit, dispatch, work *nats.Conn
	js, djs, wjs           jetstream.JetStream
	id                     string
	made                   []string // streams
	stops                  []func()
	running                context.Context // ends with the first error of a handler
	fail                   context.CancelCauseFunc

	mu      sync.Mutex
	waiting map[string]chan []string
	held    map[string]*heldResults
}

// heldResults are the results of a batch until all are there.
type heldResults struct {
	msgs []jetstream.Msg
	left int
}

type floorCall struct {
	Batch string `json:"batch"`
	Index int    `json:"index"`
	Of    int    `json:"of"`
	Args  string `json:"args"`
}

// newFloor makes the streams of a floor that runs so many calls at a time. close removes them.
func newFloor(ctx context.Context, connect func() (*nats.Conn, error), replicas, slots int) (f *benchFloor, err error) {
	f = &benchFloor{id: strings.ReplaceAll(broker.NewID(), "-", ""), waiting: map[string]chan []string{},
		held: map[string]*heldResults{}}
	f.running, f.fail = context.WithCancelCause(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	for _, c := range []struct {
		nc *(*nats.Conn)
		js *jetstream.JetStream
	}{{&f.submit, &f.js}, {&f.dispatch, &f.djs}, {&f.work, &f.wjs}} {
		if *c.nc, err = connect(); err != nil {
			return f, err
		}
		if *c.js, err = jetstream.New(*c.nc); err != nil {
			return f, err
		}
	}
	for kind, keep := range map[string]jetstream.RetentionPolicy{"batches": jetstream.WorkQueuePolicy,
		"calls": jetstream.WorkQueuePolicy, "results": jetstream.LimitsPolicy, "replies": jetstream.LimitsPolicy} {
		if _, err := f.js.CreateStream(ctx, jetstream.StreamConfig{Name: f.stream(kind), Retention: keep,
			Subjects: []string{f.subject(kind, ">")}, Replicas: replicas, Storage: jetstream.FileStorage,
			MaxAge: floorMaxAge, MaxMsgs: floorMaxMsgs, Duplicates: floorDuplicates}); err != nil {
			return f, fmt.Errorf("make the stream of %s: %w", kind, err)
		}
		f.made = append(f.made, f.stream(kind))
	}
	for _, h := range []struct {
		js     jetstream.JetStream
		kind   string
		n      int
		handle func(jetstream.Msg) error
	}{{f.djs, "batches", floorGathers, f.dispatchBatch}, {f.wjs, "calls", slots, f.runCall},
		{f.djs, "results", floorGathers, f.gather}} {
		if err := f.pull(ctx, h.js, h.kind, h.n, h.handle); err != nil {
			return f, err
		}
	}
	return f, f.read(ctx)
}

func (f *benchFloor) stream(kind string) string {
	return floorPrefix + f.id + "_" + strings.ToUpper(kind)
}

func (f *benchFloor) subject(kind, rest string) string {
	return "bench." + f.id + "." + kind + "." + rest
}

// pull handles the messages of a stream, n at a time. An error ends the floor.
func (f *benchFloor) pull(ctx context.Context, js jetstream.JetStream, kind string, n int,
	handle func(jetstream.Msg) error) error {
	cons, err := js.CreateConsumer(ctx, f.stream(kind), jetstream.ConsumerConfig{Durable: "all",
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: floorAckWait, MaxAckPending: floorUnacked})
	if err != nil {
		return fmt.Errorf("read %s: %w", kind, err)
	}
	slots := make(chan struct{}, n)
	reading, err := cons.Consume(func(m jetstream.Msg) {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			if err := handle(m); err != nil {
				f.fail(fmt.Errorf("floor: handle %s: %w", kind, err))
			}
		}()
	}, jetstream.PullMaxMessages(2*n))
	if err != nil {
		return fmt.Errorf("read %s: %w", kind, err)
	}
	f.stops = append(f.stops, reading.Stop)
	return nil
}

// dispatchBatch publishes the calls of a batch.
func (f *benchFloor) dispatchBatch(m jetstream.Msg) error {
	var calls []floorCall
	if err := json.Unmarshal(m.Data(), &calls); err != nil {
		return err
	}
	acks := make([]jetstream.PubAckFuture, len(calls))
	for i, c := range calls {
		data, err := json.Marshal(c)
		if err != nil {
			return err
		}
		if acks[i], err = f.djs.PublishAsync(f.subject("calls", c.Batch+"."+strconv.Itoa(i)), data,
			jetstream.WithMsgID(c.Batch+"."+strconv.Itoa(i))); err != nil {
			return err
		}
	}
	for _, a := range acks {
		select {
		case <-a.Ok():
		case err := <-a.Err():
			return err
		case <-f.running.Done():
			return context.Cause(f.running)
		}
	}
	return m.Ack()
}

// runCall stores the result of a call.
func (f *benchFloor) runCall(m jetstream.Msg) error {
	var c floorCall
	if err := json.Unmarshal(m.Data(), &c); err != nil {
		return err
	}
	id := c.Batch + "." + strconv.Itoa(c.Index)
	data := floorResultOf(c.Batch, c.Index)
	if _, err := f.wjs.Publish(f.running, f.subject("results", id+"."+strconv.Itoa(c.Of)), []byte(data),
		jetstream.WithMsgID(id)); err != nil {
		return err
	}
	return m.Ack()
}

func floorResultOf(batch string, i int) string {
	text := batch + " " + strconv.Itoa(i) + " "
	return text + strings.Repeat("r", max(0, floorResult-len(text)))
}

// gather holds the results of each batch until all are there, and replies them in order.
func (f *benchFloor) gather(m jetstream.Msg) error {
	parts := strings.Split(strings.TrimPrefix(m.Subject(), f.subject("results", "")), ".")
	if len(parts) != 3 {
		return fmt.Errorf("subject %q has no place", m.Subject())
	}
	i, err := strconv.Atoi(parts[1])
	of, oerr := strconv.Atoi(parts[2])
	if err := errors.Join(err, oerr); err != nil || i < 0 || i >= of {
		return fmt.Errorf("subject %q has no place: %w", m.Subject(), err)
	}
	f.mu.Lock()
	h := f.held[parts[0]]
	if h == nil {
		h = &heldResults{msgs: make([]jetstream.Msg, of), left: of}
		f.held[parts[0]] = h
	}
	if h.msgs[i] == nil {
		h.left--
	}
	h.msgs[i] = m
	whole := h.left == 0
	if whole {
		delete(f.held, parts[0])
	}
	f.mu.Unlock()
	if !whole {
		return nil
	}
	all := make([]string, of)
	for i, m := range h.msgs {
		all[i] = string(m.Data())
	}
	data, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if _, err := f.djs.Publish(f.running, f.subject("replies", parts[0]), data); err != nil {
		return err
	}
	for _, m := range h.msgs {
		if err := m.Ack(); err != nil {
			return err
		}
	}
	return nil
}

// read hands replies to the batches that wait for them.
func (f *benchFloor) read(ctx context.Context) error {
	cons, err := f.js.OrderedConsumer(ctx, f.stream("replies"), jetstream.OrderedConsumerConfig{})
	if err != nil {
		return fmt.Errorf("read replies: %w", err)
	}
	reading, err := cons.Consume(func(m jetstream.Msg) {
		var all []string
		if err := json.Unmarshal(m.Data(), &all); err != nil {
			f.fail(fmt.Errorf("floor: read a reply: %w", err))
			return
		}
		batch := strings.TrimPrefix(m.Subject(), f.subject("replies", ""))
		f.mu.Lock()
		defer f.mu.Unlock()
		if to := f.waiting[batch]; to != nil {
			delete(f.waiting, batch)
			to <- all // it has room
		}
	})
	if err != nil {
		return fmt.Errorf("read replies: %w", err)
	}
	f.stops = append(f.stops, reading.Stop)
	return nil
}

// batch runs one batch, and checks its results.
func (f *benchFloor) batch(ctx context.Context, _, k int) error {
	id := strings.ReplaceAll(broker.NewID(), "-", "")
	calls := make([]floorCall, k)
	for i := range calls {
		calls[i] = floorCall{Batch: id, Index: i, Of: k, Args: strings.Repeat("a", floorArgument)}
	}
	data, err := json.Marshal(calls)
	if err != nil {
		return err
	}
	answer := make(chan []string, 1)
	f.mu.Lock()
	f.waiting[id] = answer
	f.mu.Unlock()
	if _, err := f.js.Publish(ctx, f.subject("batches", id), data, jetstream.WithMsgID(id)); err != nil {
		return fmt.Errorf("floor: submit: %w", err)
	}
	select {
	case all := <-answer:
		for i := range max(k, len(all)) {
			if i >= len(all) || all[i] != floorResultOf(id, i) {
				return fmt.Errorf("floor: result %d of %d is wrong", i, len(all))
			}
		}
		return nil
	case <-f.running.Done():
		return context.Cause(f.running)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close removes the streams.
func (f *benchFloor) close() (err error) {
	f.fail(nil) // what handlers say from now on is of no account
	for _, stop := range f.stops {
		stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	for _, name := range f.made {
		if derr := f.js.DeleteStream(ctx, name); derr != nil {
			err = errors.Join(err, fmt.Errorf("remove the stream %s: %w", name, derr))
		}
	}
	for _, nc := range []*nats.Conn{f.work, f.dispatch, f.submit} {
		if nc != nil {
			nc.Close()
		}
	}
	return err
}
