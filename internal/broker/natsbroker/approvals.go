package natsbroker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// The list of approvals has a key for each call that waits for a person. The batch's owner writes and removes it. The
// call's own chain decides whether it still waits: a decision is an append to it, and only one can succeed.

// PutApproval adds a call to the list, or puts its question in the place of an earlier one.
func (b *Broker) PutApproval(ctx context.Context, a broker.Approval) error {
	b, err := b.of(ctx, a.Key())
	if err != nil {
		return err
	}
	a.ID = broker.ApprovalID(a.Key(), a.Index)
	a.Facts, a.Context = nil, nil // they are in the log
	value, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode approval %s: %w", a.ID, err)
	}
	err = b.changeApproval(ctx, a.ID, a.AskedAt, func(ctx context.Context, revision uint64) error {
		_, err := replace(ctx, b.approvals, a.ID, value, revision)
		return err
	})
	if err != nil {
		return fmt.Errorf("list approval %s: %w", a.ID, err)
	}
	return nil
}

// DropApproval removes a call from the list, unless it asks something later there. The marker of the removal expires,
// so that decided calls leave nothing behind.
func (b *Broker) DropApproval(ctx context.Context, k toolyard.BatchKey, index int, asked time.Time) error {
	b, err := b.of(ctx, k)
	if err != nil {
		return err
	}
	id := broker.ApprovalID(k, index)
	err = b.changeApproval(ctx, id, asked, func(ctx context.Context, revision uint64) error {
		if revision == 0 {
			return nil
		}
		return b.approvals.Purge(ctx, id, jetstream.LastRevision(revision), jetstream.PurgeTTL(b.Settings().WorkerTTL))
	})
	if err != nil {
		return fmt.Errorf("take approval %s off the list: %w", id, err)
	}
	return nil
}

// changeApproval changes what the list has of a call, with a compare-and-set, for a question that was asked at a time.
// Whoever does it may have stood still since it looked: a later question stays. Revision 0: the call is not listed.
func (b *Broker) changeApproval(ctx context.Context, id string, asked time.Time,
	change func(ctx context.Context, revision uint64) error) error {
	for pause := firstPause / 10; ; {
		was, _, revision, err := load[broker.Approval](ctx, b.approvals, id)
		if err != nil && revision == 0 { // what is there and cannot be read is replaced
			return err
		}
		if err == nil && was.AskedAt.After(asked) {
			return nil
		}
		began := time.Now()
		_, err = ask(ctx, func(ctx context.Context, _ int) (struct{}, error) {
			return struct{}{}, change(ctx, revision)
		})
		if err == nil {
			return nil
		}
		again, verdict := classify(err)
		if !again && !errors.Is(verdict, broker.ErrConflict) && !errors.Is(err, jetstream.ErrKeyExists) {
			return verdict
		}
		if err := b.unchangeable(ctx, b.approvals, id, revision, began, verdict); err != nil {
			return err
		}
		if err := wait(ctx, &pause); err != nil {
			return err
		}
	}
}

// Approvals returns the waiting calls, newest first: of one agent, or of all if agent is empty. If an owner dies, a
// call may be missing, or may still be listed, until another has taken the batch over.
func (b *Broker) Approvals(ctx context.Context, agent toolyard.Agent) ([]broker.Approval, error) {
	each, err := b.all(ctx)
	if err != nil {
		return nil, err
	}
	var out []broker.Approval
	if len(each) > 1 {
		for _, one := range each {
			some, err := one.Approvals(ctx, agent)
			if err != nil {
				return nil, err
			}
			out = append(out, some...)
		}
		slices.SortStableFunc(out, func(a, b broker.Approval) int { return b.AskedAt.Compare(a.AskedAt) })
		return out[:min(len(out), broker.MaxApprovals)], nil
	}
	err = list(ctx, b.approvals, approvalsOf(agent), func(key string, _ uint64, a broker.Approval, bad error) bool {
		if len(out) == 2*broker.MaxApprovals {
			out = slices.Delete(out, 0, broker.MaxApprovals)
		}
		if bad == nil && a.ID == key {
			out = append(out, a)
		}
		return true
	})
	slices.Reverse(out)
	slices.SortStableFunc(out, func(a, b broker.Approval) int { return b.AskedAt.Compare(a.AskedAt) })
	return out[:min(len(out), broker.MaxApprovals)], err
}

// approvalsOf are the keys of the calls of an agent, or of all agents if it is empty.
func approvalsOf(agent toolyard.Agent) string {
	if agent == "" {
		return "*.*.*"
	}
	return broker.Escape(string(agent)) + ".*.*"
}

