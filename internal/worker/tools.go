package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/tool"
)

// toolbox is the tools whose code this worker has. It runs all of them; it offers those that are enabled and that no
// rule takes out.
type toolbox struct {
	pool  toolyard.Pool
	fixed []runnable
	sets  []Toolset
	// blocked reports what a deny rule takes out of what is offered.
	blocked func(name string, aliases []string) bool
	log     *slog.Logger
	// stale says that the toolsets may have other tools by now. next are other fixed tools, toolsets and rules, which
	// count from the next refresh on; nil when there are none.
	stale atomic.Bool
	next  atomic.Pointer[toolbox]
	// offered is what was offered last. Only whoever announces looks at it, and at have.
	offered offer
	have    []runnable
	// asking are the answers to come of tools that were asked whether they are enabled. Only whoever announces looks
	// at it.
	asking map[codeKey]asked
	// remarks are about the tools of the toolsets.
	remarks []registry.Remark

	mu sync.RWMutex
	// all is what it runs, also for batches that were planned when more was enabled, and code how.
	all  registry.Surface
	code map[codeKey]*runnable
}

// runnable is a tool with its code, where it comes from, and the toolset that it is of; nil for a fixed one.
type runnable struct {
	tool.Tool
	origin registry.Origin
	set    Toolset
}

type codeKey struct {
	origin registry.Origin
	name   string
}

// offer is what is announced: the tools as they are enabled now.
type offer struct {
	hash    string
	encoded []byte
	enabled []bool // of each tool that there is
}

func newToolbox(cfg Config) (*toolbox, error) {
	ts := &toolbox{pool: cfg.Pool, sets: cfg.Toolsets, blocked: cfg.Rules.Blocks, log: cfg.Log.With("worker", cfg.ID)}
	names := map[string]bool{}
	add := func(tools []tool.Tool, origin registry.Origin) error {
		for _, t := range tools {
			if names[t.Name] {
				return fmt.Errorf("there are two tools %q", t.Name)
			}
			names[t.Name] = true
			t, err := tool.Raw(t) // not every tool was made by it
			if err != nil {
				return err
			}
			ts.fixed = append(ts.fixed, runnable{grant(t, cfg.Credentials[t.Name]), origin, nil})
		}
		return nil
	}
	if err := errors.Join(add(cfg.Tools, cfg.Origin), add(cfg.Declared, registry.Toolset)); err != nil {
		return ts, err
	}
	for name := range cfg.Credentials {
		if !names[name] {
			return ts, fmt.Errorf("a credential is granted to the tool %q, which this worker does not have", name)
		}
	}
	return ts, ts.refresh()
}

// refresh takes over the tools that the toolsets have now. What is wrong with a tool of a toolset leaves out that
// tool; with a fixed one, it is an error.
func (ts *toolbox) refresh() error {
	if next := ts.next.Swap(nil); next != nil {
		ts.fixed, ts.sets, ts.blocked, ts.asking = next.fixed, next.sets, next.blocked, nil
	}
	reg, have, code := registry.Registry{}, []runnable{}, map[codeKey]*runnable{}
	from := map[string]string{} // who has a name, for the log
	add := func(r runnable) error {
		who := string(r.origin)
		if r.set != nil {
			who = "server " + r.set.Name()
		}
		if other, taken := from[r.Name]; taken {
			return fmt.Errorf("%s has a tool of this name", other)
		}
		next, err := reg.Register(ts.entry(&r))
		if err == nil {
			reg, have, code[codeKey{r.origin, r.Name}] = next, append(have, r), &r
			from[r.Name] = who
		}
		return err
	}
	for _, r := range ts.fixed {
		if err := add(r); err != nil {
			return fmt.Errorf("put the tools together: %w", err)
		}
	}
	var remarks []registry.Remark
	for _, set := range ts.sets {
		remarks = append(remarks, set.Remarks()...)
		for _, t := range set.Tools() {
			if err := add(runnable{t, set.Origin(), set}); err != nil {
				ts.log.Warn("a tool of a toolset is left out", "toolset", set.Name(), "tool", t.Name, "error", err)
				remarks = append(remarks, registry.Remark{Tool: t.Name, LeftOut: true, Why: err.Error()})
			}
		}
	}
	s, err := registry.Assemble(reg, nil)
	if err != nil {
		return fmt.Errorf("put the tools together: %w", err)
	}
	ts.have, ts.offered, ts.remarks = have, offer{}, registry.Bounded(remarks)
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.all, ts.code = s, code
	return nil
}

func (ts *toolbox) entry(r *runnable) registry.Entry {
	return registry.Entry{Declaration: r.Declaration, Origin: r.origin, Pool: ts.pool}
}

// grant gives a tool's code its credentials with each call. Nothing else is told of them: they are not part of the job.
func grant(t tool.Tool, credentials map[string]string) tool.Tool {
	granted := func(name string) (string, bool) {
		value, ok := credentials[name]
		return value, ok
	}
	run, check := t.Run, t.Check
	t.Run = func(ctx context.Context, env tool.Env, input json.RawMessage) (tool.Output, error) {
		env.Granted = granted
		return run(ctx, env, input)
	}
	if check != nil {
		t.Check = func(ctx context.Context, env tool.Env, input json.RawMessage) error {
			env.Granted = granted
			return check(ctx, env, input)
		}
	}
	if permission := t.CheckPermission; permission != nil {
		t.CheckPermission = func(ctx context.Context, env tool.Env, input json.RawMessage) (tool.Permission, error) {
			env.Granted = granted
			return permission(ctx, env, input)
		}
	}
	if diff := t.Diff; diff != nil {
		t.Diff = func(ctx context.Context, env tool.Env, input json.RawMessage) (string, error) {
			env.Granted = granted
			return diff(ctx, env, input)
		}
	}
	return t
}

