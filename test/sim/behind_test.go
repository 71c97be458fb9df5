package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/admission"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/submission"
	"github.com/toolyard/toolyard/test/verdict"
	"github.com/toolyard/toolyard/tool"
)

// behind has some calls of a scenario start batches of their own: scripts, whose calls are batches, and background
// calls, which other calls wait for or stop.
func (d draws) behind(sc *scenario) {
	if !d.one(5) {
		return
	}
	sc.backgroundCalls = 1 + d.IntN(2)
	for _, a := range sc.agents {
		for _, b := range a.batches {
			calls := b.batch.Calls
			i := d.IntN(len(calls))
			if k, _ := kindOf(calls[i].Tool); k.asks || calls[i].Tool == absent {
				continue
			}
			if d.one(2) {
				calls[i].Tool = toolyard.RunCodeTool
				calls[i].Input = raw(input{WorkMS: 1 + d.Int64N(200), Calls: d.ofScript()})
				continue
			}
			workspace := d.one(2)
			c := d.small()
			calls[i].Tool, calls[i].Input = toolyard.BackgroundStart, raw(toolyard.BackgroundStartInput{Tool: c.Tool,
				Input: c.Input, Workspace: workspace, WaitMS: int64(d.IntN(2)) * 300})
			if j := i + 1 + d.IntN(2); j < len(calls) {
				wait := int64(d.IntN(4_000))
				handle := toolyard.BackgroundID(b.batch.Key(), i, workspace)
				in := toolyard.BackgroundInput{Handle: handle, WaitMS: &wait}
				if calls[j].Tool = pick(d, backgroundTools); calls[j].Tool != toolyard.BackgroundWait {
					in.WaitMS = nil
				}
				calls[j].Input = raw(in)
			}
		}
	}
}

var backgroundTools = []string{toolyard.BackgroundCheck, toolyard.BackgroundStop, toolyard.BackgroundWait,
	toolyard.BackgroundWait}

// small is a call that does not take long.
func (d draws) small() toolyard.Call {
	return call(pick(d, []string{"read", "write", "put", "look"}), d.between(ms, 1500*ms))
}

// ofScript are the calls that a script makes, one after the other.
func (d draws) ofScript() (out []toolyard.Call) {
	for range 1 + d.IntN(2) {
		out = append(out, d.small())
	}
	return out
}

// limits are narrow budgets and rates, past which calls end.
func (d draws) limits(sc *scenario) {
	if len(sc.budgets) > 0 && d.one(2) {
		sc.narrow = int64(2 + d.IntN(6))
		sc.budgets = append(admission.Budgets{ofAgents(sc.narrow)}, sc.budgets...)
	}
	if len(sc.rates) > 0 && d.one(2) {
		sc.rates = slices.Clone(sc.rates)
		for i := range sc.rates {
			sc.rates[i].Rate.Wait = d.between(50*ms, time.Second).Truncate(ms)
		}
		sc.impatient = true
	}
}

// ofAgents is a budget of so many calls for each agent.
func ofAgents(calls int64) admission.BudgetGrant {
	return admission.BudgetGrant{Kind: admission.BudgetOfAgent, Agents: "*",
		Budget: admission.Budget{Amount: admission.Amount{Calls: calls}}}
}

// heard is what a script was told of one of its calls.
type heard struct {
	child  toolyard.BatchKey
	result toolyard.Result
}

// script makes the calls of a script, one after the other, and notes what it hears.
func (p *party) script(ctx context.Context, env tool.Env, calls []toolyard.Call) error {
	for n, c := range calls {
		if p.awake(); p.gone() {
			return errCrash
		}
		r, err := env.Call(ctx, c.Tool, c.Input)
		if err != nil {
			return fmt.Errorf("make call %d of a script: %w", n+1, err)
		}
		if p.awake(); p.gone() {
			return errCrash
		}
		id := submission.ChildID(toolyard.Parent{Batch: env.Batch, Call: env.Index, Attempt: env.Attempt, N: n + 1})
		p.w.book.mu.Lock()
		p.w.book.heard = append(p.w.book.heard, heard{toolyard.BatchKey{Agent: env.Agent, ID: id}, r})
		p.w.book.mu.Unlock()
		p.w.note(p.name, "hears of call %d of the script %s/%s/%d: %s", n+1, env.Agent, env.Batch, env.Index,
			outcome(r))
	}
	return nil
}

