package http

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// scenario is a system and one client of it: what holds over NATS holds over HTTP.
type scenario struct {
	*pool
	c *client.Client
	// agent is the scenario's own.
	agent toolyard.Agent
}

func overHTTP(t testing.TB, p *pool, o client.HTTPOptions) *client.Client {
	t.Helper()
	c, err := client.ConnectHTTP(t.Context(), p.url, o)
	must.OK(t, err)
	return c
}

// batch is a batch of calls of tools; what stands behind a colon is the text of the call.
func (s *scenario) batch(id string, tools ...string) toolyard.Batch {
	b := toolyard.Batch{Agent: s.agent, ID: toolyard.BatchID(id)}
	for i, name := range tools {
		name, text, _ := strings.Cut(name, ":")
		b.Calls = append(b.Calls, toolyard.Call{ID: fmt.Sprintf("c%d", i), Tool: name,
			Input: json.RawMessage(fmt.Sprintf(`{"text": %q}`, text))})
	}
	return b
}

func (s *scenario) submit(b toolyard.Batch) *client.Batch {
	s.Helper()
	sub, err := s.c.Submit(s.Context(), b)
	must.OK(s, err)
	return sub
}

// every is all that an iterator yields. An error ends the test.
func every[T any](t testing.TB, seq iter.Seq2[T, error]) (out []T) {
	t.Helper()
	for v, err := range seq {
		must.OK(t, err)
		out = append(out, v)
	}
	return out
}

// failure is the error that ends an iterator.
func failure[T any](seq iter.Seq2[T, error]) (last error) {
	for _, err := range seq {
		last = err
	}
	return last
}

func outcomes(results []toolyard.Result) string {
	var words []string
	for _, r := range results {
		word := r.Output
		if r.IsError {
			word = string(r.Code)
		}
		words = append(words, fmt.Sprintf("%d:%s", r.Index, word))
	}
	return strings.Join(words, " ")
}

