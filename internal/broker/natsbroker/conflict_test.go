package natsbroker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
)

// mistaken is a connection whose server answers some requests as a server does whose store is closed. It takes an
// append for a conflict that is none, as the sequence that the append expects is another one when it arrives; or it has
// no message on a subject, as the read is for another one.
type mistaken struct {
	net.Conn
	swaps *swaps
}

// swaps are what requests have, in turn, and what they have in its place when they arrive. No write may have two.
type swaps struct {
	mu   sync.Mutex
	left [][2]string
}

func (s *swaps) set(swaps ...[2]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = swaps
}

func (s *swaps) made() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.left) == 0
}

func (s *swaps) in(p []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.left) > 0 && bytes.Contains(p, []byte(s.left[0][0])) {
		p = bytes.Replace(p, []byte(s.left[0][0]), []byte(s.left[0][1]), 1)
		s.left = s.left[1:]
	}
	return p
}

func (c *mistaken) Write(p []byte) (int, error) {
	if _, err := c.Conn.Write(c.swaps.in(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// TestAConflictThatIsNone: an append that a server turns down as a conflict is repeated if the chain ends where the
// writer expects it. A worker gave up a result otherwise, and its call ended as outcome_unknown, when a disk was full.
func TestAConflictThatIsNone(t *testing.T) {
	s := testenv.Server(t)
	var next swaps
	nc, err := nats.Connect(s.ClientURL(), nats.SetCustomDialer(dialer(func(network, at string) (net.Conn, error) {
		c, err := net.Dial(network, at)
		return &mistaken{c, &next}, err
	})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	b := testenv.Open(t, nc, broker.Settings{}, "/dispatcher/d")
	const header = "Nats-Expected-Last-Subject-Sequence:"
	k := toolyard.BatchKey{Agent: "ann", ID: "b"}
	var first, end uint64
	for i, body := range []events.Body{planned(1), events.Started{}} {
		right, wrong := fmt.Sprint(header, " ", end), fmt.Sprint(header, " ", end+7)
		next.set([2]string{right, wrong})
		rec, err := b.Append(t.Context(), k, batch.ChainBatch, "", 0, end, body)
		if err != nil || !next.made() {
			t.Fatalf("append %d behind %d: %v; was it turned down: %v", i, end, err, next.made())
		}
		first, end = end, rec.Seq
	}
	_, err = b.Append(t.Context(), k, batch.ChainBatch, "", 0, first, events.Started{})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint("newer event, at ", end)) {
		t.Errorf("an append behind another end: %v", err)
	}

	// The read of the chain's end finds nothing either.
	next.set([2]string{fmt.Sprint(header, " ", end), fmt.Sprint(header, " ", end+7)},
		[2]string{"GET.TY_EVENT.ty.event.ann.b.", "GET.TY_EVENT.ty.event.ann.x."})
	_, err = b.Append(t.Context(), k, batch.ChainBatch, "", 0, end, events.Started{Group: 1})
	if err != nil || !next.made() {
		t.Errorf("an append to a server that has no messages any more: %v; was it asked: %v", err, next.made())
	}

	next.set([2]string{header + " 0", header + " 7"})
	q := b.QueueAll(t.Context(), 0, []batch.Queue{{Route: batch.Route{Pool: "default", Class: toolyard.ReadOnly},
		Request: events.Requested{Agent: k.Agent, Batch: k.ID, Calls: []events.RequestedCall{{}}}}})
	if q[0].Err != nil || q[0].Seq == 0 || !next.made() {
		t.Errorf("a call is queued at %d, %v; was it turned down: %v", q[0].Seq, q[0].Err, next.made())
	}
}

// TestAGuestIsTooLateBehindAFence: a worker with an account of its own appends behind the last event of a chain that
// was archived meanwhile. It does not read the fence that stands there, and hears of a conflict nevertheless.
func TestAGuestIsTooLateBehindAFence(t *testing.T) {
	y, s := guardedArchiveYard(t)
	worker := testenv.BrokerAs(t, s, access.Principal{Role: access.Worker, Name: "p"}, "/worker/w")
	sub := y.submit("over")
	archivedShapes["of two groups"](y, sub)
	y.acknowledge(1)
	if r, err := y.round(y.archiver(y.b, always)); err != nil || r.Batches != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	k := sub.Key()
	chain, err := worker.Item(t.Context(), k, "p", 0, 0)
	if err != nil || len(chain) == 0 {
		t.Fatalf("%d events, %v", len(chain), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = worker.Append(ctx, k, batch.ChainItem, "p", 0, chain[len(chain)-1].Seq, events.Claimed{Worker: "w"})
	if !errors.Is(err, broker.ErrConflict) {
		t.Errorf("a late claim: %v", err)
	}
}