// CountApprovals returns how many calls wait, as [Broker.Approvals] lists them, without reading them.
func (b *Broker) CountApprovals(ctx context.Context, agent toolyard.Agent) (n int, err error) {
	each, err := b.all(ctx)
	if err != nil {
		return 0, err
	}
	for _, one := range each {
		err := entries(ctx, one.approvals, approvalsOf(agent), func(jetstream.KeyValueEntry) bool {
			n++
			return n < broker.MaxApprovals
		}, jetstream.MetaOnly())
		if err != nil || n >= broker.MaxApprovals {
			return n, err
		}
	}
	return n, nil
}

// WatchApprovals calls see with each call on the list and with each later change, until ctx ends.
func (b *Broker) WatchApprovals(ctx context.Context, see func(broker.ApprovalChange)) error {
	return b.watchEach(ctx, func(ctx context.Context, one *Broker, seeing sync.Locker) error {
		return one.watchApprovals(ctx, func(c broker.ApprovalChange) {
			seeing.Lock()
			defer seeing.Unlock()
			see(c)
		})
	})
}

func (b *Broker) watchApprovals(ctx context.Context, see func(broker.ApprovalChange)) error {
	return b.watchKeys(ctx, b.approvals, nil, keyWatch{
		see: func(e jetstream.KeyValueEntry) {
			c := broker.ApprovalChange{ID: e.Key(), Shard: b.shard}
			var a broker.Approval
			if e.Operation() == jetstream.KeyValuePut && json.Unmarshal(e.Value(), &a) == nil && a.ID == c.ID {
				c.Approval = &a
			}
			see(c)
		},
		vanished: func(key string) { see(broker.ApprovalChange{ID: key, Shard: b.shard}) },
		state:    func(broker.WatchState) {},
	})
}

// decidedError is a [broker.ErrDecided] that reads as the [broker.ErrNoApproval] it comes with.
type decidedError struct{ error }

func (e decidedError) Unwrap() []error { return []error{e.error, broker.ErrDecided} }

// Asked reads from the log what a person is asked about a call, and where the decision goes: the call's pool and item,
// and the end of the item's chain. If the call does not wait, it wraps [broker.ErrNoApproval] with the reason, and
// [broker.ErrDecided] too if that is a decision.
func (b *Broker) Asked(ctx context.Context, k toolyard.BatchKey, index int) (asked events.Waiting, at broker.ItemEnd,
	err error) {
	b, err = b.of(ctx, k)
	if err != nil {
		return asked, at, err
	}
	call := fmt.Sprintf("call %d of %s", index, k)
	none := func(why string) (events.Waiting, broker.ItemEnd, error) {
		return events.Waiting{}, broker.ItemEnd{}, fmt.Errorf("%w: %s", broker.ErrNoApproval, why)
	}
	planned, err := b.plannedCalls(ctx, k)
	if err != nil {
		return asked, at, err
	}
	// That it has not asked takes the call off the list, and a server may answer as if it had no messages.
	if index >= len(planned) {
		if err := b.chainLost(ctx, subjectChain(k, batch.ChainBatch, "", 0)); err != nil {
			return asked, at, err
		}
		return none(call + " has not asked for one")
	}
	at = broker.ItemEnd{Pool: planned[index].pool, Item: planned[index].item}
	records, err := b.Item(ctx, k, at.Pool, at.Item, 0)
	if err != nil {
		return asked, at, err
	}
	var last events.Body // about this call
	for _, r := range records {
		at.Seq = r.Seq
		if slices.Contains(r.Calls(), index) {
			last = r.Body
		}
	}
	switch body := last.(type) {
	case nil:
		if err := b.chainLost(ctx, subjectChain(k, batch.ChainItem, at.Pool, at.Item)); err != nil {
			return asked, at, err
		}
		return none(call + " has not asked for one")
	case events.Waiting:
		return body, at, nil
	case events.Decided:
		_, _, err := none(fmt.Sprintf("%s has decided %q about %s", body.By, body.Decision, call))
		return asked, at, decidedError{err}
	case events.Finished:
		for _, res := range body.Results() {
			if res.Index == index {
				return none(fmt.Sprintf("%s has its result (%s)", call, cmp.Or(string(res.Code), "ok")))
			}
		}
	}
	return none(call + " does not wait")
}

// PutInput stores an input that a hook or a person has changed, for one agent's calls, and returns its reference.
func (b *Broker) PutInput(ctx context.Context, agent toolyard.Agent, input []byte) (ref string, err error) {
	name := objectName("input."+broker.Escape(string(agent)), input)
	if err := b.putObject(ctx, name, input); err != nil {
		return "", err
	}
	return name[strings.LastIndexByte(name, '.')+1:], nil
}

// ChangedInput reads what [Broker.PutInput] stored.
func (b *Broker) ChangedInput(ctx context.Context, agent toolyard.Agent, ref string) ([]byte, error) {
	if len(ref) != 64 || broker.Escape(ref) != ref {
		return nil, fmt.Errorf("%q is no reference of an input", ref)
	}
	return b.getObject(ctx, "input."+broker.Escape(string(agent))+"."+ref)
}
