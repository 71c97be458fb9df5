package natsbroker_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestAQueueIsNotEmptyBetweenCalls: a message that is done leaves the queue with the next one, or a moment later, or
// when the worker stops to take others. The server makes a new file whenever a queue loses its last message.
func TestAQueueIsNotEmptyBetweenCalls(t *testing.T) {
	bubble.Run(t, broker.Settings{}, func(e *bubble.Env) {
		b := e.Broker("test")
		route := batch.Route{Pool: "default", Class: toolyard.ReadOnly}
		l, err := b.Lane(e.Context(), route, 0, nil)
		must.OK(t, err)
		queue := func(call int) {
			t.Helper()
			q := b.QueueAll(e.Context(), 0, []batch.Queue{{Route: route, Request: events.Requested{Agent: "a",
				Batch: "b", Calls: []events.RequestedCall{{Index: call, Input: json.RawMessage(`{}`)}}}}})[0]
			if q.Err != nil {
				t.Fatal(q.Err)
			}
		}
		take := func() *broker.Delivery {
			t.Helper()
			for d, err := range l.Take(e.Context(), 1) {
				must.OK(t, err)
				return d
			}
			t.Fatal("nothing came")
			return nil
		}
		done := func(d *broker.Delivery) {
			t.Helper()
			must.OK(t, d.Done())
		}
		taken := func() int {
			t.Helper()
			s, err := b.Stock(e.Context())
			must.OK(t, err)
			return s.Queues[0].Taken
		}
		for call := range 5 {
			queue(call)
			done(take())
			if n := taken(); n != 1 {
				t.Errorf("%d calls were done one after the other, and %d are in the queue", call+1, n)
			}
		}
		time.Sleep(time.Second)
		if n := taken(); n != 0 {
			t.Errorf("nothing was done for a second, and %d are in the queue", n)
		}
		queue(5)
		queue(6)
		before, after := take(), take()
		done(before)
		l.Stop()
		if n := taken(); n != 1 {
			t.Errorf("the worker has stopped to take calls and has one, and %d are in the queue", n)
		}
		done(after)
		if n := taken(); n != 0 {
			t.Errorf("it is done, and %d are in the queue", n)
		}
		time.Sleep(2 * b.Settings().CallAckWait)
		if d := taken(); d != 0 {
			t.Errorf("%d came again", d)
		}
	})
}
