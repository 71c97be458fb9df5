package natsbroker

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker"
)

// Background has a dispatcher do what an open call of a pool says about background calls.
func (b *Broker) Background(ctx context.Context, pool toolyard.Pool, q broker.BackgroundAsk) (
	a broker.BackgroundAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	m, err := questionMsg(ctx, opBackground, q, nil)
	if err != nil {
		return a, err
	}
	if b.guest == nil { // the server adds this to what guests ask
		m.Subject = prefixAsk + string(access.Worker) + "." + string(pool) + "." + string(opBackground)
	}
	answer, err := b.askDispatcher(ctx, m)
	if err != nil {
		return a, fmt.Errorf("ask a dispatcher about background calls: %w", err)
	}
	if err := json.Unmarshal(answer.Data, &a); err != nil {
		return a, fmt.Errorf("a dispatcher answered unreadably: %w", err)
	}
	return a, nil
}

// askDispatcher sends a question until a dispatcher answers it: while they are started anew nobody does, or one that
// is being stopped says so, and one that dies with the question says nothing. The question is one that may be repeated.
func (b *Broker) askDispatcher(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	for pause := firstPause; ; {
		answer, err := ask(ctx, func(ctx context.Context, _ int) (*nats.Msg, error) {
			a, err := b.nc.RequestMsgWithContext(ctx, m)
			if err != nil {
				return nil, err
			}
			return a, problem(a)
		})
		if err == nil || !MayPass(err) {
			return answer, err
		}
		if wait(ctx, &pause) != nil {
			return nil, err
		}
	}
}

// forBackground answers a worker what its dispatcher has done for one of its calls.
func (d *Answerer) forBackground(ctx context.Context, who access.Principal, m *nats.Msg) error {
	q, err := asked[broker.BackgroundAsk](m)
	if err != nil {
		return err
	}
	a, err := d.background(ctx, toolyard.Pool(who.Name), q)
	if err != nil {
		return err
	}
	return d.json(m, a)
}
