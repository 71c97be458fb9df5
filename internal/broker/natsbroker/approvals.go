package natsbroker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/display"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/redact"
	"github.com/toolyard/toolyard/internal/schema"
)

// The list of approvals has a key for each call that waits for a person, written and taken out by the batch's owner. The
// call's own chain says whether it still waits: a decision is an append to it, and there is one.

// PutApproval puts a call on the list.
func (b *Broker) PutApproval(ctx context.Context, a broker.Approval) error {
	a.ID = broker.ApprovalID(a.Key(), a.Index)
	a.Facts, a.Context = nil, nil // they stand in the log
	value, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode approval %s: %w", a.ID, err)
	}
	if _, err := retry(ctx, func(ctx context.Context) (uint64, error) { return b.approvals.Put(ctx, a.ID, value) }); err != nil {
		return fmt.Errorf("list approval %s: %w", a.ID, err)
	}
	return nil
}

// DropApproval takes a call off the list. The mark of that expires, so that calls which were decided leave nothing
// behind.
func (b *Broker) DropApproval(ctx context.Context, k toolyard.BatchKey, index int) error {
	id := broker.ApprovalID(k, index)
	_, err := retry(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, b.approvals.Purge(ctx, id, jetstream.PurgeTTL(b.settings.WorkerTTL))
	})
	if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		return fmt.Errorf("take approval %s off the list: %w", id, err)
	}
	return nil
}

