package dispatcher

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/membroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv"
)

// TestARefusalTakesThePlaceOfThePlan: a dispatcher that is slow would plan a batch, and another one, which does not
// know a tool that a rule names, refuses it meanwhile. Nothing of the batch runs.
func TestARefusalTakesThePlaceOfThePlan(t *testing.T) {
	inYard(t, func(y *yard) {
		y.Server.Hold(func(s membroker.Step) bool {
			return s.Party == "slow" &&
				(strings.Contains(s.What, "PUB ty.event.") || strings.Contains(s.What, "$JS.ACK."))
		})
		y.dispatcher("slow")
		y.settle()
		k := y.submitBatch(toolyard.Batch{Calls: []toolyard.Call{{Tool: "write"}},
			Options: toolyard.Options{Deny: []string{"read"}}})
		y.settle()
		y.dispatcher("quick", func(c *Config) {
			c.Base = nil
			for _, e := range y.entries() {
				if e.Name != "read" {
					c.Base = append(c.Base, registry.Entry(e))
				}
			}
		})
		y.Eventually("the batch is refused", func() bool {
			replies, err := y.b.Replies(y.Context(), k, 0)
			return err == nil && len(replies) == 1
		})
		y.Server.Hold(nil)
		y.settle()
		if s := y.fold(k); s.Plan != nil {
			y.Errorf("it was refused, and planned by %s", s.Owner)
		}
	})
}

// refusals counts refusals.
type refusals struct {
	Meter
	n int
}

func (r *refusals) Refused(int) { r.n++ }

// unanswered fails to answer a refusal so often.
type unanswered struct {
	Broker
	broker.SubmissionMessage
	fails int
}

func (u *unanswered) answer() error {
	if u.fails--; u.fails >= 0 {
		return errors.New("the server is away")
	}
	return nil
}

func (u *unanswered) Refuse(context.Context, events.Refused) error { return u.answer() }

func (u *unanswered) RefuseBehind(context.Context, toolyard.BatchKey, events.Refused) error {
	return u.answer()
}

// TestARefusalThatIsRepeatedCountsOnce: a refusal that cannot be stored is tried again, and counted when it is.
func TestARefusalThatIsRepeatedCountsOnce(t *testing.T) {
	for name, refuse := range map[string]func(context.Context, *Dispatcher, *unanswered) error{
		"a submission that is wrong": func(ctx context.Context, d *Dispatcher, u *unanswered) error {
			sub := &broker.Submission{SubmissionMessage: u}
			return d.refuse(ctx, &kept{log: d.log, sub: sub}, events.Refused{Status: 400})
		},
		"a submission that is lost": func(ctx context.Context, d *Dispatcher, u *unanswered) error {
			return d.tellWhoWaits(ctx, toolyard.BatchKey{}, events.Refused{Status: 500})
		},
	} {
		u, counted := &unanswered{fails: 3}, &refusals{}
		d := &Dispatcher{b: u, log: testenv.Log(t), cfg: Config{Meter: counted}}
		for range 3 {
			if err := refuse(t.Context(), d, u); err == nil {
				t.Fatalf("%s: it is answered", name)
			}
		}
		if err := refuse(t.Context(), d, u); err != nil || counted.n != 1 {
			t.Errorf("%s: %v, counted %d times", name, err, counted.n)
		}
	}
}
