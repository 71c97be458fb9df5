package dispatcher

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/approval"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// slowStore is a store in which something happens while an answer is being stored.
type slowStore struct {
	*natsbroker.Broker
	meanwhile func()
}

func (s *slowStore) PutInput(ctx context.Context, a toolyard.Agent, input []byte) (string, error) {
	ref, err := s.Broker.PutInput(ctx, a, input)
	if m := s.meanwhile; m != nil {
		s.meanwhile = nil
		m()
	}
	return ref, err
}

// TestAnAnswerToAnotherQuestion: while ann's answer to the first question is being stored, bob answers it, and the tool
// asks a second question. Ann's answer is not one to that.
func TestAnAnswerToAnotherQuestion(t *testing.T) {
	for _, form := range []bool{false, true} {
		inYard(t, func(y *yard) {
			y.dispatcher("d")
			k := y.submit("write")
			ask := func(d *broker.Delivery, title, hash string) {
				seq := y.claim(d, "w")
				ask := events.Waiting{Worker: "w", Input: json.RawMessage(`{"sure":true}`), InputSHA256: hash, Reason: title}
				if form {
					ask.Form = &events.Form{Form: toolyard.Form{Schema: json.RawMessage(
						`{"type":"object","properties":{"sure":{"type":"boolean"}},"required":["sure"]}`)},
						CallSHA256: "cc", Key: title}
				}
				body := events.Body(ask)
				if !form { // a hook has changed the input of the next attempt
					rec, err := y.b.Append(y.Context(), k, batch.ChainItem, toolyard.DefaultPool, 0, seq,
						events.AttemptFailed{Worker: "w", Attempt: d.Calls[0].Attempt,
							Code: toolyard.DependencyUnavailable, Reason: "x"})
					must.OK(y.T, err)
					seq = rec.Seq
				}
				if _, err := y.b.Append(y.Context(), k, batch.ChainItem, toolyard.DefaultPool, 0, seq,
					body); err != nil {
					y.Fatal(err)
				}
			}
			ask(y.take(toolyard.WriteExclusive), "delete the draft", "11")
			y.Eventually("it waits", func() bool { return y.fold(k).Calls[0].Status == batch.Waiting })
			s := &slowStore{Broker: y.b}
			s.meanwhile = func() {
				must.OK(y.T, approval.Approve(y.Context(), y.b, k, 0, events.Decided{By: "bob", InputSHA256: "11"},
					map[bool]json.RawMessage{true: json.RawMessage(`{"sure":true}`)}[form]))
				ask(y.take(toolyard.WriteExclusive), "delete the production database", "22")
			}
			// The form that ann was shown had the hash 11.
			err := approval.Approve(y.Context(), checked{s}, k, 0, events.Decided{By: "ann", InputSHA256: "11"},
				json.RawMessage(`{"sure":true}`))
			c := y.fold(k).Calls[0]
			y.Logf("form %t: %v %+v", form, err, c.Decision)
			if err == nil && c.Decision != nil && c.Decision.By == "ann" {
				y.Errorf("form %t: ann's answer to %q was stored as one to %q", form, "delete the draft",
					c.Asked.Reason)
			}
		})
	}
}

// checked says that every edit can run.
type checked struct{ *slowStore }

func (checked) Check(context.Context, toolyard.Pool, events.Requested) (broker.Judged, error) {
	return broker.Judged{Checked: true}, nil
}

// leavingStore is a store whose user goes away when a decision is stored.
type leavingStore struct {
	*natsbroker.Broker
	leave func()
}

func (s leavingStore) Append(ctx context.Context, k toolyard.BatchKey, c batch.Chain, p toolyard.Pool, item int,
	expected uint64, body events.Body) (batch.Record, error) {
	rec, err := s.Broker.Append(ctx, k, c, p, item, expected, body)
	s.leave()
	return rec, err
}

// TestWhoeverDecidesGoesAway: a decision that is stored is all there, also when whoever made it waits no longer: the
// session remembers it, and the batch is woken, and not found by a sweep.
func TestWhoeverDecidesGoesAway(t *testing.T) {
	inYard(t, func(y *yard) {
		d := y.dispatcher("d")
		k := y.submit("write")
		at := y.take(toolyard.WriteExclusive)
		if _, err := y.b.Append(y.Context(), k, batch.ChainItem, toolyard.DefaultPool, at.Item, at.Expected,
			events.Waiting{Worker: "w", Input: json.RawMessage("{}"), InputSHA256: "11",
				Remember: "write"}); err != nil {
			y.Fatal(err)
		}
		must.OK(y.T, at.Done())
		y.Eventually("the batch is parked", func() bool { return y.fold(k).Parked })
		d.End()
		ctx, leave := context.WithCancel(y.Context())
		if err := approval.Approve(ctx, leavingStore{y.b, leave}, k, 0, events.Decided{By: "ann",
			Remember: approval.RememberSession}, nil); err != nil {
			y.Errorf("the approval: %v", err)
		}
		s, err := y.b.Session(y.Context(), k.Agent, y.fold(k).Submission.Session)
		if err != nil || !slices.Equal(s.Remembered, []string{"write"}) {
			y.Errorf("the session remembers %q, %v", s.Remembered, err)
		}
		y.dispatcher("e")
		began := time.Now()
		y.Eventually("the batch goes on", func() bool { return !y.fold(k).Parked })
		if took := time.Since(began); took > missedEvery/2 {
			y.Errorf("the batch went on after %s", took)
		}
	})
}
