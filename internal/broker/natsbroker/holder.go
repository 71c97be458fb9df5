package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
)

// prefixHolder begins the subject under which a worker is asked whether it still has a call: ty.holder.<pool>.<worker>.
const prefixHolder = "ty.holder."

// subjectHolder is the subject of one worker. A worker without a pool in its name, as in older versions, has none in
// its subject.
func subjectHolder(worker string) string {
	if pool := poolOf(worker); pool != broker.NoPool {
		return prefixHolder + pool + "." + broker.Escape(worker)
	}
	return prefixHolder + broker.Escape(worker)
}

// holderTimeout bounds a worker's answer. If a worker is gone, this is known at once, because nobody listens.
const holderTimeout = 300 * time.Millisecond

type holding struct {
	Agent toolyard.Agent   `json:"agent"`
	Batch toolyard.BatchID `json:"batch"`
	Calls []int            `json:"calls"`
	// Tail asks for the end of the output of the first call instead.
	Tail bool `json:"tail,omitempty"`
}

// Holds asks a worker whether it has any of some calls. answered is false if it does not answer.
func (b *Broker) Holds(ctx context.Context, worker string, k toolyard.BatchKey, calls ...int) (has, answered bool,
	err error) {
	answered, err = b.askHolder(ctx, worker, holding{Agent: k.Agent, Batch: k.ID, Calls: calls}, &has)
	return has, answered, err
}

// OutputTail asks a worker for the end of the output of a background call. It is empty if the worker does not answer.
func (b *Broker) OutputTail(ctx context.Context, worker string, k toolyard.BatchKey, call int) (
	t broker.OutputTail, err error) {
	_, err = b.askHolder(ctx, worker, holding{Agent: k.Agent, Batch: k.ID, Calls: []int{call}, Tail: true}, &t)
	return t, err
}

// askHolder asks a worker about calls. answered is false if it does not answer.
func (b *Broker) askHolder(ctx context.Context, worker string, q holding, answer any) (answered bool, err error) {
	data, err := json.Marshal(q)
	if err != nil {
		return false, fmt.Errorf("encode a question to worker %s: %w", worker, err)
	}
	ctx, cancel := context.WithTimeout(ctx, holderTimeout)
	defer cancel()
	m, err := b.askWorkers(ctx, poolOf(worker), subjectHolder(worker), data)
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, nats.ErrTimeout):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("ask worker %s: %w", worker, err)
	}
	if err := json.Unmarshal(m.Data, answer); err != nil {
		return false, fmt.Errorf("worker %s answered unreadably: %w", worker, err)
	}
	return true, nil
}

// OnHolds answers for a worker whether it has a call, and how its output ends, until the returned function is called.
func (b *Broker) OnHolds(worker string, has func(k toolyard.BatchKey, index int) bool,
	tail func(k toolyard.BatchKey, index int) broker.OutputTail, failed func(error)) (func() error, error) {
	answer := func(m *nats.Msg) {
		var q holding
		err := json.Unmarshal(m.Data, &q)
		var answer []byte
		if err == nil {
			k := toolyard.BatchKey{Agent: q.Agent, ID: q.Batch}
			if q.Tail && len(q.Calls) > 0 {
				answer, err = json.Marshal(tail(k, q.Calls[0]))
			} else {
				answer, err = json.Marshal(slices.ContainsFunc(q.Calls, func(i int) bool { return has(k, i) }))
			}
		}
		if err == nil {
			err = m.Respond(answer)
		}
		if err != nil {
			failed(fmt.Errorf("say whether a call is held: %w", err))
		}
	}
	var subs []*nats.Subscription
	stop := func() (err error) {
		for _, s := range subs {
			err = errors.Join(err, s.Unsubscribe())
		}
		return err
	}
	// dispatchers of older versions use this subject
	for _, subject := range slices.Compact([]string{subjectHolder(worker), prefixHolder + broker.Escape(worker)}) {
		sub, err := b.nc.Subscribe(subject, answer)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listen for questions about calls: %w", err), stop())
		}
		subs = append(subs, sub)
	}
	return stop, nil
}
