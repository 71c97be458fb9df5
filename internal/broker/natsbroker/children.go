package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	rules "github.com/toolyard/toolyard/internal/submission"
)

// StartChild implements [broker.Children].
func (b *Broker) StartChild(ctx context.Context, c broker.ChildCall) error {
	if b.guest != nil {
		_, err := retry(ctx, func(ctx context.Context) (*nats.Msg, error) {
			return b.question(ctx, opChild, c, c.Input)
		})
		if refusedFor(err, codeBad) {
			return &toolyard.InputError{Problem: err.Error()}
		}
		return err
	}
	at, err := b.of(ctx, c.Of())
	if err != nil {
		return err
	}
	of, err := at.asSubmitted(ctx, c.Of())
	if err != nil {
		return err
	}
	sub, err := rules.Child(of.Submission, c.Parent, c.Tool, c.Input)
	if err != nil {
		return err
	}
	return b.Submit(ctx, sub)
}

// ChildResult implements [broker.Children].
func (b *Broker) ChildResult(ctx context.Context, agent toolyard.Agent, p toolyard.Parent) (*toolyard.Result, error) {
	if b.guest != nil {
		data, err := retry(ctx, func(ctx context.Context) ([]byte, error) {
			return b.guest.collect(ctx, b, opChildResult, broker.ChildCall{Agent: agent, Parent: p})
		})
		if err != nil || len(data) == 0 {
			return nil, err
		}
		var r *toolyard.Result
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, fmt.Errorf("a dispatcher answered unreadably: %w", err)
		}
		return r, nil
	}
	replies, err := b.RepliesFrom(ctx, toolyard.BatchKey{Agent: agent, ID: rules.ChildID(p)}, 0, 1)
	if err != nil || len(replies) == 0 {
		return nil, err
	}
	switch reply := replies[0].Body.(type) {
	case events.Refused:
		return refusedChild(reply), nil
	case events.Reply:
		if len(reply.Results) == 1 {
			return &reply.Results[0], nil
		}
	}
	return nil, fmt.Errorf("the first reply of batch %q has no result of its one call", rules.ChildID(p))
}

// statusBusy begins the HTTP statuses of refusals that may pass.
const statusBusy = 429

// refusedChild is the result of a call whose batch was refused: nothing of it ran.
func refusedChild(why events.Refused) *toolyard.Result {
	r := &toolyard.Result{IsError: true, Code: toolyard.InvalidArguments, Error: why.Detail}
	if why.Status >= statusBusy {
		r.Code, r.Retryable = toolyard.DependencyUnavailable, true
	}
	return r
}

// ofPool reads the question of a worker about a call of its pool that runs, or is queued. What makes calls is alone in
// its message: that has its index.
func (d *Answerer) ofPool(ctx context.Context, who access.Principal, m *nats.Msg) (c broker.ChildCall, err error) {
	if c, err = asked[broker.ChildCall](m); err != nil {
		return c, err
	}
	of := c.Of()
	runs, err := d.queuedAs(ctx, who.Name, of, strconv.Itoa(c.Parent.Call)+".*")
	if err == nil && !runs {
		err = refusal(codeNotYours, "%s have no call %d of batch %s", who, c.Parent.Call, of)
	}
	return c, err
}

// child submits a call that a worker's call makes. The dispatcher that gets the batch checks whether it may.
func (d *Answerer) child(ctx context.Context, who access.Principal, m *nats.Msg) error {
	c, err := d.ofPool(ctx, who, m)
	if err != nil {
		return err
	}
	c.Input = m.Data
	switch err := d.b.StartChild(ctx, c); {
	case errors.Is(err, broker.ErrOtherContent):
		return refusal(codeBad, "%v", err)
	case err != nil:
		if input, ok := errors.AsType[*toolyard.InputError](err); ok {
			return refusal(codeBad, "%v", input)
		}
		return err
	}
	return d.json(m, true)
}

// childResult answers with the result of such a call, or with nothing while there is none.
func (d *Answerer) childResult(ctx context.Context, who access.Principal, m *nats.Msg) error {
	c, err := d.ofPool(ctx, who, m)
	if err != nil {
		return err
	}
	r, err := d.b.ChildResult(ctx, c.Agent, c.Parent)
	if err != nil {
		return err
	}
	var data []byte
	if r != nil {
		if data, err = json.Marshal(r); err != nil {
			return err
		}
	}
	d.sendAll(m, data)
	return nil
}
