package hooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/tool"
)

// Options describe the environment of the hooks. A zero field has its default.
type Options struct {
	// Funcs run first, in their order.
	Funcs []Func
	// Config has the commands, endpoints and tools of MCP servers.
	Config Config
	// Dir is the directory of the configuration: commands get it in TOOLYARD_HOOKS_DIR. Empty: they do not.
	Dir string
	// Servers are the MCP servers whose tools may be hooks, and CallTool calls these. Nil: there are none.
	Servers  []string
	CallTool CallTool
	// Mode is the operator's permission mode, for hooks that ask.
	Mode policy.Mode
	// Declarations are those of the known tools: an if is matched with them, and checked.
	Declarations []tool.Declaration
	// Names are the names that a matcher or an if may use, beside those of the declared tools. Nil: any name, for a
	// process that runs no calls.
	Names *policy.Names
	// Env are more variables for all commands, and for the headers of endpoints. They win over the environment.
	Env map[string]string
	// LookupEnv is the environment. Default [os.LookupEnv].
	LookupEnv func(string) (string, bool)
	Log       *slog.Logger
}

// Set is the hooks of an installation. It is safe for concurrent use.
type Set struct {
	handlers []*handler
	mode     policy.Mode
	declared map[string]tool.Declaration
	names    *policy.Names // nil: not checked
	log      *slog.Logger
	left     atomic.Int64 // abandoned Go hooks that still run
	watch    atomic.Pointer[Watch]
}

// Watch is told when a hook begins to run; name is its place in the configuration, or its own. What it returns is
// called when the hook has answered, with why it is broken; nil if it is not. Both return at once.
type Watch func(ctx context.Context, event Event, name string) (ended func(error))

// Watch has each hook watched that begins to run from now on.
func (s *Set) Watch(w Watch) { s.watch.Store(&w) }

var _ pipeline.Hooks = (*Set)(nil)

// handler is one hook, ready to run.
type handler struct {
	event     Event
	name      string
	matcher   matcher
	condition *policy.Rule // nil: none
	timeout   time.Duration
	onFailure OnFailure
	runner
}

// runner runs one kind of hook.
type runner interface {
	// run runs the hook. It returns soon after its context ended.
	run(ctx context.Context, o *occasion) (answer, error)
}