// scenarios are what a client does, whatever is between it and the system.
var scenarios = map[string]func(*scenario){
	"results come in order, once, and again": func(s *scenario) {
		b := s.batch("b", "echo:one", "nosuchtool", "echo:two", "long")
		sub := s.submit(b)
		if sub.Key() != b.Key() {
			s.Errorf("its key is %s, want %s", sub.Key(), b.Key())
		}
		first := every(s, sub.Results(s.Context()))
		if got := outcomes(first); !strings.HasPrefix(got, "0:one 1:unknown_tool 2:two 3:äb") || !first[3].Truncated {
			s.Errorf("results: %.80s", got)
		}
		again := s.submit(b) // the same batch: nothing runs
		if got := every(s, again.Results(s.Context())); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", first) {
			s.Errorf("submitted again: %+v\nwant %+v", got, first)
		}
		v, err := s.c.Batch(b.Key()).View(s.Context())
		if err != nil || v.Status != toolyard.StatusCompleted || len(v.Results) != 4 || v.Agent != s.agent {
			s.Errorf("the view is %+v, %v", v, err)
		}
		for range sub.Results(s.Context()) {
			break // a loop that is left is no error
		}
		b.Calls = b.Calls[:1]
		if _, err := s.c.Submit(s.Context(), b); !errors.Is(err, client.ErrOtherContent) {
			s.Errorf("other content: %v", err)
		}
	},
	"a batch without an id or names gets them": func(s *scenario) {
		sub := s.submit(toolyard.Batch{Agent: s.agent, Calls: []toolyard.Call{{Tool: "echo"}}})
		if sub.Key().ID == "" {
			s.Error("it has no id")
		}
		if r := every(s, sub.Results(s.Context())); len(r) != 1 || r[0].CallID != "call_1" {
			s.Errorf("results: %+v", r)
		}
	},
	"what is wrong is said": func(s *scenario) {
		for field, b := range map[string]toolyard.Batch{
			"calls": {Agent: s.agent},
			"calls[1].id": {Agent: s.agent, Calls: []toolyard.Call{{ID: "a", Tool: "echo"},
				{ID: "a", Tool: "echo"}}},
			"options.partition": {Agent: s.agent, Calls: []toolyard.Call{{Tool: "echo"}},
				Options: toolyard.Options{Partition: "best"}},
		} {
			_, err := s.c.Submit(s.Context(), b)
			if in, ok := errors.AsType[*toolyard.InputError](err); !ok || in.Field != field {
				s.Errorf("%s: %v", field, err)
			}
		}
		b := s.batch("refused", "echo")
		b.Options.Deny = []string{"echo("}
		sub, err := s.c.Submit(s.Context(), b)
		if err == nil {
			err = failure(sub.Results(s.Context()))
		}
		if e, ok := errors.AsType[*client.RefusedError](err); !ok || e.Field != "options.deny[0]" || e.Status != 400 ||
			strings.Contains(e.Detail, "refused") {
			s.Errorf("a rule that cannot be read: %#v", err)
		}
		if err := failure(s.c.Batch(b.Key()).Progress(s.Context())); !errors.As(err, new(*client.RefusedError)) {
			s.Errorf("its progress: %v", err)
		}
	},
	"what is not there": func(s *scenario) {
		long := toolyard.BatchID(strings.Repeat("b", 4_096))
		for _, id := range []toolyard.BatchID{"no such batch/?", ".", "", long} {
			b := s.c.Batch(toolyard.BatchKey{Agent: s.agent, ID: id})
			open := s.c.Reopen(b.Key())
			for what, ask := range map[string]func() error{
				"view":     func() error { _, err := b.View(s.Context()); return err },
				"standing": func() error { _, err := b.Standing(s.Context()); return err },
				"results":  func() error { return failure(b.Results(s.Context())) },
				"events":   func() error { return failure(b.Events(s.Context())) },
				"watch":    func() error { return failure(b.Watch(s.Context())) },
				"progress": func() error { return failure(b.Progress(s.Context())) },
				"cancel":   func() error { return b.Cancel(s.Context(), "") },
				"append":   func() error { return open.Append(s.Context(), toolyard.Call{Tool: "echo"}) },
				"close":    func() error { return open.Close(s.Context()) },
			} {
				if err := ask(); !errors.Is(err, client.ErrNoBatch) {
					s.Errorf("%s of %.10q: %v", what, id, err)
				}
			}
		}
	},
	"calls are appended": func(s *scenario) {
		st, err := s.c.Open(s.Context(), s.batch("open", "echo:one"))
		must.OK(s, err)
		next, stop := iter.Pull2(st.Results(s.Context()))
		defer stop()
		for i := range 3 {
			r, err, ok := next()
			if !ok || err != nil || r.Index != i {
				s.Fatalf("result %d: %+v, %v", i, r, err)
			}
			must.OK(s, st.Append(s.Context(), toolyard.Call{Tool: "echo",
				Input: json.RawMessage(`{"text": "more"}`)}))
		}
		if err := st.Append(s.Context(), toolyard.Call{ID: "c0", Tool: "echo"}); !errors.As(err,
			new(*toolyard.InputError)) {
			s.Errorf("an id that is taken: %v", err)
		}
		// Whoever holds it, it is closed once, and takes no more then.
		if err := errors.Join(st.Close(s.Context()), st.Close(s.Context())); err != nil {
			s.Errorf("close: %v", err)
		}
		if err := st.Append(s.Context(), toolyard.Call{Tool: "echo"}); !errors.Is(err, client.ErrClosed) {
			s.Errorf("append to a closed batch: %v", err)
		}
		if got := outcomes(every(s, st.Results(s.Context()))); got != "0:one 1:more 2:more 3:more" {
			s.Errorf("results: %s", got)
		}
	},
	"a batch that was not opened takes no calls": func(s *scenario) {
		st := s.c.Reopen(s.submit(s.batch("whole", "echo")).Key())
		if err := st.Append(s.Context(), toolyard.Call{Tool: "echo"}); !errors.Is(err, client.ErrNotOpened) {
			s.Errorf("append: %v", err)
		}
		if err := st.Close(s.Context()); !errors.Is(err, client.ErrNotOpened) {
			s.Errorf("close: %v", err)
		}
	},
	"others append, and close it": func(s *scenario) {
		st, err := s.c.Open(s.Context(), s.batch("open"))
		must.OK(s, err)
		other, err := s.client.Open(s.Context(), s.batch("open"))
		must.OK(s, err)
		must.OK(s, errors.Join(other.Append(s.Context(), toolyard.Call{ID: "x", Tool: "echo"}),
			st.Append(s.Context(), toolyard.Call{ID: "y", Tool: "echo"}),
			other.Close(s.Context())))
		if err := st.Append(s.Context(), toolyard.Call{ID: "z", Tool: "echo"}); !errors.Is(err, client.ErrClosed) {
			s.Errorf("append behind another's close: %v", err)
		}
	},
	"calls without ids of two writers are two calls": func(s *scenario) {
		for i, text := range []string{"same", "same", "other"} { // a program that was away opens its batch again
			st, err := s.c.Open(s.Context(), s.batch("open"))
			must.OK(s, err)
			at, err := st.AppendAt(s.Context(), toolyard.Call{Tool: "echo",
				Input: json.RawMessage(fmt.Sprintf(`{"text": %q}`, text))})
			if err != nil || at != i {
				s.Errorf("call %d is at %d: %v", i, at, err)
			}
			if i < 2 {
				continue
			}
			if err := st.Close(s.Context()); err != nil {
				s.Error(err)
			}
			if got := outcomes(every(s, st.Results(s.Context()))); got != "0:same 1:same 2:other" {
				s.Errorf("results: %s", got)
			}
		}
	},
	"calls are canceled": func(s *scenario) {
		sub := s.submit(s.batch("b", "wait", "wait", "wait"))
		if err := sub.Cancel(s.Context(), "", 3); !errors.Is(err, client.ErrNoCall) {
			s.Errorf("a call that is not there: %v", err)
		}
		if err := sub.Cancel(s.Context(), strings.Repeat("x", client.MaxReasonBytes+1)); !errors.As(err,
			new(*toolyard.InputError)) {
			s.Errorf("a reason that is too long: %v", err)
		}
		must.OK(s, errors.Join(sub.Cancel(s.Context(), "not needed", 0, 1),
			sub.Cancel(s.Context(), "not needed", 0)))
		next, stop := iter.Pull2(sub.Results(s.Context()))
		defer stop()
		for i := range 2 { // a call that runs until it hears of the cancel would take the gate
			if r, err, ok := next(); !ok || err != nil || r.Code != toolyard.Canceled {
				s.Fatalf("result %d: %+v, %v", i, r, err)
			}
		}
		select {
		case s.gate <- struct{}{}:
		case <-time.After(patience):
			s.Fatal("the last call did not start")
		}
		if got := outcomes(every(s, sub.Results(s.Context()))); got != "0:canceled 1:canceled 2:waited" {
			s.Errorf("results: %s", got)
		}
		if err := sub.Cancel(s.Context(), ""); !errors.Is(err, client.ErrCompleted) {
			s.Errorf("a batch that is complete: %v", err)
		}
	},
	"events": func(s *scenario) {
		sub := s.submit(s.batch("b", "echo", "wait"))
		next, stop := iter.Pull2(sub.Watch(s.Context()))
		defer stop()
		var types []string
		for {
			e, err, ok := next()
			must.OK(s, err)
			if !ok {
				break
			}
			_, body, err := events.DecodeJSON(e.JSON)
			if err != nil || string(body.EventType()) != e.Type || e.What == "" || e.Gap != "" ||
				e.Batch != sub.Key() || e.Time.IsZero() {
				s.Errorf("event %+v is %T, %v", e, body, err)
			}
			types = append(types, e.Type)
			if len(types) == 2 { // the rest is yet to come
				select {
				case s.gate <- struct{}{}:
				case <-time.After(patience):
					s.Fatal("the call did not start")
				}
			}
		}
		if len(types) < 6 || types[0] != string(events.BatchSubmitted) || types[1] != string(events.BatchPlanned) {
			s.Errorf("watched %v", types)
		}
		var kept []string
		for _, raw := range every(s, sub.Events(s.Context())) {
			_, body, err := events.DecodeJSON(raw)
			must.OK(s, err)
			kept = append(kept, string(body.EventType()))
		}
		if slices.Sort(types); !slices.Equal(types, slices.Sorted(slices.Values(kept))) {
			s.Errorf("stored are %v, watched were %v", kept, types)
		}
	},
	"all batches are watched": func(s *scenario) {
		ctx, cancel := context.WithTimeout(s.Context(), patience)
		defer cancel()
		happening, err := s.c.Watch(ctx, s.agent)
		must.OK(s, err)
		k := s.submit(s.batch("b", "echo")).Key()
		replied := false
		for e, err := range happening {
			must.OK(s, err)
			if e.Batch != k || e.What == "" || e.Gap != "" || e.Time.IsZero() {
				s.Errorf("%+v", e)
			}
			if !json.Valid(e.JSON) {
				s.Errorf("%s", e.JSON)
			}
			if replied = e.Type == string(events.Results); replied {
				break
			}
		}
		if !replied {
			s.Error("the reply was not seen")
		}
	},
	"progress": func(s *scenario) {
		sub := s.submit(s.batch("b", "talk:it"))
		var seen []client.Progress
		for p, err := range sub.Progress(s.Context()) {
			must.OK(s, err)
			if seen = append(seen, p); p.Fraction == 0.5 && s.gate != nil {
				s.gate <- struct{}{}
				s.gate = nil
			}
		}
		if len(seen) < 2 {
			s.Fatalf("seen: %+v", seen)
		}
		half := seen[slices.IndexFunc(seen, func(p client.Progress) bool { return p.Fraction == 0.5 })]
		if half.CallID != "c0" || half.Tool != "talk" || half.Attempt != 1 || half.Worker == "" ||
			half.Status != "half" || !strings.HasPrefix(half.Output, "a line of it\n") {
			s.Errorf("%+v", half)
		}
		if first, last := seen[0], seen[len(seen)-1]; first.Fraction > 0.5 || last.Fraction != 1 {
			s.Errorf("it begins with %+v and ends with %+v", first, last)
		}
		if more := every(s, sub.Progress(s.Context())); len(more) != 0 {
			s.Errorf("of a batch that is complete: %+v", more)
		}
	},
	"people decide": func(s *scenario) {
		b := s.batch("b", "write:a", "write:b", "write:c")
		b.Interactive = true
		sub := s.submit(b)
		var ids []string
		decide := func(i int, do func(id string) error) {
			s.Helper()
			testenv.Until(s, "a call waits", func() bool {
				list, err := s.c.Approvals(s.Context(), s.agent)
				must.OK(s, err)
				if len(list) != 1 || list[0].Index != i {
					return false
				}
				a := list[0]
				if a.Tool != "write" || a.Batch != "b" || a.Agent != s.agent || !a.Destructive ||
					!strings.Contains(string(a.Input), "text") || a.Expires.Before(a.AskedAt) {
					s.Errorf("%+v", a)
				}
				ids = append(ids, a.ID)
				return true
			})
			must.OK(s, do(ids[len(ids)-1]))
		}
		decide(0, func(id string) error {
			return s.c.Decide(s.Context(), id, client.Decision{Verdict: client.Allow, By: "ann"})
		})
		decide(1, func(id string) error {
			return s.c.Decide(s.Context(), id, client.Decision{Verdict: client.Deny, By: "ann", Reason: "no"})
		})
		decide(2, func(id string) error {
			err := s.c.Decide(s.Context(), id, client.Decision{Verdict: client.Deny, By: "ann", ForSession: true})
			if !errors.As(err, new(*toolyard.InputError)) {
				s.Errorf("a denial for the session: %v", err)
			}
			return s.c.Decide(s.Context(), id,
				client.Decision{Verdict: client.Allow, By: "ann", Input: json.RawMessage(`{"text": "z"}`)})
		})
		if got := outcomes(every(s, sub.Results(s.Context()))); got != "0:wrote a 1:approval_rejected 2:wrote z" {
			s.Errorf("results: %s", got)
		}
		agent, _, _ := strings.Cut(ids[0], ".")
		for _, id := range []string{ids[0], "nonsense", agent + ".none.0"} {
			err := s.c.Decide(s.Context(), id, client.Decision{Verdict: client.Allow, By: "ann"})
			if !errors.Is(err, client.ErrNoApproval) {
				s.Errorf("%s: %v", id, err)
			}
		}
	},
	"sessions": func(s *scenario) {
		const name = "a session/é"
		v, err := s.c.Session(s.Context(), s.agent, name)
		if err != nil || v.Unattended || len(v.Remembered) != 0 || !v.Changed.IsZero() {
			s.Errorf("a new one: %+v, %v", v, err)
		}
		if v, err = s.c.SetUnattended(s.Context(), s.agent, name, true); err != nil || !v.Unattended {
			s.Errorf("%+v, %v", v, err)
		}
		if v, err = s.c.Forget(s.Context(), s.agent, name); err != nil || !v.Unattended || v.Changed.IsZero() {
			s.Errorf("%+v, %v", v, err)
		}
		if v, err = s.c.SetUnattended(s.Context(), s.agent, name, false); err != nil || v.Unattended {
			s.Errorf("%+v, %v", v, err)
		}
		v, err = s.c.LoadTools(s.Context(), s.agent, name, "x", "y", "x")
		if want := []string{"x", "y"}; err != nil || !slices.Equal(v.Loaded, want) {
			s.Errorf("%+v, %v", v, err)
		}
		if _, err = s.c.LoadTools(s.Context(), s.agent, name, "x", "a\x00b"); err == nil {
			s.Error("a tool that can have no such name is loaded")
		}
		b := s.batch("b", "echo", "wait", "wait")
		b.Session = name
		sub := s.submit(b)
		testenv.Until(s, "the batch is planned", func() bool { // before that it would stop, and not be counted
			page, _, err := s.c.Batches(s.Context(), client.Filter{Agent: s.agent, Session: name})
			must.OK(s, err)
			return len(page) == 1
		})
		if n, err := s.c.Interrupt(s.Context(), s.agent, name, "stop"); err != nil || n != 1 {
			s.Errorf("%d batches were interrupted (%v), want 1", n, err)
		}
		go func() { // a call that had begun is waited for
			select {
			case s.gate <- struct{}{}:
			case <-s.Context().Done():
			}
		}()
		if r := every(s, sub.Results(s.Context())); len(r) != 3 || r[2].Code != toolyard.Canceled {
			s.Errorf("results: %s", outcomes(r))
		}
		select {
		case <-s.gate: // it had not begun
		default:
		}
	},
	"what waits is resolved": func(s *scenario) {
		const name = "resolved"
		waits := s.batch("waits", "echo:one", "write:a")
		waits.Session, waits.Interactive = name, true
		waiting := s.submit(waits)
		other := s.batch("other", "write:b")
		other.Session, other.Interactive = "other", true
		s.submit(other)
		testenv.Until(s, "both wait", func() bool {
			list, err := s.c.Approvals(s.Context(), s.agent)
			must.OK(s, err)
			return len(list) == 2
		})
		runs := s.batch("runs", "wait")
		runs.Session = name
		running := s.submit(runs)
		done, err := s.c.Resolve(s.Context(), s.agent, name, "ann", "")
		if want := (client.Resolved{Batches: 1, Calls: 1}); err != nil || done != want {
			s.Errorf("%+v, %v, want %+v", done, err, want)
		}
		r := every(s, waiting.Results(s.Context()))
		if got := outcomes(r); got != "0:one 1:approval_expired" || !strings.Contains(r[1].Error,
			"Nobody decided about this call before the session went on: the session was interrupted.") {
			s.Errorf("what waited: %s, %s", got, r[len(r)-1].Error)
		}
		select {
		case s.gate <- struct{}{}:
		case <-s.Context().Done():
		}
		if r := every(s, running.Results(s.Context())); len(r) != 1 || r[0].IsError {
			s.Errorf("what ran: %s", outcomes(r))
		}
		if done, err := s.c.Resolve(s.Context(), s.agent, name, "ann", "again"); err != nil || done.Calls != 0 {
			s.Errorf("when nothing waits: %+v, %v", done, err)
		}
		if list, err := s.c.Approvals(s.Context(), s.agent); err != nil || len(list) != 1 || list[0].Batch != "other" {
			s.Errorf("of the other session %+v, %v", list, err)
		}
		_, err = s.c.Resolve(s.Context(), s.agent, name, "ann", strings.Repeat("x", client.MaxReasonBytes+1))
		if !errors.As(err, new(*toolyard.InputError)) {
			s.Errorf("a reason that is too long: %v", err)
		}
		if _, err := s.c.Resolve(s.Context(), s.agent, "other", "ann", "bye"); err != nil {
			s.Error(err)
		}
	},
	"batches are listed": func(s *scenario) {
		for i := range 3 {
			every(s, s.submit(s.batch(fmt.Sprint("b", i), "echo")).Results(s.Context()))
		}
		var ids []string
		testenv.Until(s, "the index has all", func() bool {
			ids = nil
			for f := (client.Filter{Agent: s.agent, Session: toolyard.DefaultSession, Status: toolyard.StatusCompleted,
				Limit: 2}); ; {
				page, more, err := s.c.Batches(s.Context(), f)
				if err != nil || len(page) > 2 {
					s.Fatal(len(page), err)
				}
				for _, b := range page {
					ids = append(ids, string(b.ID))
					f.After = b.Cursor
				}
				if !more {
					return len(ids) >= 3
				}
			}
		})
		if !slices.Equal(ids, []string{"b2", "b1", "b0"}) {
			s.Errorf("listed: %v; want the newest first", ids)
		}
		page, more, err := s.c.Batches(s.Context(), client.Filter{Agent: s.agent})
		if err != nil || more || len(page) != 3 || page[0].Calls != 1 || page[0].Submitted.IsZero() {
			s.Errorf("all: %+v, %t, %v", page, more, err)
		}
	},
	"operations": func(s *scenario) {
		workers, err := s.c.Workers(s.Context())
		if err != nil || len(workers) != 1 || workers[0].ID == "" || workers[0].Slots == 0 ||
			len(workers[0].Classes) == 0 {
			s.Errorf("workers: %+v, %v", workers, err)
		}
		dead, err := s.c.DeadLetters(s.Context(), 10)
		if err != nil || len(dead) != 0 {
			s.Errorf("dead letters: %+v, %v", dead, err)
		}
	},
	"who waits can leave": func(s *scenario) {
		sub := s.submit(s.batch("b", "wait"))
		why := errors.New("enough")
		for what, wait := range map[string]func(context.Context) error{
			"results":  func(ctx context.Context) error { return failure(sub.Results(ctx)) },
			"watch":    func(ctx context.Context) error { return failure(sub.Watch(ctx)) },
			"progress": func(ctx context.Context) error { return failure(sub.Progress(ctx)) },
		} {
			ctx, cancel := context.WithCancelCause(s.Context())
			time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
			if err := wait(ctx); !errors.Is(err, why) {
				s.Errorf("%s: %v", what, err)
			}
		}
		if err := sub.Cancel(s.Context(), ""); err != nil {
			s.Error(err)
		}
	},
}

