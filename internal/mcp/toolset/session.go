package toolset

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/clip"
	"github.com/toolyard/toolyard/internal/manifest"
	wire "github.com/toolyard/toolyard/internal/mcp"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/traceparent"
	"github.com/toolyard/toolyard/tool"
)

// legacyVersion is the revision whose handshake older servers answer.
const legacyVersion = "2025-11-25"

// idempotencyMeta is the key in a request's _meta for the idempotency key, which is the same for every attempt of a
// call.
const idempotencyMeta = "dev.toolyard/idempotency-key"

// session is one connection to a server.
type session struct {
	t    *Toolset
	mcp  *mcp.ClientSession
	wire link
	// relist receives a value when the server says that its tools have changed.
	relist chan struct{}
	// life ends with the session, and its cause is the reason.
	life context.Context
	// broken is closed when no message comes any more; life ends when the server has ended too.
	broken chan struct{}
	end    context.CancelCauseFunc
	mu     sync.Mutex
	// watching are the receivers of progress, by token.
	watching map[string]func(tool.Progress)
	tokens   atomic.Int64
	// open are the tasks of its calls.
	open openTasks
	// calls are those that run, by token. unanswered says that the server may still run one that is over here.
	calls      map[string]*running
	unanswered bool
	// silent counts the calls that timed out since the last sign of life.
	silent atomic.Int64
}

// link is the connection below a session.
type link interface {
	mcp.Transport
	// cut breaks the connection at once; it does not wait. It may be called again.
	cut()
	// wait returns after the connection has ended, with the reason, if known.
	wait() error
}

// open connects to the server, or starts it, within a time limit.
func (t *Toolset) open(ctx context.Context, legacy bool) (*session, error) {
	s := &session{t: t, relist: make(chan struct{}, 1), broken: make(chan struct{}),
		watching: map[string]func(tool.Progress){}}
	s.life, s.end = context.WithCancelCause(context.Background())
	var err error
	if t.o.Server.URL != "" {
		s.wire, err = t.overHTTP(s.listChanged)
	} else {
		s.wire, err = t.overStdio()
	}
	if err != nil {
		return nil, err
	}
	starting, cancel := s.starting(ctx)
	defer cancel()
	// The SDK does not always give up by itself: the connection below it ends with the time limit.
	defer context.AfterFunc(starting, s.wire.cut)()
	client := mcp.NewClient(&mcp.Implementation{Name: "toolyard", Version: t.o.Version}, &mcp.ClientOptions{
		Capabilities:           s.capabilities(),
		MultiRoundTrip:         &mcp.MultiRoundTripOptions{Disabled: true},
		ElicitationHandler:     s.asksNow(),
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { s.listChanged() },
		ProgressNotificationHandler: func(_ context.Context,
			r *mcp.ProgressNotificationClientRequest) {
			s.progress(r.Params)
		},
	})
	client.AddReceivingMiddleware(unharmed)
	client.AddSendingMiddleware(unharmed)
	if err := addTasks(client); err != nil {
		s.wire.cut()
		return nil, errors.Join(err, s.wire.wait())
	}
	options := &mcp.ClientSessionOptions{}
	if legacy {
		options.ProtocolVersion = legacyVersion
	}
	if s.mcp, err = client.Connect(starting, s.wire, options); err != nil {
		s.wire.cut()
		err = errors.Join(fmt.Errorf("connect: %w", err), s.wire.wait())
		if starting.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("it was not ready within %s: %w", s.startTimeout(), err)
		}
		return nil, err
	}
	go func() {
		err := s.mcp.Wait()
		close(s.broken)
		s.wire.cut()
		if end := s.wire.wait(); end != nil { // it knows more than the last read
			err = end
		}
		s.end(cmp.Or(err, errEnded))
	}()
	return s, nil
}

// elicitationComplete says that a question that was put elsewhere has its answer. We ask none so.
const elicitationComplete = "notifications/elicitation/complete"