// New makes a set. It fails if the options are inconsistent; the error names the hook.
func New(o Options) (*Set, error) {
	if o.LookupEnv == nil {
		o.LookupEnv = os.LookupEnv
	}
	if own, inherited := o.Env, o.LookupEnv; len(own) > 0 {
		o.LookupEnv = func(name string) (string, bool) {
			if value, ok := own[name]; ok {
				return value, true
			}
			return inherited(name)
		}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Mode == "" {
		o.Mode = policy.Default
	}
	s := &Set{mode: o.Mode, log: o.Log, declared: map[string]tool.Declaration{}}
	if o.Names != nil {
		names := *o.Names
		for _, d := range o.Declarations {
			names.Tools = append(append(slices.Clip(names.Tools), d.Name), d.Aliases...)
		}
		s.names = &names
	}
	for _, d := range o.Declarations {
		s.declared[d.Name] = d
	}
	for i := range o.Funcs {
		h, err := s.funcHandler(&o.Funcs[i], i)
		if err != nil {
			return nil, err
		}
		s.handlers = append(s.handlers, h)
	}
	client := newClient()
	for _, c := range o.Config.handlers {
		h, err := s.configured(c, o, client)
		if err != nil {
			return nil, placeError(c.place, err)
		}
		s.handlers = append(s.handlers, h)
	}
	return s, nil
}

func (s *Set) configured(c handlerConfig, o Options, client *http.Client) (*handler, error) {
	m, err := parseMatcher(c.matcher)
	if err != nil {
		return nil, err
	}
	if err := s.checkMatcher(m); err != nil {
		return nil, fmt.Errorf("matcher: %w", err)
	}
	h := &handler{event: c.event, name: c.place, matcher: m, timeout: c.timeout, onFailure: c.onFailure}
	if c.condition != "" {
		rule, err := parseIf(c.condition, s.declared)
		if err == nil && s.names != nil && !policy.Foreign(rule.Tool) {
			err = s.names.Check(rule.Tool)
		}
		if err != nil {
			return nil, fmt.Errorf("if: %w", err)
		}
		h.condition = &rule
	}
	switch {
	case c.url != "":
		h.runner, err = newEndpoint(c, o.LookupEnv, client)
	case c.tool != "":
		h.runner, err = newMCPTool(c, o)
	default:
		h.runner = newCommand(c, o.LookupEnv, slices.Sorted(maps.Keys(o.Env)), o.Dir)
	}
	return h, err
}

// checkMatcher returns an error for names of a matcher that no tool can have.
func (s *Set) checkMatcher(m matcher) error {
	if s.names == nil {
		return nil
	}
	return m.check(*s.names)
}

// PostTime is how long the hooks after one call may take together.
func (s *Set) PostTime() time.Duration {
	sums := map[Event]time.Duration{}
	for _, h := range s.handlers {
		sums[h.event] += h.timeout
	}
	return max(sums[PostToolUse], sums[PostToolUseFailure])
}

// Pre implements [pipeline.Hooks].
func (s *Set) Pre(ctx context.Context, in pipeline.HookInput) (pipeline.HookVerdict, error) {
	var all []namedAnswer
	var broken []string
	changed := false
	for _, h := range s.matching(PreToolUse, &in) {
		a, err := s.runHook(ctx, h, in)
		if err == nil && a.input != nil {
			err = takeInput(&in, a.input)
			changed = true
		}
		switch {
		case err == nil:
			all = append(all, namedAnswer{h.name, a})
		case ctx.Err() != nil:
			return pipeline.HookVerdict{}, context.Cause(ctx)
		case h.onFailure != Continue:
			return pipeline.HookVerdict{}, fmt.Errorf("%s: %w", h.name, err)
		default:
			broken = append(broken, s.ignored(h, in, err))
		}
	}
	v := combine(all)
	v.Broken = broken
	if changed && !v.Block && !v.Stop && v.Opinion != pipeline.Deny {
		v.Input = in.Input
	}
	return v, nil
}

// takeInput sets a hook's input, for the following hooks and for the pipeline.
func takeInput(in *pipeline.HookInput, update []byte) error {
	back, err := relative(in.Tool, in.WorkspaceDir, in.Input, update)
	if err != nil {
		return fmt.Errorf("its input cannot be read: %w", err)
	}
	now, err := schema.Parse(back)
	if err != nil {
		return fmt.Errorf("its input cannot be read: %w", err)
	}
	was, err := schema.Parse(in.Input)
	if err != nil {
		return fmt.Errorf("the input cannot be read: %w", err)
	}
	if bytes.Equal(now.Canonical(), was.Canonical()) {
		return nil
	}
	if place, found := findPartialChange(now.Doc(), was.Doc(), "updatedInput"); found {
		return fmt.Errorf("%s was changed, and the hook saw only a part of it: send it back as it was, or write it "+
			"anew", place)
	}
	in.Input, in.InputHash = bytes.Clone(now.Canonical()), "" // of the new input nobody has a hash yet
	return nil
}

// Post implements [pipeline.Hooks].
func (s *Set) Post(ctx context.Context, in pipeline.HookInput) (pipeline.HookVerdict, error) {
	event := PostToolUse
	if in.Outcome.IsError {
		event = PostToolUseFailure
	}
	var all []namedAnswer
	var broken []string
	var failed error // of the first hook that blocks because it broke
	var failedBy string
	for _, h := range s.matching(event, &in) {
		a, err := s.runHook(ctx, h, in)
		switch {
		case err == nil:
			all = append(all, namedAnswer{h.name, a})
			if a.output != nil {
				in.Outcome.Output = *a.output
			}
		case ctx.Err() == nil && h.onFailure == Continue:
			broken = append(broken, s.ignored(h, in, err))
		case h.onFailure == Withhold:
			return withheld(h.name), nil
		case failed == nil: // the output is kept, so those behind it look at it all the same
			failed, failedBy = fmt.Errorf("%s: %w", h.name, err), h.name
		}
	}
	v := combine(all)
	switch {
	case failed == nil:
	case v.Block || v.Stop:
		broken = append(broken, failed.Error())
	case v.Output != nil: // the tool's own output, which was replaced, would be shown
		return withheld(failedBy), nil
	default:
		return pipeline.HookVerdict{}, failed
	}
	v.Broken = broken
	return v, nil
}

// withheld is the verdict when a hook broke that should have looked at the output.
func withheld(who string) pipeline.HookVerdict {
	return pipeline.HookVerdict{Block: true, By: who,
		Reason: "a hook that looks at outputs broke, so the output is not shown"}
}

// BatchVerdict is the combined answer of the hooks for a batch.
type BatchVerdict struct {
	// Stop asks the agent to stop before its next turn; Reason says why.
	Stop   bool
	Reason string
	// Context is for the model, beside the results.
	Context string
	// By names the hooks that contributed.
	By string
}

// HasBatch reports whether there is a hook for completed batches.
func (s *Set) HasBatch() bool {
	return slices.ContainsFunc(s.handlers, func(h *handler) bool { return h.event == PostToolBatch })
}

// Batch runs the hooks on a completed batch. An error means that a hook broke whose OnFailure is to block.
func (s *Set) Batch(ctx context.Context, in BatchInput) (BatchVerdict, error) {
	var all []namedAnswer
	dir, cwd, err := directory(in.WorkspaceDir, nil)
	if err != nil {
		return BatchVerdict{}, err
	}
	body, err := s.batchMessage(in, cwd)
	if err != nil {
		return BatchVerdict{}, err
	}
	for _, h := range s.handlers {
		if h.event != PostToolBatch {
			continue
		}
		a, err := s.bounded(ctx, h, &occasion{event: h.event, dir: dir, body: body})
		switch {
		case err == nil:
			all = append(all, namedAnswer{h.name, a})
			if a.note != "" {
				s.log.Warn("a hook says", "hook", h.name, "batch", in.Key, "message", a.note)
			}
		case ctx.Err() != nil:
			return BatchVerdict{}, context.Cause(ctx)
		case h.onFailure != Continue:
			return BatchVerdict{}, fmt.Errorf("%s: %w", h.name, err)
		default:
			s.log.Warn("a hook broke and is left out", "hook", h.name, "batch", in.Key, "error", err)
		}
	}
	v := combine(all)
	return BatchVerdict{Stop: v.Stop || v.Block, Reason: v.Reason,
		Context: clip(v.Context, pipeline.MaxHookContextChars), By: v.By}, nil
}

// matching yields the hooks for a call one by one, so that later hooks are matched against what an earlier one has
// changed.
func (s *Set) matching(event Event, in *pipeline.HookInput) func(func(int, *handler) bool) {
	return func(yield func(int, *handler) bool) {
		for i, h := range s.handlers {
			if h.event == event && h.matcher.matches(in.Tool) &&
				(h.condition == nil || s.conditionMatches(*h.condition, in)) && !yield(i, h) {
				return
			}
		}
	}
}

// runHook runs one hook with its own copy of the event.
func (s *Set) runHook(ctx context.Context, h *handler, in pipeline.HookInput) (answer, error) {
	in.Input = bytes.Clone(in.Input)
	dir, cwd, err := directory(in.WorkspaceDir, in.Root)
	if err != nil {
		return answer{}, err
	}
	body, err := s.callMessage(h.event, in, cwd)
	if err != nil {
		return answer{}, err
	}
	a, err := s.bounded(ctx, h, &occasion{event: h.event, in: in, dir: dir, body: body})
	if err == nil && a.note != "" {
		s.log.Warn("a hook says", "hook", h.name, "batch", in.Key, "call", in.Index, "message", a.note)
	}
	return a, err
}

// bounded runs one hook within its time limit.
func (s *Set) bounded(ctx context.Context, h *handler, o *occasion) (_ answer, err error) {
	if watch := s.watch.Load(); watch != nil {
		ended := (*watch)(ctx, h.event, h.name)
		defer func() { ended(err) }()
	}
	late := fmt.Errorf("it did not answer within %s", h.timeout)
	limited, cancel := context.WithTimeoutCause(ctx, h.timeout, late)
	defer cancel()
	a, err := h.run(limited, o)
	if err != nil && errors.Is(context.Cause(limited), late) && !errors.Is(err, late) { // which may say more
		return answer{}, late
	}
	return a, err
}

// directory returns where a command runs, and the directory that its event names.
func directory(workspace string, root *place.Root) (dir, cwd string, err error) {
	if root != nil {
		return root.Dir(), workspace, root.Check()
	}
	if workspace != "" {
		return workspace, workspace, nil
	}
	if cwd, err = os.Getwd(); err != nil {
		return "", "", fmt.Errorf("find this process's directory: %w", err)
	}
	return "", cwd, nil
}

// ignored logs a broken hook that is ignored, and returns the remark for the call.
func (s *Set) ignored(h *handler, in pipeline.HookInput, err error) string {
	s.log.Warn("a hook broke and is left out", "hook", h.name, "batch", in.Key, "call", in.Index, "error", err)
	return h.name + ": " + err.Error()
}
