package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/approval"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/registry"
)

// Options say how a client is on a NATS system. The zero value is fine.
type Options struct {
	// Name is who the client is in the events that it stores: their source is /client/NAME. Empty: a name of its own.
	Name string
	// Check looks at calls before they are stored; from is the index of the first in its batch. An error refuses them,
	// and should be a [*toolyard.InputError]. Nil: every call is stored.
	Check func(from int, calls []toolyard.Call) error
}

// Connect makes a client on a connection, which stays the caller's to close. It makes nothing on the NATS system:
// [ErrNoSystem] says that no dispatcher has ever run there.
func Connect(ctx context.Context, nc *nats.Conn, o Options) (*Client, error) {
	if o.Name == "" {
		o.Name = broker.NewID()
	}
	if err := toolyard.CheckName("name", o.Name); err != nil {
		return nil, err
	}
	b, err := natsbroker.Attach(ctx, nc, "/client/"+url.PathEscape(o.Name))
	if err != nil {
		return nil, fmt.Errorf("connect to Toolyard: %w", err)
	}
	if o.Check == nil {
		o.Check = func(int, []toolyard.Call) error { return nil }
	}
	return &Client{overNATS{follow.New(b, follow.Options{}), b, o.Check}}, nil
}

// overNATS reaches the streams themselves.
type overNATS struct {
	*follow.Reader
	b     store
	check func(from int, calls []toolyard.Call) error
}

// platformOnly refuses what the credentials of an agent do not reach.
func (t overNATS) platformOnly(what string) error {
	if who := t.b.Who(); who.Role != "" {
		return fmt.Errorf("the credentials of %s reach its own batches; who %s needs those of an operator, or HTTP",
			who, what)
	}
	return nil
}

func (overNATS) whose(a toolyard.Agent) toolyard.Agent { return cmp.Or(a, toolyard.DefaultAgent) }

func (t overNATS) submit(ctx context.Context, b toolyard.Batch) (toolyard.BatchKey, error) {
	b.Agent = t.whose(b.Agent)
	if err := t.check(0, b.Calls); err != nil {
		return b.Key(), err
	}
	return b.Key(), t.b.Submit(ctx, b)
}

func (t overNATS) results(ctx context.Context, k toolyard.BatchKey, stored time.Time,
	yield func(toolyard.Result) bool) error {
	if stored.IsZero() {
		if err := t.find(ctx, k); err != nil {
			return err
		}
	}
	for reply, err := range t.NewReplies(ctx, k, stored) {
		if err != nil {
			return known(err)
		}
		for _, r := range reply.Results {
			if !yield(r) {
				return errLeft
			}
		}
	}
	return nil
}

// find says at once that there is no such batch. Where something is lost, the rest can be told.
func (t overNATS) find(ctx context.Context, k toolyard.BatchKey) error {
	if err := t.Find(ctx, k); !errors.Is(err, ErrDamaged) {
		return err
	}
	return nil
}

// refused is a refusal as it stands in the log.
func refused(r events.Refused) *RefusedError {
	return &RefusedError{Status: r.Status, Field: r.Field, Detail: r.Detail}
}

// known is an error in this package's words.
func known(err error) error {
	if r, ok := errors.AsType[*follow.RefusedError](err); ok {
		return refused(r.Refused)
	}
	return err
}

func (t overNATS) progress(ctx context.Context, k toolyard.BatchKey, stored time.Time,
	yield func(Progress) bool) error {
	if stored.IsZero() { // otherwise the first report may be gone before the answer comes
		if err := t.find(ctx, k); err != nil {
			return err
		}
	}
	return progressOf(t.Progress(ctx, k), yield)
}

func (t overNATS) listen(ctx context.Context, k toolyard.BatchKey) (*follow.Listening, error) {
	return t.Listen(ctx, k)
}

// progressOf yields reports one by one.
func progressOf(all iter.Seq2[[]follow.Report, error], yield func(Progress) bool) error {
	for reports, err := range all {
		if err != nil {
			return known(err)
		}
		for _, p := range reports {
			out := Progress{p.Index, p.CallID, p.Tool, p.Worker, p.Attempt, p.Progress, p.LostBytes, nil}
			if p.Waiting != nil {
				out = Progress{Index: p.Index, Waiting: &Waiting{p.Waiting.Running, p.Waiting.Waiting}}
			}
			if !yield(out) {
				return errLeft
			}
		}
	}
	return nil
}