// started is a batch that a call has started, and which.
type started struct {
	key    toolyard.BatchKey
	parent *toolyard.Parent // nil: it is a background call
	by     *batchSpec       // the batch of that call; nil: none of this history
}

// findStarted finds the batches that calls have started, when all are over: they are those that no agent has handed in.
func (w *world) findStarted(ctx context.Context, b *natsbroker.Broker, js jetstream.JetStream) error {
	var subjects []string
	for n := range w.sc.count() {
		stream, err := js.Stream(ctx, nameIn(n, "TY_BATCH"))
		if err != nil {
			return err
		}
		info, err := stream.Info(ctx, jetstream.WithSubjectFilter(nameIn(n, "ty.batch.>")))
		if err != nil {
			return err
		}
		subjects = slices.AppendSeq(subjects, maps.Keys(info.State.Subjects))
	}
	var keys []toolyard.BatchKey
	for _, subject := range subjects {
		tokens := strings.Split(strings.TrimPrefix(inFirst(subject), "ty.batch."), ".")
		if len(tokens) != 2 {
			return fmt.Errorf("subject %s is no batch's", subject)
		}
		agent, err1 := broker.Unescape(tokens[0])
		id, err2 := broker.Unescape(tokens[1])
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		k := toolyard.BatchKey{Agent: toolyard.Agent(agent), ID: toolyard.BatchID(id)}
		if w.seen[k] == nil {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b toolyard.BatchKey) int { return strings.Compare(a.String(), b.String()) })
	keys = slices.Compact(keys) // in a former shard there is a fence
	for _, k := range keys {
		s, err := b.Look(ctx, k)
		if err != nil {
			return fmt.Errorf("look at %s, which a call has started: %w", k, err)
		}
		st := &started{key: k, parent: s.Submission.Options.Parent}
		for of := range w.seen {
			if st.startedBy(of) {
				st.by = w.seen[of].spec
			}
		}
		if is, _ := k.ID.Background(); !is && (st.parent == nil || st.by == nil) {
			w.fail("started", "%s stands in the stream, and nobody has handed it in", k)
			continue
		}
		spec := &batchSpec{batch: *s.Submission}
		w.behind = append(w.behind, st)
		w.seen[k] = &seen{spec: spec, started: st}
	}
	return nil
}

// mostCalls is more calls than a batch of a history has.
const mostCalls = 16

// startedBy reports whether a call of another batch has started the batch.
func (s *started) startedBy(of toolyard.BatchKey) bool {
	if of.Agent != s.key.Agent {
		return false
	}
	if s.parent != nil {
		return of == toolyard.BatchKey{Agent: s.key.Agent, ID: s.parent.Batch}
	}
	for i := range mostCalls {
		if s.key.ID == toolyard.BackgroundID(of, i, false) || s.key.ID == toolyard.BackgroundID(of, i, true) {
			return true
		}
	}
	return false
}

// handedIn makes the submission of a batch that a call has started. Its results are those of the log: nobody else has
// read them all.
func handedIn(sub *verdict.Submission, rec *verdict.Batch) (refused bool) {
	for _, l := range rec.Log {
		switch body := l.Body.(type) {
		case events.Submitted:
			sub.Acked = l.Time
		case events.Refused:
			refused = true
		case events.Reply:
			for _, r := range body.Results {
				sub.Results, sub.At = append(sub.Results, r), append(sub.At, l.Time)
			}
			if body.Completed {
				sub.Over = l.Time
			}
		}
	}
	return refused
}

// followedWithin is how long after its end nothing begins that a script was to call.
const followedWithin = 20 * time.Second

