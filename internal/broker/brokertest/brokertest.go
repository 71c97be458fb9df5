// Package brokertest says how a NATS server behaves, as far as our code relies on it: one case for each fact. The same
// cases run on the real nats-server, alone and as three, and on membroker. Where they differ the real one is right.
//
// [Facts] is the table: which case holds which fact, and which facts have none, and why.
package brokertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// Target is a server under test.
type Target struct {
	// Replicas is how many each stream has.
	Replicas int
	// Connect connects another party, until the test ends.
	Connect func(t *testing.T, party string, opts ...nats.Option) *nats.Conn
}

// Run runs all cases. in starts a server, or takes one that runs, and calls do; in a bubble, where that is meant.
func Run(t *testing.T, in func(t *testing.T, do func(*testing.T, Target))) {
	for _, c := range Cases {
		t.Run(c.Name, func(t *testing.T) {
			in(t, func(t *testing.T, target Target) { c.Run(begin(t, target)) })
		})
	}
}

// Case is one case.
type Case struct {
	Name string
	Run  func(*Env)
}

// answerWithin bounds each wait of a case: nothing depends on how long it is.
const answerWithin = 30 * time.Second

// Env is what a case has: a connection, and names of its own.
type Env struct {
	*testing.T
	Target
	NC *nats.Conn
	JS jetstream.JetStream
	// Name is a stream's name, and begins its subjects.
	Name string
	ctx  context.Context
}

var environments atomic.Int64

func begin(t *testing.T, target Target) *Env {
	e := &Env{T: t, Target: target, Name: fmt.Sprintf("S%d", environments.Add(1))}
	e.NC = target.Connect(t, "one")
	e.JS = e.jetStream(e.NC)
	var cancel context.CancelFunc
	e.ctx, cancel = context.WithTimeout(t.Context(), 2*answerWithin)
	t.Cleanup(cancel)
	return e
}

func (e *Env) jetStream(nc *nats.Conn) jetstream.JetStream {
	js, err := jetstream.New(nc)
	e.must(err)
	return js
}

func (e *Env) must(err error) {
	e.Helper()
	must.OK(e.T, err)
}

// subject is one of the stream's subjects.
func (e *Env) subject(tail string) string { return e.Name + "." + tail }

// Keep makes a stream that stays. A server that deletes its last stream takes the directory of all away, and one that
// is made at that moment fails.
func Keep(t *testing.T, nc *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(nc)
	must.OK(t, err)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KEEP",
		Subjects: []string{"KEEP.>"}}); err != nil {
		t.Fatal(err)
	}
}

// stream makes the case's stream, changed by with.
func (e *Env) stream(with func(*jetstream.StreamConfig)) jetstream.Stream {
	e.Helper()
	cfg := jetstream.StreamConfig{
		Name: e.Name, Subjects: []string{e.Name + ".>"}, Replicas: e.Replicas, MaxMsgsPerSubject: -1,
	}
	if with != nil {
		with(&cfg)
	}
	var s jetstream.Stream
	e.until("the stream is made", func() (made bool) {
		var err error
		s, err = e.JS.CreateStream(e.ctx, cfg)
		if refused, ok := errors.AsType[*jetstream.APIError](err); ok && refused.Code >= 500 {
			e.Logf("the stream is not made yet: %v", err) // see Keep
			return false
		}
		e.must(err)
		return true
	})
	e.until("the stream answers", func() bool { // another server of the cluster hears of it later
		_, err := e.JS.Publish(e.ctx, e.subject("try"), nil, jetstream.WithExpectStream("none"),
			jetstream.WithRetryAttempts(0))
		_, refused := errors.AsType[*jetstream.APIError](err) // so nothing is stored
		return refused
	})
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), answerWithin)
		defer cancel()
		if err := e.JS.DeleteStream(ctx, cfg.Name); err != nil {
			e.Errorf("delete the stream: %v", err)
		}
	})
	return s
}

// consumer makes a pull consumer with explicit acks, changed by with.
func (e *Env) consumer(s jetstream.Stream, with func(*jetstream.ConsumerConfig)) jetstream.Consumer {
	e.Helper()
	cfg := jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute}
	if with != nil {
		with(&cfg)
	}
	c, err := s.CreateConsumer(e.ctx, cfg)
	e.must(err)
	return c
}