// Approvals returns the calls that wait, those that were asked about last first: of one agent, or of all when it is
// empty. A call whose owner died may be missing for as long as a takeover takes; one that is over may be there as long.
func (b *Broker) Approvals(ctx context.Context, agent toolyard.Agent) ([]broker.Approval, error) {
	keys := "*.*.*"
	if agent != "" {
		keys = broker.Escape(string(agent)) + ".*.*"
	}
	var out []broker.Approval
	err := list(ctx, b.approvals, keys, func(key string, _ uint64, a broker.Approval, bad error) bool {
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

// WatchApprovals calls see with each call on the list and with each change from then on, until ctx ends.
func (b *Broker) WatchApprovals(ctx context.Context, see func(broker.ApprovalChange)) error {
	return b.watchKeys(ctx, b.approvals, nil, keyWatch{
		see: func(e jetstream.KeyValueEntry) {
			c := broker.ApprovalChange{ID: e.Key()}
			var a broker.Approval
			if e.Operation() == jetstream.KeyValuePut && json.Unmarshal(e.Value(), &a) == nil && a.ID == c.ID {
				c.Approval = &a
			}
			see(c)
		},
		vanished: func(key string) { see(broker.ApprovalChange{ID: key}) },
		state:    func(broker.WatchState) {},
	})
}

// Asked reads from the log what a person is asked about a call. It wraps [ErrNoApproval] when nobody is, with the reason.
func (b *Broker) Asked(ctx context.Context, k toolyard.BatchKey, index int) (asked events.Waiting, pool toolyard.Pool, seq uint64, err error) {
	planned, err := b.plannedPools(ctx, k)
	if err != nil {
		return asked, "", 0, err
	}
	if index >= len(planned) {
		return asked, "", 0, fmt.Errorf("%w: call %d of %s has not asked for one", broker.ErrNoApproval, index, k)
	}
	pool = planned[index]
	m, ok, err := b.last(ctx, streamEvent, subjectChain(k, batch.ChainCall, pool, index))
	if err != nil {
		return asked, "", 0, err
	}
	if !ok {
		return asked, "", 0, fmt.Errorf("%w: call %d of %s has not asked for one", broker.ErrNoApproval, index, k)
	}
	_, r, _, err := b.record(ctx, m)
	if err != nil {
		return asked, "", 0, err
	}
	switch body := r.Body.(type) {
	case events.Waiting:
		return body, r.Pool, r.Seq, nil
	case events.Decided:
		return asked, "", 0, fmt.Errorf("%w: %s has decided %q about call %d of %s", broker.ErrNoApproval, body.By, body.Decision, index, k)
	case events.Finished:
		return asked, "", 0, fmt.Errorf("%w: call %d of %s has its result (%s)", broker.ErrNoApproval, index, k, cmp.Or(string(body.Result.Code), "ok"))
	}
	return asked, "", 0, fmt.Errorf("%w: call %d of %s does not wait", broker.ErrNoApproval, index, k)
}

// shownIs fails when a call waits with another input than the one that a person has seen. An empty hash stands for any.
func shownIs(sha256 string, asked events.Waiting) error {
	if sha256 == "" || sha256 == asked.InputSHA256 {
		return nil
	}
	return &toolyard.InputError{Field: "input_sha256", Problem: "the call does not wait with the input that was shown; look at it again"}
}

// Decide stores a person's decision about a call that waits, and wakes its batch. An approval is for the input that its hash
// names, or for the one that the call waits with; with another hash it is a [*toolyard.InputError]. It wraps [ErrNoApproval] when
// somebody was faster.
func (b *Broker) Decide(ctx context.Context, k toolyard.BatchKey, index int, d events.Decided) error {
	asked, pool, seq, err := b.Asked(ctx, k, index)
	if err != nil {
		return err
	}
	if d.Decision == events.Approve && d.Edited == "" {
		if err := shownIs(d.InputSHA256, asked); err != nil {
			return err
		}
		d.InputSHA256 = asked.InputSHA256
	}
	_, err = b.Append(ctx, k, batch.ChainCall, pool, index, seq, d)
	if errors.Is(err, broker.ErrConflict) {
		if _, _, _, again := b.Asked(ctx, k, index); again != nil {
			return again
		}
	}
	if err != nil {
		return err
	}
	_, err = b.WakeIfParked(ctx, k)
	return err
}

// Approve stores a person's approval of a call that waits, with another input if one is given: it is checked again before
// it runs. The decision's hash is that of the input that the person has seen, as with [Broker.Decide]. What cannot be shown
// whole is approved with another input only. An approval that the session is to remember is written there behind it; what
// was changed cannot be remembered. An input that is no JSON is a [*toolyard.InputError].
func (b *Broker) Approve(ctx context.Context, k toolyard.BatchKey, index int, d events.Decided, input json.RawMessage) error {
	asked, pool, _, err := b.Asked(ctx, k, index)
	if err != nil {
		return err
	}
	if err := shownIs(d.InputSHA256, asked); err != nil {
		return err
	}
	if len(input) == 0 && display.Cut(string(asked.Input)) {
		return &toolyard.InputError{Field: "input",
			Problem: "the call's input is too long to be shown whole: nobody has seen what would run; deny the call, or approve it with an input"}
	}
	d.Decision = events.Approve
	if len(input) > 0 {
		v, err := schema.Parse(input)
		if err != nil {
			return &toolyard.InputError{Field: "input", Problem: err.Error()}
		}
		if d.Remember != "" {
			return &toolyard.InputError{Field: "remember", Problem: "a changed input cannot be remembered: approve it as it is, or this once"}
		}
		if redact.Marked(string(v.Canonical())) {
			return &toolyard.InputError{Field: "input", Problem: "it has the mark of a secret that was taken out, and would run as it stands there: " +
				"write it anew without, or approve the call as it is, with its secret"}
		}
		if d.Edited, err = b.PutInput(ctx, k.Agent, v.Canonical()); err != nil {
			return err
		}
		d.InputSHA256 = v.Hash()
	}
	switch d.Remember {
	case "":
	case broker.RememberSession:
		if asked.Remember == "" {
			return &toolyard.InputError{Field: "remember", Problem: "this call cannot be remembered"}
		}
	default:
		return &toolyard.InputError{Field: "remember", Problem: fmt.Sprintf("is %q; use %q, or leave it out", d.Remember, broker.RememberSession)}
	}
	if d.Edited != "" { // last, since it takes time: an edit that cannot run must not use up the approval
		if err := b.checkEdit(ctx, k, index, pool, d); err != nil {
			return err
		}
	}
	if err := b.Decide(ctx, k, index, d); err != nil || d.Remember == "" {
		return err
	}
	m, ok, err := b.last(ctx, streamBatch, subjectBatch(k))
	if err == nil && !ok {
		err = fmt.Errorf("%w: %s", broker.ErrNoBatch, k)
	}
	s := batch.State{Key: k}
	if err == nil {
		err = b.applyRaw(ctx, &s, m)
	}
	if err == nil {
		_, err = b.ChangeSession(ctx, k.Agent, s.Submission.Session, func(s *broker.Session) { s.Remember(asked.Remember) })
	}
	if err != nil {
		return fmt.Errorf("the call is approved, but the session does not remember it: %w", err)
	}
	return nil
}

// checkEdit asks a worker whether a call could run as a person has changed it.
func (b *Broker) checkEdit(ctx context.Context, k toolyard.BatchKey, index int, pool toolyard.Pool, d events.Decided) error {
	s, err := b.Look(ctx, k)
	if err != nil {
		return err
	}
	if s.Plan == nil || index >= len(s.Plan.Calls) {
		return fmt.Errorf("%w: call %d of %s is not planned", broker.ErrNoApproval, index, k)
	}
	return b.check(ctx, pool, s.Request(index, &events.Approved{By: d.By, InputSHA256: d.InputSHA256, Input: d.Edited}))
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