// checkStarted: scripts hear what the log says, nothing is planned for a script that is long over, and a session has no
// more background calls at a time than it may have.
func (w *world) checkStarted(r *report, h *verdict.History) {
	w.book.mu.Lock()
	told := slices.Clone(w.book.heard)
	w.book.mu.Unlock()
	for _, t := range told {
		r.saw(playsScript, true)
		rec := h.Batches[t.child]
		if rec == nil {
			w.fail("started", "a script heard of %s, which there is not", t.child)
			continue
		}
		if res, ok := rec.Results()[0]; ok && (res.Code != t.result.Code || res.Output != t.result.Output) {
			w.fail("started", "a script heard of %s that it ended as %q: %s, and the log has %q: %s", t.child,
				t.result.Code, t.result.Output, res.Code, res.Output)
		}
	}
	type span struct{ from, to time.Time }
	under := map[toolyard.Agent][]span{}
	for _, s := range w.behind {
		rec := h.Batches[s.key]
		var planned, over time.Time
		for _, l := range rec.Log {
			switch body := l.Body.(type) {
			case events.Planned:
				planned = l.Time
			case events.Reply:
				if body.Completed {
					over = l.Time
				}
			}
		}
		if planned.IsZero() {
			continue
		}
		if s.parent == nil {
			r.saw(playsBackground, true)
			under[s.key.Agent] = append(under[s.key.Agent], span{planned, over})
			continue
		}
		end := logOf(h.Batches[s.by.batch.Key()], s.parent.Call).finished
		if end == nil {
			continue // which Q1 tells of
		}
		r.saw(playsOrphan, logOf(rec, 0).finished != nil && len(logOf(rec, 0).canceled) > 0)
		if late := planned.Sub(end.Time); late > followedWithin {
			w.fail("orphan", "%s is planned %s after the end of the script that made it", s.key, late)
		}
	}
	for agent, spans := range under {
		for _, s := range spans {
			n := 0
			for _, o := range spans {
				if !o.from.After(s.from) && (o.to.IsZero() || o.to.After(s.from)) {
					n++
				}
			}
			if n > w.sc.backgroundCalls {
				w.fail("bounded", "agent %s has %d background calls at a time, and may have %d", agent, n,
					w.sc.backgroundCalls)
			}
		}
	}
	w.checkHandles(r, h)
}

// checkHandles: a call that started a background call says so of one that there is, and what the other tools say of it
// is what became of it.
func (w *world) checkHandles(r *report, h *verdict.History) {
	for _, k := range w.keys() {
		rec := h.Batches[k]
		for i, res := range rec.Results() {
			if res.IsError || !strings.HasPrefix(res.Tool, toolyard.BackgroundPrefix) {
				continue
			}
			var said struct {
				Handle toolyard.BatchID       `json:"handle"`
				State  broker.BackgroundState `json:"state"`
				Code   toolyard.Code          `json:"code"`
			}
			if len(res.Structured) == 0 {
				continue // the result is that of the background call: checkCommands looks at it
			}
			if err := json.Unmarshal(res.Structured, &said); err != nil {
				w.fail("started", "%s/%d says %s: %v", k, i, res.Structured, err)
				continue
			}
			of := h.Batches[toolyard.BatchKey{Agent: k.Agent, ID: said.Handle}]
			if of == nil {
				w.fail("started", "%s/%d says that it has started %s, and there is no such batch", k, i, said.Handle)
				continue
			}
			if said.State != broker.BackgroundOver {
				continue
			}
			r.saw(playsHandle, true)
			if end, ok := of.Results()[0]; !ok || end.Code != said.Code || end.At.After(res.At) {
				w.fail("started", "%s/%d says that %s ended as %q, and the log has %q", k, i, said.Handle, said.Code,
					end.Code)
			}
		}
	}
}

// checkSuperseded: a batch that ends what waits of others came after them.
func (w *world) checkSuperseded(h *verdict.History) {
	came := func(k toolyard.BatchKey) (at time.Time, supersedes bool) {
		for _, l := range h.Batches[k].Log {
			if s, ok := l.Body.(events.Submitted); ok {
				return l.Time, s.Options.Supersede
			}
		}
		return at, false
	}
	for _, k := range w.keys() {
		for _, l := range h.Batches[k].Log {
			d, ok := l.Body.(events.Decided)
			if !ok || d.Decision != events.Supersede {
				continue
			}
			by := toolyard.BatchKey{Agent: k.Agent, ID: toolyard.BatchID(strings.TrimPrefix(d.By, "batch "))}
			if h.Batches[by] == nil {
				w.fail("superseded", "a call of %s was superseded by %q, which is no batch", k, d.By)
				continue
			}
			before, _ := came(k)
			if after, may := came(by); !may || !after.After(before) {
				w.fail("superseded", "a call of %s, which came at %s, was superseded by %s, which came at %s", k,
					stamp(before.Sub(w.began)), by, stamp(after.Sub(w.began)))
			}
		}
	}
}

