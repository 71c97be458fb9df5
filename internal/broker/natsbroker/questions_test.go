package natsbroker_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestAFloodOfQuestionsHoldsUpNobodyElse has the workers of one pool ask many times for what takes long, and then a
// worker of another pool, and an agent, ask something each.
func TestAFloodOfQuestionsHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	s := testenv.Guarded(t)
	b := testenv.BrokerAs(t, s, access.Principal{Role: access.Dispatcher}, "/dispatcher")
	release := make(chan struct{})
	slow := func(context.Context, toolyard.Pool, broker.BackgroundAsk) (broker.BackgroundAnswer, error) {
		<-release
		return broker.BackgroundAnswer{}, nil
	}
	end := answersWith(t, b, func() []broker.Worker { return nil }, slow)
	defer func() {
		close(release)
		end()
	}()
	flood := testenv.ConnAs(t, s, access.Principal{Role: access.Worker, Name: "flood"})
	asked := must.JSON(t, broker.BackgroundAsk{})
	answers, err := flood.SubscribeSync(flood.NewInbox())
	must.OK(t, err)
	for range 40 * natsbroker.MaxQuestions {
		m := nats.NewMsg("ty.ask.background")
		m.Reply = answers.Subject
		m.Header.Set("Toolyard-Stored", string(asked))
		must.OK(t, flood.PublishMsg(m))
	}
	if err := flood.Flush(); err != nil { // the server has passed them on
		t.Fatal(err)
	}
	for _, who := range []access.Principal{{Role: access.Worker, Name: "quiet"}, {Role: access.Agent, Name: "quiet"}} {
		nc := testenv.ConnAs(t, s, who)
		if _, err := nc.Request("ty.ask.hello", nil, 10*time.Second); err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
	// Who asks too much is told so at once, and may ask again.
	m, err := answers.NextMsg(10 * time.Second)
	if err != nil || m.Header.Get("Toolyard-Code") != "503" {
		t.Errorf("the flood is answered with %v, %v", m, err)
	}
}

// TestAQuestionThatADispatcherTookToItsGrave: a dispatcher dies with a question of a call about background calls. The
// next one is asked, and the call does not fail.
func TestAQuestionThatADispatcherTookToItsGrave(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	dying := testenv.Conn(t, s)
	took := make(chan struct{})
	sub, err := dying.QueueSubscribe("ty.ask.*.*.*", "dispatchers", func(*nats.Msg) { close(took) })
	must.OK(t, err)
	must.OK(t, errors.Join(sub.AutoUnsubscribe(1), dying.Flush()))
	b, worker := testenv.Broker(t, s, "/dispatcher"), testenv.Broker(t, s, "/worker")
	type answer struct {
		a   broker.BackgroundAnswer
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		a, err := worker.Background(t.Context(), "pool", broker.BackgroundAsk{})
		answers <- answer{a, err}
	}()
	<-took
	want := broker.BackgroundAnswer{Handle: "bg-1", State: broker.BackgroundQueued}
	defer answersWith(t, b, func() []broker.Worker { return nil },
		func(context.Context, toolyard.Pool, broker.BackgroundAsk) (broker.BackgroundAnswer, error) {
			return want, nil
		})()
	if got := <-answers; got.err != nil || !reflect.DeepEqual(got.a, want) {
		t.Errorf("the call is told %+v, %v", got.a, got.err)
	}
}