// put publishes on one of the stream's subjects and returns the sequence.
func (e *Env) put(tail string, opts ...jetstream.PublishOpt) uint64 {
	e.Helper()
	ack, err := e.JS.Publish(e.ctx, e.subject(tail), []byte(tail), opts...)
	e.must(err)
	return ack.Sequence
}

// putOdd publishes, and returns what came of it.
func (e *Env) putOdd(tail string, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	return e.JS.Publish(e.ctx, e.subject(tail), []byte(tail), append(opts, jetstream.WithRetryAttempts(0))...)
}

// refused checks an error's code, and a text in it.
func (e *Env) refused(err error, code jetstream.ErrorCode, text string) {
	e.Helper()
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok || api.ErrorCode != code || !strings.Contains(api.Description, text) {
		e.Errorf("got %v; want code %d and %q", err, code, text)
	}
}

// same compares.
func same[T comparable](e *Env, what string, got, want T) {
	e.Helper()
	if got != want {
		e.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// fetch takes so many messages from a consumer.
func (e *Env) fetch(c jetstream.Consumer, n int) []jetstream.Msg {
	e.Helper()
	var out []jetstream.Msg
	e.until("the consumer answers", func() bool { // another server of the cluster hears of it later
		batch, err := c.Fetch(n, jetstream.FetchMaxWait(answerWithin))
		e.must(err)
		for m := range batch.Messages() {
			out = append(out, m)
		}
		if err = batch.Error(); !errors.Is(err, nats.ErrNoResponders) {
			e.must(err)
		}
		return err == nil
	})
	if len(out) != n {
		e.Fatalf("%d messages came, not %d", len(out), n)
	}
	return out
}

// one takes one message, and checks on which subject it was stored and which delivery this is.
func (e *Env) one(c jetstream.Consumer, tail string, delivery uint64) jetstream.Msg {
	e.Helper()
	m := e.fetch(c, 1)[0]
	meta, err := m.Metadata()
	e.must(err)
	same(e, "subject", m.Subject(), e.subject(tail))
	same(e, "delivery of "+tail, meta.NumDelivered, delivery)
	return m
}

// none checks that a consumer has nothing to deliver now.
func (e *Env) none(c jetstream.Consumer) {
	e.Helper()
	batch, err := c.FetchNoWait(1)
	e.must(err)
	for m := range batch.Messages() {
		e.Errorf("%s came", m.Subject())
	}
}

// pull makes a request of its own to a consumer, and returns where answers come.
func (e *Env) pull(consumer, request string) *nats.Subscription {
	e.Helper()
	inbox := e.NC.NewInbox()
	sub, err := e.NC.SubscribeSync(inbox)
	e.must(err)
	e.must(e.NC.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+e.Name+"."+consumer, inbox, []byte(request)))
	return sub
}

// next is the next message of a subscription.
func (e *Env) next(sub *nats.Subscription) *nats.Msg {
	e.Helper()
	m, err := sub.NextMsg(answerWithin)
	e.must(err)
	return m
}

// status checks that the next message is an answer of the server about a request.
func (e *Env) status(sub *nats.Subscription, code, text string) *nats.Msg {
	e.Helper()
	m := e.next(sub)
	same(e, "status", m.Header.Get("Status"), code)
	same(e, "description", m.Header.Get("Description"), text)
	return m
}

// state is the stream's.
func (e *Env) state(s jetstream.Stream) jetstream.StreamState {
	e.Helper()
	info, err := s.Info(e.ctx)
	e.must(err)
	return info.State
}

// info is a consumer's.
func (e *Env) info(c jetstream.Consumer) *jetstream.ConsumerInfo {
	e.Helper()
	info, err := c.Info(e.ctx)
	e.must(err)
	return info
}

// pause is between two looks of until.
const pause = 20 * time.Millisecond

// until waits for something that follows by itself.
func (e *Env) until(what string, holds func() bool) {
	e.Helper()
	for end := time.Now().Add(answerWithin); !holds(); time.Sleep(pause) {
		if time.Now().After(end) {
			e.Fatalf("it does not come to: %s", what)
		}
	}
}