// checkBudgets: when all is over the accounts say what the logs say, and have no line. No more calls have begun than an
// agent may make. Accounts may say more: a call counts of which nobody knows whether it has begun.
func (w *world) checkBudgets(ctx context.Context, r *report, b *natsbroker.Broker, h *verdict.History) error {
	if len(w.sc.budgets) == 0 {
		return nil
	}
	used, all := map[toolyard.Agent]int64{}, int64(0)
	for _, k := range w.keys() {
		for _, res := range h.Batches[k].Results() {
			used[k.Agent] += int64(res.Attempts)
			all += int64(res.Attempts)
			r.saw(playsSpent, res.Code == toolyard.BudgetExceeded)
		}
	}
	began := map[toolyard.Agent]map[verdict.Call]bool{}
	for _, l := range h.Ledger {
		if began[l.Agent] == nil {
			began[l.Agent] = map[verdict.Call]bool{}
		}
		began[l.Agent][verdict.Call{BatchKey: l.Key(), Index: l.Index}] = true
	}
	for _, a := range w.sc.agents {
		if n := int64(len(began[a.name])); w.sc.narrow > 0 && n > w.sc.narrow {
			w.fail("budget", "%d calls of %s have begun, and it may make %d", n, a.name, w.sc.narrow)
		}
		accounts, err := b.Budgets(ctx, a.name, "s")
		if err != nil {
			return err
		}
		for name, account := range accounts {
			want := used[a.name]
			if strings.HasPrefix(name, "team ") {
				want = all
			}
			got, reserved := account.Total()
			if len(account.Lines) > 0 || got.Calls != want || reserved != (admission.Amount{}) {
				w.fail("budget", "%s has %d calls used and %d reserved in %d lines, and the logs say %d", name, got.Calls,
					reserved.Calls, len(account.Lines), want)
			}
		}
	}
	return nil
}

// accounts checks while a history runs that no owner sets what its batch has used back, and that the next owner has
// used or reserved as much.
type accounts struct {
	w    *world
	seen map[string]uint64
	last map[string]admission.Account
	what string // the step that is performed
}

func newAccounts(w *world) *accounts {
	return &accounts{w: w, seen: map[string]uint64{}, last: map[string]admission.Account{}}
}

// step is told of each step before it is performed.
func (a *accounts) step(what string) { a.what = what }

// before looks at what is stored, while nothing runs.
func (a *accounts) before() {
	what := a.what
	a.what = ""
	_, key, ok := strings.Cut(what, "$KV.ty_budget.")
	if !ok || len(a.w.sc.budgets) == 0 || !strings.HasPrefix(what, "HPUB ") {
		return
	}
	key, _, _ = strings.Cut(key, " ")
	m := a.w.bus.server().Last("KV_ty_budget", "$KV.ty_budget."+key)
	if m == nil || m.Sequence == a.seen[key] {
		return
	}
	a.seen[key] = m.Sequence
	var now admission.Account
	if err := json.Unmarshal(m.Data, &now); err != nil {
		a.w.fail("budget", "the account %s cannot be read: %v", key, err)
		return
	}
	for name, was := range a.last[key].Lines {
		l, stands := now.Lines[name]
		if !stands {
			continue
		}
		least := l.Used.Calls
		if l.Term > was.Term { // the next owner may hear later how a call ended; until then it has reserved it
			least += l.Reserved.Calls
		}
		if least < was.Used.Calls || l.Term < was.Term {
			a.w.fail("budget", "the line of %s in %s goes from %+v back to %+v", name, key, was, l)
		}
	}
	a.last[key] = now
}
