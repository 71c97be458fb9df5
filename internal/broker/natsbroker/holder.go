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

// prefixHolder starts the subject under which a worker is asked whether it still has a call: ty.holder.<pool>.<worker>.
const prefixHolder = "ty.holder."

// subjectHolder is where a worker is asked. One whose name has no pool in it, as those of older versions, has none
// there.
func subjectHolder(worker string) string {
	if pool := poolOf(worker); pool != broker.NoPool {
		return prefixHolder + pool + "." + broker.Escape(worker)
	}
	return prefixHolder + broker.Escape(worker)
}

// holderTimeout is how long a worker may take to say so. A worker that is gone is known at once: nobody listens.
const holderTimeout = 300 * time.Millisecond

type holding struct {
	Agent toolyard.Agent   `json:"agent"`
	Batch toolyard.BatchID `json:"batch"`
	Calls []int            `json:"calls"`
}

// Holds asks a worker whether it has any of some calls in its hands. answered is false when it does not say.
func (b *Broker) Holds(ctx context.Context, worker string, k toolyard.BatchKey, calls ...int) (has, answered bool,
	err error) {
	data, err := json.Marshal(holding{k.Agent, k.ID, calls})
	if err != nil {
		return false, false, fmt.Errorf("encode a question to worker %s: %w", worker, err)
	}
	ctx, cancel := context.WithTimeout(ctx, holderTimeout)
	defer cancel()
	m, err := b.askWorkers(ctx, poolOf(worker), subjectHolder(worker), data)
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, nats.ErrTimeout):
		return false, false, nil
	case err != nil:
		return false, false, fmt.Errorf("ask worker %s: %w", worker, err)
	}
	if err := json.Unmarshal(m.Data, &has); err != nil {
		return false, false, fmt.Errorf("worker %s answered unreadably: %w", worker, err)
	}
	return has, true, nil
}

// OnHolds answers for a worker whether it has a call in its hands, until the returned function is called.
func (b *Broker) OnHolds(worker string, has func(k toolyard.BatchKey, index int) bool,
	failed func(error)) (func() error, error) {
	answer := func(m *nats.Msg) {
		var q holding
		err := json.Unmarshal(m.Data, &q)
		var answer []byte
		if err == nil {
			k := toolyard.BatchKey{Agent: q.Agent, ID: q.Batch}
			answer, err = json.Marshal(slices.ContainsFunc(q.Calls, func(i int) bool { return has(k, i) }))
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
	// dispatchers of older versions ask there
	for _, subject := range slices.Compact([]string{subjectHolder(worker), prefixHolder + broker.Escape(worker)}) {
		sub, err := b.nc.Subscribe(subject, answer)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listen for questions about calls: %w", err), stop())
		}
		subs = append(subs, sub)
	}
	return stop, nil
}