func (t overNATS) view(ctx context.Context, k toolyard.BatchKey) (toolyard.BatchView, error) {
	s, err := t.Look(ctx, k)
	if err != nil {
		return toolyard.BatchView{}, err
	}
	return s.View(), nil
}

func (t overNATS) follow(ctx context.Context, k toolyard.BatchKey, live bool, see func(logged) error) error {
	for stored, err := range t.Events(ctx, k, follow.From{}, live, nil) {
		if err != nil {
			return err
		}
		for _, e := range stored {
			if err := see(logged{e.Record, e.Data}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t overNATS) subscribe(ctx context.Context, agent toolyard.Agent) (func(func(Event) bool) error, error) {
	stored, leave, err := t.Everything(ctx, agent)
	if err != nil {
		return nil, err
	}
	unneeded := context.AfterFunc(ctx, leave)
	return func(yield func(Event) bool) error {
		defer leave()
		defer unneeded()
		for all, err := range stored {
			if err != nil {
				return err
			}
			for _, h := range all {
				e := Event{Time: h.Time, Gap: h.Gap}
				if h.Gap == "" {
					e = eventOf(h.Key, logged{h.Record, h.Data}, nil)
				}
				if !yield(e) {
					return errLeft
				}
			}
		}
		return nil
	}, nil
}

func (t overNATS) cancel(ctx context.Context, k toolyard.BatchKey, reason string, calls []int) error {
	return t.b.Cancel(ctx, k, reason, calls...)
}

func (t overNATS) approvals(ctx context.Context, agent toolyard.Agent) ([]Approval, error) {
	if err := t.platformOnly("lists approvals"); err != nil {
		return nil, err
	}
	list, err := t.b.Approvals(ctx, agent)
	if err != nil {
		return nil, err
	}
	out := make([]Approval, len(list))
	for i, a := range list {
		out[i] = Approval{
			ID: a.ID, Agent: a.Agent, Batch: a.Batch, Index: a.Index, Session: a.Session, Workspace: a.Workspace,
			CallID: a.CallID, Tool: a.Tool,
			Class: a.Class, Destructive: a.Destructive, Reason: a.Reason, Source: a.Source, Input: a.Input,
			InputSHA256: a.InputSHA256,
			Diff:        a.Diff, Remember: a.Remember, AskedAt: a.AskedAt, Expires: a.Expires,
		}
		if a.Form != nil {
			out[i].Form = &a.Form.Form
		}
	}
	return out, nil
}

func (t overNATS) decide(ctx context.Context, id string, d Decision) error {
	if err := t.platformOnly("decides"); err != nil {
		return err
	}
	if err := toolyard.CheckName("by", d.By); err != nil {
		return err
	}
	k, index, err := broker.ParseApprovalID(id)
	if err != nil {
		return err
	}
	decided := events.Decided{By: d.By, Reason: d.Reason, InputSHA256: d.InputSHA256}
	if d.Verdict == Deny {
		decided.Decision = events.Reject
		return approval.Decide(ctx, t.b, k, index, decided)
	}
	if d.ForSession {
		decided.Remember = approval.RememberSession
	}
	if err := t.check(index, []toolyard.Call{{Input: d.Input}}); d.Input != nil && err != nil {
		return err
	}
	return approval.Approve(ctx, t.b, k, index, decided, d.Input)
}

func (t overNATS) session(ctx context.Context, a toolyard.Agent, s toolyard.Session) (Session, error) {
	if err := t.platformOnly("reads sessions"); err != nil {
		return Session{}, err
	}
	v, err := t.b.Session(ctx, a, s)
	if err != nil {
		return Session{}, err
	}
	out := sessionOf(v)
	accounts, err := t.b.Budgets(ctx, a, s)
	out.Budgets = budgetsOf(accounts, time.Now())
	return out, err
}

func sessionOf(v broker.Session) Session {
	return Session{Unattended: v.Unattended, Loaded: v.Loaded, Remembered: v.Remembered, Context: v.Context,
		Changed: v.Changed}
}

func (t overNATS) changeSession(ctx context.Context, a toolyard.Agent, s toolyard.Session, c sessionChange) (Session,
	error) {
	if err := t.platformOnly("changes sessions"); err != nil {
		return Session{}, err
	}
	v, err := t.b.ChangeSession(ctx, a, s, func(v *broker.Session) {
		if c.unattended != nil {
			v.Unattended = *c.unattended
		}
		if c.forget {
			v.Remembered = nil
		}
		v.Load(c.load...)
	})
	return sessionOf(v), err
}

func (t overNATS) interrupt(ctx context.Context, a toolyard.Agent, s toolyard.Session, reason string) (int, error) {
	if err := t.platformOnly("interrupts sessions"); err != nil {
		return 0, err
	}
	return t.b.Interrupt(ctx, a, s, reason)
}

func (t overNATS) resolve(ctx context.Context, a toolyard.Agent, s toolyard.Session, by, reason string) (Resolved,
	error) {
	if err := t.platformOnly("interrupts sessions"); err != nil {
		return Resolved{}, err
	}
	if err := toolyard.CheckName("by", by); err != nil {
		return Resolved{}, err
	}
	ended, err := approval.Supersede(ctx, t.b, a, s, by, cmp.Or(reason, "the session was interrupted"),
		func(toolyard.BatchKey) (bool, error) { return true, nil })
	batches := map[toolyard.BatchKey]bool{}
	for _, w := range ended {
		batches[w.Key()] = true
	}
	return Resolved{Batches: len(batches), Calls: len(ended)}, err
}

func (t overNATS) batches(ctx context.Context, f Filter) (page []BatchInfo, more bool, err error) {
	if err := t.platformOnly("lists batches"); err != nil {
		return nil, false, err
	}
	entries, more, err := t.b.Index().Page(ctx, broker.Filter{
		Agent: f.Agent, Session: f.Session, Status: f.Status, After: f.After, Limit: f.Limit,
	})
	for _, e := range entries {
		page = append(page, BatchInfo{
			ID: e.ID, Agent: e.Agent, Session: e.Session, Workspace: e.Workspace, Status: e.Status, Calls: e.Calls,
			Submitted: e.Submitted, Changed: e.Changed, Cursor: e.Place,
		})
	}
	return page, more, err
}

func (t overNATS) workers(ctx context.Context) ([]Worker, error) {
	if err := t.platformOnly("lists workers"); err != nil {
		return nil, err
	}
	live, err := t.b.Workers(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Worker, len(live))
	for i, w := range live {
		out[i] = Worker{
			ID: w.ID, Pool: w.Pool, Classes: w.Classes, Workspaces: w.Workspaces, Tags: w.Tags,
			Isolation: w.Isolation, NoIsolation: w.NoIsolation, Unsandboxed: w.Unsandboxed,
			Slots: w.Slots, Busy: w.Busy, Tools: w.Tools, Host: w.Host, Started: w.Started,
			Version: w.Version, WireVersion: w.WireVersion, Breakers: w.Breakers,
			Shards: w.Only, Conflicts: []string{},
		}
		for _, r := range w.Remarks {
			out[i].Remarks = append(out[i].Remarks, Remark(r))
		}
	}
	t.conflicts(ctx, live, out)
	return out, nil
}

// maxToolsets is how many different lists of tools are looked at for conflicts.
const maxToolsets = 256

// conflicts notes of workers which names of their tools others offer too. What cannot be read is not compared.
func (t overNATS) conflicts(ctx context.Context, live []broker.Worker, out []Worker) {
	type key struct {
		pool    toolyard.Pool
		toolset string
	}
	sets, entries := map[key][]registry.Entry{}, []registry.Entry{}
	for _, w := range live {
		k := key{w.Pool, w.Toolset}
		if _, ok := sets[k]; ok || len(sets) >= maxToolsets {
			continue
		}
		sets[k] = nil
		stored, err := t.b.Surface(ctx, w.Toolset)
		if err != nil {
			continue
		}
		if s, err := registry.Decode(stored); err == nil {
			for i := range s.Tools {
				s.Tools[i].Pool = w.Pool
			}
			sets[k], entries = s.Tools, append(entries, s.Tools...)
		}
	}
	for _, c := range registry.Conflicts(entries) {
		for i, w := range live {
			has := func(e registry.Entry) bool { return e.Name == c.Name }
			if slices.ContainsFunc(sets[key{w.Pool, w.Toolset}], has) {
				out[i].Conflicts = append(out[i].Conflicts, c.String())
			}
		}
	}
}

func (t overNATS) deadLetters(ctx context.Context, most int) ([]DeadLetter, error) {
	if err := t.platformOnly("lists dead letters"); err != nil {
		return nil, err
	}
	found, err := t.b.DeadLetters(ctx, most)
	out := make([]DeadLetter, len(found))
	for i, l := range found {
		out[i] = DeadLetter(l)
	}
	return out, err
}
