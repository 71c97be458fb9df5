package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// The limits of requests to judge.
const (
	maxJudgeCalls    = 250 // calls of one request, so that the answer fits a message
	maxJudgeRequests = 64  // requests that a worker answers in parallel
)

// Check asks a worker of a pool whether a call could run with another input.
func (b *Broker) Check(ctx context.Context, pool toolyard.Pool, r events.Requested) (broker.Judged, error) {
	return b.check(ctx, pool, broker.JudgeCall{Check: &r})
}

// DryRun asks a worker of a pool what would happen to the one call of a request.
func (b *Broker) DryRun(ctx context.Context, pool toolyard.Pool, r events.Requested) (broker.Judged, error) {
	return b.check(ctx, pool, broker.JudgeCall{Check: &r, DryRun: true})
}

func (b *Broker) check(ctx context.Context, pool toolyard.Pool, c broker.JudgeCall) (broker.Judged, error) {
	ctx, cancel := context.WithTimeout(ctx, broker.CheckWait)
	defer cancel()
	answers, err := b.judge(ctx, pool, []broker.JudgeCall{c})
	if err != nil || len(answers) != 1 {
		return broker.Judged{}, err
	}
	return answers[0], nil
}

// Judge asks workers of a pool, with parallel requests that each fit a message, and returns one answer for each call.
// The failure of a request is recorded for its own calls, and in the error.
func (b *Broker) Judge(ctx context.Context, pool toolyard.Pool, calls []broker.JudgeCall) ([]broker.Judged, error) {
	ctx, cancel := context.WithTimeout(ctx, b.Settings().JudgeWait())
	defer cancel()
	requests, answers, errs := b.judgeAll(ctx, pool, calls)
	var out []broker.Judged
	for i, request := range requests {
		said := map[int]broker.Judged{}
		for _, j := range answers[i] {
			said[j.Index] = j
		}
		for _, c := range request {
			j, ok := said[c.Index]
			switch {
			case errs[i] != nil:
				j = broker.Judged{Index: c.Index, Failed: errs[i].Error()}
			case !ok:
				j = broker.Judged{Index: c.Index,
					Failed: "the worker that was asked does not have the tool as it was offered"}
			}
			out = append(out, j)
		}
	}
	return out, errors.Join(errs...)
}

// Repair asks workers of a pool for inputs that their program's own repair makes, with parallel requests.
func (b *Broker) Repair(ctx context.Context, pool toolyard.Pool, calls []broker.JudgeCall) ([]broker.Judged, error) {
	ctx, cancel := context.WithTimeout(ctx, broker.RepairWait)
	defer cancel()
	_, answers, errs := b.judgeAll(ctx, pool, calls)
	return slices.Concat(answers...), errors.Join(errs...)
}

// judgeAll splits calls into requests, sends them in parallel, and returns the answer to each, or why there is none.
func (b *Broker) judgeAll(ctx context.Context, pool toolyard.Pool, calls []broker.JudgeCall,
) (requests [][]broker.JudgeCall, answers [][]broker.Judged, errs []error) {
	requests = judgeRequests(calls)
	answers, errs = make([][]broker.Judged, len(requests)), make([]error, len(requests))
	var asking sync.WaitGroup
	for i, request := range requests {
		asking.Go(func() { answers[i], errs[i] = b.judge(ctx, pool, request) })
	}
	asking.Wait()
	return requests, answers, errs
}

// judgeRequests splits calls into requests that fit a message. A call that is too long by itself gets its own request,
// which fails.
func judgeRequests(calls []broker.JudgeCall) (out [][]broker.JudgeCall) {
	const (
		around  = 256 // bytes of a call's other fields, and of the JSON around them
		escaped = 6   // bytes of JSON that a byte of a text may need
	)
	size, from := 0, 0
	for i, c := range calls {
		n := len(c.Input) + (len(c.Tool)+len(c.Repair))*escaped + len(c.Declaration) + around
		if i > from && (size+n > broker.MaxInlineBytes || i-from == maxJudgeCalls) {
			out, size, from = append(out, calls[from:i]), 0, i
		}
		size += n
	}
	if from < len(calls) {
		out = append(out, calls[from:])
	}
	return out
}

func (b *Broker) judge(ctx context.Context, pool toolyard.Pool, calls []broker.JudgeCall) ([]broker.Judged, error) {
	data, err := json.Marshal(calls)
	if err != nil {
		return nil, fmt.Errorf("encode a request to judge: %w", err)
	}
	if len(data) > broker.MaxInlineBytes {
		return nil, fmt.Errorf("the input to judge has %d bytes; at most %d are sent", len(data), broker.MaxInlineBytes)
	}
	m, err := b.askWorkers(ctx, string(pool), prefixJudge+string(pool), data)
	if err != nil {
		return nil, fmt.Errorf("ask a worker of pool %q to judge: %w", pool, err)
	}
	var out []broker.Judged
	if err := json.Unmarshal(m.Data, &out); err != nil {
		return nil, fmt.Errorf("a worker of pool %q judged unreadably: %w", pool, err)
	}
	return out, nil
}

// OnJudge answers requests to judge, beside the pool's other workers, until the returned function is called, which
// waits for those that are being answered. judge does not panic, and returns soon after its context ended.
func (b *Broker) OnJudge(pool toolyard.Pool, judge func(context.Context, []broker.JudgeCall) []broker.Judged,
	failed func(error)) (func() error, error) {
	var answering sync.WaitGroup
	judging, checking := make(chan struct{}, maxJudgeRequests), make(chan struct{}, broker.MaxChecks)
	sub, err := b.nc.QueueSubscribe(prefixJudge+string(pool), "workers", func(m *nats.Msg) {
		var calls []broker.JudgeCall
		if err := json.Unmarshal(m.Data, &calls); err != nil {
			failed(fmt.Errorf("judge calls: %w", err))
			return
		}
		places, within := judging, b.Settings().JudgeTimeout()
		if slow := slowest(calls); slow > 0 { // batches wait for judgements, but not for these
			if places, within = checking, slow; len(checking) == broker.MaxChecks {
				failed(errors.New("too many inputs are checked or repaired at a time; one request is left"))
				return
			}
		}
		places <- struct{}{} // each is held for as long as a request may take
		answering.Go(func() {
			defer func() { <-places }()
			ctx, cancel := context.WithTimeout(context.Background(), within)
			defer cancel()
			answer, err := json.Marshal(judge(ctx, calls))
			if err == nil {
				err = m.Respond(answer)
			}
			if err != nil {
				failed(fmt.Errorf("judge calls: %w", err))
			}
		})
	})
	if err != nil {
		return nil, fmt.Errorf("listen for requests to judge: %w", err)
	}
	return func() error {
		err := sub.Unsubscribe()
		answering.Wait()
		return err
	}, nil
}

// slowest is how long a request may take that asks for more than judgements. 0: it asks for these.
func slowest(calls []broker.JudgeCall) time.Duration {
	switch {
	case len(calls) == 1 && calls[0].Check != nil:
		return broker.CheckWait
	case len(calls) > 0 && calls[0].Repair != "":
		return broker.RepairTimeout
	}
	return 0
}