// unharmed has what the library panics at be an error: parameters and fields that are not there. It reads messages in
// goroutines of its own and of ours, where a panic would end the worker.
func unharmed(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		if method == elicitationComplete { // the library would panic with its lock taken
			return nil, nil
		}
		defer func() {
			if v := recover(); v != nil {
				res, err = nil, fmt.Errorf("a message cannot be read: %v", v)
			}
		}()
		return next(ctx, method, req)
	}
}

func (s *session) startTimeout() time.Duration {
	return time.Duration(s.t.o.Server.StartTimeoutMS) * time.Millisecond
}

// starting bounds the time to the first list of tools, and that of each later list.
func (s *session) starting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.startTimeout())
}

// errEnded is for a session that ended for an unknown reason.
var errEnded = errors.New("the session ended")

// abandon ends the session. The next one begins after the pause.
func (s *session) abandon(err error) {
	s.end(err)
	s.wire.cut()
}

// close ends the session, its tasks and calls first, and waits until nothing of it is left. It returns how it ended, if
// known.
func (s *session) close() error {
	s.cancelTasks()
	s.end(errEnded)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = s.mcp.Close() // the session ends anyway
	}()
	select {
	case <-closed:
	case <-time.After(stopGrace):
	}
	s.wire.cut()
	err := s.wire.wait()
	<-closed
	return err
}

func (s *session) listChanged() {
	select {
	case s.relist <- struct{}{}:
	default: // a listing is due already
	}
}

// list fetches and converts the server's tools. A list that is too long is an error, because a part of it would be
// surprising.
func (s *session) list(ctx context.Context) (offered, error) {
	ctx, cancel := s.starting(ctx)
	defer cancel()
	var all []*mcp.Tool
	size := 0
	params := &mcp.ListToolsParams{}
	for range MaxPages {
		res, err := s.mcp.ListTools(ctx, params)
		if err != nil {
			return offered{}, fmt.Errorf("list the tools: %w", err)
		}
		all = append(all, res.Tools...)
		if most := s.t.o.Server.MaxTools; len(all) > most {
			return offered{}, fmt.Errorf("it lists more than %d tools; raise max_tools", most)
		}
		page, err := json.Marshal(res.Tools)
		if err != nil {
			return offered{}, fmt.Errorf("list the tools: %w", err)
		}
		if size += len(page); size > MaxListBytes {
			return offered{}, fmt.Errorf("its list of tools has more than %d bytes", MaxListBytes)
		}
		if res.NextCursor == "" {
			return s.declare(all), nil
		}
		params = &mcp.ListToolsParams{Cursor: res.NextCursor}
	}
	return offered{}, fmt.Errorf("its list of tools has more than %d pages", MaxPages)
}

// offered is what a toolset uses of a server's list.
type offered struct {
	tools   []tool.Tool
	remarks []registry.Remark
}

// log says what is wrong with a list. How tools are offered otherwise than they are declared, "worker check" says.
func (o offered) log(to *slog.Logger) {
	altered := map[string]bool{}
	for _, r := range o.remarks {
		if r.LeftOut {
			to.Warn("a tool of an MCP server is left out", "tool", r.Tool, "error", r.Why)
		} else {
			altered[r.Tool] = true
		}
	}
	if len(altered) > 0 {
		to.Info("tools of an MCP server are not offered as it declares them; worker check says how", "tools",
			len(altered))
	}
}