// TestWhoDecides: what is stored as the person's name is one. Over HTTP the token says it, and the caller need not.
func TestWhoDecides(t *testing.T) {
	p := start(t, nil)
	s := &scenario{pool: p, c: p.client, agent: "a"}
	over := overHTTP(t, p, client.HTTPOptions{})
	waits := func(id string) (approval string) {
		b := s.batch(id, "write:a")
		b.Session, b.Interactive = toolyard.Session(id), true
		s.submit(b)
		testenv.Until(s, "the call waits", func() bool {
			list, err := s.c.Approvals(s.Context(), s.agent)
			must.OK(s, err)
			for _, a := range list {
				if a.Batch == b.ID {
					approval = a.ID
				}
			}
			return approval != ""
		})
		return approval
	}
	id := waits("b")
	for what, by := range map[string]string{"empty": "", "very long": strings.Repeat("x", 5_000), "no text": "\xff",
		"two lines": "ann\nbob"} {
		err := p.client.Decide(s.Context(), id, client.Decision{Verdict: client.Allow, By: by})
		if in, ok := errors.AsType[*toolyard.InputError](err); !ok || in.Field != "by" {
			t.Errorf("a decision whose name is %s: %v", what, err)
		}
		done, err := p.client.Resolve(s.Context(), s.agent, "b", by, "")
		if in, ok := errors.AsType[*toolyard.InputError](err); !ok || in.Field != "by" || done.Calls > 0 {
			t.Errorf("who resolves has a name that is %s: %v, %+v", what, err, done)
		}
	}
	if err := over.Decide(s.Context(), waits("c"), client.Decision{Verdict: client.Allow}); err != nil {
		t.Errorf("a decision over HTTP without a name: %v", err)
	}
	waits("d")
	if done, err := over.Resolve(s.Context(), s.agent, "d", "", ""); err != nil || done.Calls != 1 {
		t.Errorf("resolved over HTTP without a name: %v, %+v", err, done)
	}
}

// TestTransports: every scenario holds over NATS and over HTTP.
func TestTransports(t *testing.T) {
	p := start(t, nil)
	for i, over := range []struct {
		name   string
		client *client.Client
	}{{"NATS", p.client}, {"HTTP", overHTTP(t, p, client.HTTPOptions{})}} {
		for name, play := range scenarios {
			t.Run(over.name+"/"+name, func(t *testing.T) {
				ctx := *p
				ctx.TB = t
				play(&scenario{pool: &ctx, c: over.client, agent: toolyard.Agent(fmt.Sprintf("%d %s", i, name))})
			})
		}
	}
}