// setOf is the toolset that a tool is of, if it is of one.
func (ts *toolbox) setOf(e *registry.Entry) Toolset {
	ts.mu.RLock()
	defer ts.mu.RUnlock()
	if r := ts.code[codeKey{e.Origin, e.Name}]; r != nil {
		return r.set
	}
	return nil
}

// offer takes over what the toolsets have now, if that may be something else, and asks each tool whether it is
// enabled.
func (ts *toolbox) offer(ctx context.Context) (offer, error) {
	if ts.stale.Swap(false) {
		if err := ts.refresh(); err != nil {
			ts.stale.Store(true)
			return offer{}, err
		}
	}
	now := offer{enabled: ts.enabled(ctx)}
	var entries []registry.Entry
	for i := range ts.have {
		if now.enabled[i] {
			entries = append(entries, ts.entry(&ts.have[i]))
		}
	}
	if ts.offered.hash != "" && slices.Equal(now.enabled, ts.offered.enabled) {
		return ts.offered, nil
	}
	reg, err := registry.Registry{}.Register(entries...)
	if err != nil {
		return offer{}, fmt.Errorf("put the tools together: %w", err)
	}
	s, err := registry.Assemble(reg, ts.blocked)
	if err != nil {
		return offer{}, fmt.Errorf("put the tools together: %w", err)
	}
	now.hash = s.Hash
	if now.encoded, err = s.Encode(); err != nil {
		return offer{}, err
	}
	ts.offered = now
	return now, nil
}

// tools is how many tools are offered to models.
func (ts *toolbox) tools(o offer) (n int) {
	for i, enabled := range o.enabled {
		if enabled && registry.ForModels(ts.have[i].Name) {
			n++
		}
	}
	return n
}

const (
	// enabledWait is how long the tools have, side by side, to say whether they are enabled.
	enabledWait = time.Second
	// enabledKept is how long the answer of a tool that takes longer counts, while it is asked again.
	enabledKept = 10 * time.Second
)

// saying is what a tool says of whether it is enabled, and how long it took to.
type saying struct {
	enabled bool
	took    time.Duration
}

// asked is the answer to come of a tool that takes long, and its last one.
type asked struct {
	answer <-chan saying
	last   bool
	since  time.Time
}

// enabled asks the tools whether they are enabled, and returns what each says. One that does not say it in time is not
// enabled until it does: the worker's heartbeat waits for it, and must not wait for long. What it says then counts for
// a while, and it is asked again at once.
func (ts *toolbox) enabled(ctx context.Context) []bool {
	out, waiting := make([]bool, len(ts.have)), make([]<-chan saying, len(ts.have))
	for i := range ts.have {
		t := &ts.have[i]
		key := codeKey{t.origin, t.Name}
		late, slow := ts.asking[key]
		switch {
		case t.Enabled == nil:
			out[i] = true
		case !slow:
			waiting[i] = ask(t.Enabled)
		default:
			select {
			case said := <-late.answer:
				out[i] = said.enabled
				if delete(ts.asking, key); said.took >= enabledWait {
					ts.asking[key] = asked{ask(t.Enabled), said.enabled, time.Now()}
				}
			default: // it is not asked twice at a time
				out[i] = late.last && time.Since(late.since) < enabledKept
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, enabledWait)
	defer cancel()
	for i, answer := range waiting {
		if answer == nil {
			continue
		}
		select {
		case said := <-answer:
			out[i] = said.enabled
			continue
		case <-ctx.Done():
		}
		select {
		case said := <-answer:
			out[i] = said.enabled
		default:
			t := &ts.have[i]
			ts.log.Warn("a tool does not say whether it is enabled; it is not offered until it does", "tool",
				t.Name)
			if ts.asking == nil {
				ts.asking = map[codeKey]asked{}
			}
			ts.asking[codeKey{t.origin, t.Name}] = asked{answer: answer}
		}
	}
	return out
}

// ask asks a tool whether it is enabled. One that panics, or ends its goroutine, is not.
func ask(enabled func() bool) <-chan saying {
	answer := make(chan saying, 1)
	go func() {
		begin, yes := time.Now(), false
		defer func() {
			if recover() != nil {
				yes = false
			}
			answer <- saying{yes, time.Since(begin)}
		}()
		yes = enabled()
	}()
	return answer
}

// Lookup implements [pipeline.Tools].
func (ts *toolbox) Lookup(name string) (*tool.Tool, *registry.Entry, bool) {
	ts.mu.RLock()
	defer ts.mu.RUnlock()
	e, code := ts.all.Find(name, nil) // whether a deferred tool was loaded was decided at plan
	if code == toolyard.OK || code == toolyard.SchemaNotLoaded {
		if r := ts.code[codeKey{e.Origin, e.Name}]; r != nil {
			return &r.Tool, e, true
		}
	}
	return &tool.Tool{}, e, false
}

// blobs implements [pipeline.Blobs].
type blobs struct{ b Broker }

func (s blobs) Put(ctx context.Context, k toolyard.BatchKey, content string) (string, error) {
	return s.b.PutResult(ctx, k.Agent, []byte(content))
}

// agentBlobs implements [tool.Blobs] for one call.
type agentBlobs struct {
	b     Broker
	key   toolyard.BatchKey
	index int
}

func (s agentBlobs) ReadBlob(ctx context.Context, ref string) ([]byte, error) {
	return s.b.Result(broker.ForCall(ctx, s.key, s.index), s.key.Agent, ref)
}