// declare makes tools from a list. It leaves out tools that cannot be used and repeated names.
func (s *session) declare(all []*mcp.Tool) offered {
	out := offered{tools: []tool.Tool{}} // not nil: a list exists
	server := &s.t.o.Server
	remark := func(name string, leftOut bool, why string) {
		name = manifest.ToolName(server.Name, clip.Bytes(name, toolyard.MaxNameBytes))
		r := registry.Remark{Tool: name, LeftOut: leftOut, Why: why}
		out.remarks = append(out.remarks, r.Shorten())
	}
	listed := map[string]bool{}
	for _, listedTool := range all {
		if listedTool == nil || len(server.Only) > 0 && !slices.Contains(server.Only, listedTool.Name) {
			continue
		}
		made, lines, err := s.tool(listedTool)
		if err == nil && listed[listedTool.Name] {
			err = errSecond
		}
		if err != nil {
			remark(listedTool.Name, true, err.Error())
			continue
		}
		for _, line := range lines {
			remark(listedTool.Name, false, line)
		}
		listed[listedTool.Name] = true
		out.tools = append(out.tools, made)
	}
	for _, name := range server.Only {
		if !listed[name] && !slices.ContainsFunc(all, func(t *mcp.Tool) bool { return t != nil && t.Name == name }) {
			remark(name, true, "the manifest wants it, and the server does not list it")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(server.Tools)) {
		if !listed[name] && !slices.Contains(server.Only, name) {
			remark(name, false, "the manifest says something of it, and the server does not list it")
		}
	}
	return out
}

// errSecond is for a name that was listed before.
var errSecond = errors.New("the server lists two tools of this name; this is the second")

// tool converts one tool of the server.
func (s *session) tool(listed *mcp.Tool) (made tool.Tool, altered []string, err error) {
	d, altered, err := declaration(&s.t.o.Server, listed)
	if err != nil {
		return tool.Tool{}, nil, err
	}
	c := call{name: listed.Name, task: supportOf(listed), patience: d.Timeout(),
		again: d.Complete(tool.Judgement{}, d.ReadOnly).Idempotent}
	if idle := d.IdleTimeout(); idle > 0 {
		c.patience = min(c.patience, idle)
	}
	t := s.t
	run := func(ctx context.Context, env tool.Env, input json.RawMessage) (tool.Output, error) {
		s, err := t.current() // not the session that listed it, which may have ended
		if err != nil {
			return tool.Output{}, err
		}
		if env.CommitPoint != nil {
			if err := env.CommitPoint(); err != nil {
				return tool.Output{}, err
			}
		}
		return s.call(ctx, env, c, input)
	}
	made, err = tool.Raw(tool.Tool{Declaration: d, Run: run})
	return made, altered, err
}

// errCut says that the response that should contain an answer ended without it.
var errCut = errors.New("the response ended without an answer")

// call has the constants of a tool's calls.
type call struct {
	name     string        // the server's name of the tool
	task     wire.Support  // whether it can be called as a task
	again    bool          // it may be repeated
	patience time.Duration // after which the server counts as silent
}

// call makes one call.
func (s *session) call(ctx context.Context, env tool.Env, c call, input json.RawMessage) (tool.Output, error) {
	began := time.Now()
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Whatever the SDK waits for, the end of the session ends it.
	defer context.AfterFunc(s.life, func() { cancel(context.Cause(s.life)) })()
	asking, res := withResponses(asking, func() { cancel(errCut) })
	token := strconv.FormatInt(s.tokens.Add(1), 10)
	s.watch(token, env.Progress)
	defer s.watch(token, nil)
	params := &mcp.CallToolParams{Name: c.name, Arguments: input, Meta: mcp.Meta{}}
	if env.IdempotencyKey != "" {
		params.Meta[idempotencyMeta] = env.IdempotencyKey
	}
	trace := traceparent.Context{Parent: env.TraceParent, State: env.TraceState, Baggage: env.Baggage}
	for name, value := range trace.Fields {
		params.Meta[name] = value
	}
	params.SetProgressToken(token)
	switch next, err := s.answered(ctx, params); {
	case err != nil:
		return tool.Output{}, err
	case next != nil:
		return tool.Output{}, next
	}
	s.askFor(ctx, c, params)
	asks, answered := s.begins(ctx, token, c), false
	defer func() { s.ends(token, answered) }()
	asking = context.WithValue(asking, callKey{}, token)
	answers := make(chan callAnswer, 1)
	go func() { // a write may block if the server does not read, even after the context has ended
		res, err := s.mcp.CallTool(asking, params)
		answers <- callAnswer{res, err}
	}()
	var got callAnswer
	select {
	case got = <-answers:
		answered = got.answered()
	case q := <-asks.asked:
		var err error
		answered, err = s.endWith(ctx, asking, q, answers)
		return tool.Output{}, err
	case <-asking.Done():
		select { // both may be ready
		case got = <-answers:
			answered = got.answered()
		default:
			got.err = context.Cause(asking)
		}
	}
	if q := asks.question(); q != nil && ctx.Err() == nil { // the server has ended the call at once
		return tool.Output{}, q
	}
	if got.err == nil {
		s.silent.Store(0)
		task, isTask, err := s.madeTask(got.res)
		switch {
		case err != nil:
			return tool.Output{}, brokeOff(s.t.o.Server.Name, err, c.again)
		case isTask:
			s.hush(asks, errTask.Error())
			out, err := s.follow(ctx, env, c, task)
			answered = err == nil
			return out, err
		case got.res != nil && len(got.res.InputRequests) > 0:
			return tool.Output{}, s.question(ctx, got.res)
		}
		out, err := output(got.res)
		return out, s.explained(asks, err)
	}
	if ctx.Err() != nil {
		if time.Since(began) >= c.patience {
			s.countTimeout()
		}
		return tool.Output{}, context.Cause(ctx)
	}
	if asking.Err() != nil {
		got.err = context.Cause(asking)
	}
	return tool.Output{}, s.explained(asks, s.failed(got.err, c.again, res))
}

// callKey is the key in a context for the token of the call that a request makes.
type callKey struct{}

// callAnswer is what came of a request for a call.
type callAnswer struct {
	res *mcp.CallToolResult
	err error
}

// answered reports whether the server has answered.
func (a callAnswer) answered() bool {
	refused, ok := errors.AsType[*jsonrpc.Error](a.err)
	return a.err == nil || ok && refused.Code != codeRejected
}

// Ask calls a tool of the server for its operator, as a hook, and returns the text of its answer, or its data where it
// has no text. A tool that fails is an error.
func (t *Toolset) Ask(ctx context.Context, name string, input json.RawMessage) (string, error) {
	s, err := t.current()
	if err != nil {
		return "", err
	}
	out, err := s.call(ctx, tool.Env{}, call{name: name, patience: tool.DefaultTimeout}, input)
	if err != nil {
		return "", err
	}
	return cmp.Or(toolyard.TextOf(out.Content), string(out.Structured)), nil
}

// countTimeout ends the session after the server has shown no sign of life for several calls, each for as long as its
// tool may take. A call that was stopped earlier does not count.
func (s *session) countTimeout() {
	if n := s.silent.Add(1); n >= maxSilent {
		s.abandon(fmt.Errorf("%d calls in a row were not answered in time", n))
	}
}

// codeRejected is the SDK's JSON-RPC code for a request that was refused at the HTTP level. It is not an answer of the
// server.
const codeRejected = -32005

// failed is the error of a call without a result.
func (s *session) failed(err error, again bool, res *responses) error {
	server := s.t.o.Server.Name
	status, pause := res.last()
	denied := (status == http.StatusUnauthorized || status == http.StatusForbidden) && !res.taken() // also in JSON-RPC
	refused, ok := errors.AsType[*jsonrpc.Error](err)
	if ok && refused.Code != codeRejected && !denied && !s.brokenBy(refused) {
		s.silent.Store(0)
		return refusal(server, refused)
	}
	switch {
	case res.taken(): // what it answers to a request for the rest of its events says nothing about the call
	case status == http.StatusNotFound && errors.Is(err, mcp.ErrSessionMissing): // it was restarted, for example
		return tool.Unavailable(err, "The MCP server %q has ended the session; the call was not made.", server)
	case denied:
		return &tool.Error{Code: toolyard.SetupRequired, Err: err,
			Message: fmt.Sprintf("The MCP server %q does not accept this worker's credentials; an operator has to "+
				"mend that.", server)}
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		e := tool.AsError(tool.Unavailable(err, "The MCP server %q has too much to do; the call was not made.", server))
		e.RetryAfterMS = pause.Milliseconds()
		return e
	case status == 0 && notSent(err):
		return tool.Unavailable(err, "The MCP server %q could not be reached; the call was not made.", server)
	case status == 0: // how the session ended says more than that it did
		select {
		case <-s.life.Done():
			err = context.Cause(s.life)
		case <-time.After(stopGrace):
			// It is there and has read the call: what it answered is no result.
			if w, started := s.wire.(*stdio); started && !s.isBroken() && !w.unwritten.Load() {
				s.silent.Store(0)
				return &tool.Error{Code: toolyard.ResultMappingFailed, Err: err,
					Message: "the server's result cannot be read"}
			}
		}
	}
	return brokeOff(server, err, again)
}

// isBroken reports whether no message comes any more.
func (s *session) isBroken() bool {
	select {
	case <-s.broken:
		return true
	default:
		return false
	}
}

// brokenBy reports whether an error is not the server's answer: the SDK has the same codes for a message that it cannot
// read, whatever it is about, ends the session for it, and each open call with it.
func (s *session) brokenBy(e *jsonrpc.Error) bool {
	if e.Code != jsonrpc.CodeParseError && e.Code != jsonrpc.CodeInvalidRequest {
		return false
	}
	select {
	case <-s.broken:
		return true
	case <-time.After(stopGrace):
		return false
	}
}

// brokeOff is the error of a call of which the server says nothing more.
func brokeOff(server string, err error, again bool) error {
	if again {
		return tool.Unavailable(err, "The MCP server %q broke off during the call.", server)
	}
	return &tool.Error{Code: toolyard.OutcomeUnknown, Err: err,
		Message: fmt.Sprintf("The MCP server %q broke off during the call. It may or may not have taken effect: "+
			"check before trying again.", server)}
}

// refusal is a JSON-RPC error: the server did not run the tool.
func refusal(server string, e *jsonrpc.Error) error {
	message := fmt.Sprintf("The MCP server %q refused the call: %s", server, clip.Bytes(e.Message, MaxStatusBytes))
	code := toolyard.ExecutionFailed
	if e.Code == jsonrpc.CodeInvalidParams {
		code = toolyard.InvalidArguments
	}
	return &tool.Error{Code: code, Message: message, Err: fmt.Errorf("JSON-RPC error %d", e.Code)}
}

// watch sets the receiver of progress for a token; nil removes it.
func (s *session) watch(token string, fn func(tool.Progress)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fn == nil {
		delete(s.watching, token)
	} else {
		s.watching[token] = fn
	}
}

func (s *session) progress(p *mcp.ProgressNotificationParams) {
	s.silent.Store(0)
	token, ok := p.ProgressToken.(string)
	if !ok {
		return
	}
	s.mu.Lock()
	fn := s.watching[token]
	s.mu.Unlock()
	if fn == nil {
		return // for a call that has ended, or never existed
	}
	fraction := -1.0
	if p.Total > 0 {
		fraction = max(0, min(1, p.Progress/p.Total))
	}
	fn(tool.Progress{Fraction: fraction, Status: clip.Bytes(p.Message, MaxStatusBytes)})
}

// programVariables are the variables of the worker's environment that every started server gets.
var programVariables = []string{"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG", "LC_ALL"}

// environment is a started server's environment, as the manifest says.
func environment(s *manifest.Server, lookup func(string) (string, bool)) []string {
	var out []string
	for _, name := range slices.Concat(programVariables, s.Credentials) {
		if value, ok := lookup(name); ok && s.Env[name] == "" {
			out = append(out, name+"="+value)
		}
	}
	for name, value := range s.Env {
		out = append(out, name+"="+value)
	}
	return out
}
