package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/provider"
	"github.com/toolyard/toolyard/internal/traceparent"
)

// The fields of a request's _meta that are ours. A batch id makes a call one that can be asked for again: the same id
// with the same content runs nothing a second time.
const (
	metaBatch     = "dev.toolyard/batch"
	metaSession   = "dev.toolyard/session"
	metaWorkspace = "dev.toolyard/workspace"
	metaLinks     = "dev.toolyard/links"
)

// callTool answers calls of one tool: each is a batch of one call, and ends with it. What is wrong with the request is
// an error of the protocol, and so is a tool that is not there. All else is a result, which the model reads.
func (s *Server) callTool(t listed) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		who := s.callerOf(req.Extra)
		if s.cfg.Hide != nil && s.cfg.Hide(who.Agent, t.name, t.aliases) {
			return nil, unknown(req.Params.Name)
		}
		batch, err := s.batchOf(req, who, t)
		if err != nil {
			return nil, err
		}
		if err := s.plan(ctx, req, t, &batch); err != nil {
			return nil, err
		}
		leave, full := s.enter(who.Agent)
		if full != "" {
			return failed("%s. Call again in a moment.", full), nil
		}
		defer leave()
		defer beat(ctx, s.cfg.KeepAlive)()
		if req.Params.RequestState != "" {
			return s.resume(ctx, req, &batch)
		}
		if ctx.Err() != nil { // nobody waits for what has not begun
			return nil, context.Cause(ctx)
		}
		if t.deferred { // who was given the list has seen its schema
			if _, err := s.cfg.Client.LoadTools(ctx, who.Agent, batch.Session, t.name); err != nil {
				return s.failedAt("load a deferred tool", err,
					"The pool does not answer now, and this call was not handed in. Call again in a moment."), nil
			}
		}
		// A request that is canceled meanwhile waits for the answer: what was stored runs, and has to be canceled.
		storing, done := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer done()
		b, err := s.submit(traceparent.With(storing, traceOf(req)), batch, req.Params.GetProgressToken() != nil)
		if err != nil {
			return s.notSubmitted(err)
		}
		if task, ok := ctx.Value(taskCallKey{}).(*taskCall); ok && task.at {
			return s.becomeTask(ctx, task, req, b, batch.Interactive)
		}
		var ask *time.Time
		if batch.Interactive {
			ask = new(time.Time)
		}
		return s.await(ctx, req, &batch, b, ask)
	}
}

// traceOf is the trace context of a request: that of its _meta, else of its HTTP request. A trace state is only taken
// from where its trace context is, and baggage from either.
func traceOf(req *mcp.CallToolRequest) (c traceparent.Context) {
	if req.Extra != nil {
		c = traceparent.OfFields(req.Extra.Header.Values)
	}
	text := func(name string) string {
		text, _ := req.Params.Meta[name].(string)
		return text
	}
	own := traceparent.Of(text(traceparent.Header), text(traceparent.StateHeader), text(traceparent.BaggageHeader))
	if _, ok := req.Params.Meta[traceparent.Header].(string); ok {
		c.Parent, c.State = own.Parent, own.State
	}
	if _, ok := req.Params.Meta[traceparent.BaggageHeader].(string); ok {
		c.Baggage = own.Baggage
	}
	return c
}

// submit stores a batch. told says that its progress is told from the first report on.
func (s *Server) submit(ctx context.Context, b toolyard.Batch, told bool) (sub *client.Batch, err error) {
	if s.cfg.Trace != nil {
		traced, end := s.cfg.Trace(ctx, "mcp")
		defer func() { end(err) }()
		ctx = traced
	}
	if told {
		return s.cfg.Client.SubmitAndListen(ctx, b)
	}
	return s.cfg.Client.Submit(ctx, b)
}

// batchOf makes the batch of a request.
func (s *Server) batchOf(req *mcp.CallToolRequest, who Caller, t listed) (toolyard.Batch, error) {
	input := req.Params.Arguments
	if len(input) == 0 || string(input) == "null" {
		input = []byte("{}")
	}
	if err := provider.CheckJSON(input); err != nil {
		return toolyard.Batch{}, malformed("arguments: %v", err)
	}
	if input[0] != '{' {
		return toolyard.Batch{}, malformed("arguments: want an object")
	}
	batch := toolyard.Batch{
		Agent: who.Agent, Session: who.Session, Workspace: who.Workspace,
		Interactive: s.cfg.Approvals && hasForms(req.ClientCapabilities()),
		Calls:       []toolyard.Call{{Tool: t.name, Input: input}},
		Options:     toolyard.Options{TimeoutMS: s.cfg.CallTimeout.Milliseconds(), Deny: s.cfg.Deny, Ask: s.cfg.Ask},
	}
	for _, m := range []struct {
		key string
		set func(string)
	}{
		{metaBatch, func(v string) { batch.ID = toolyard.BatchID(v) }},
		{metaSession, func(v string) { batch.Session = toolyard.Session(v) }},
		{metaWorkspace, func(v string) { batch.Workspace = toolyard.Workspace(v) }},
	} {
		v, there := req.Params.Meta[m.key]
		if !there {
			continue
		}
		name, ok := v.(string)
		if !ok {
			return batch, malformed("_meta[%q]: want a text", m.key)
		}
		if err := toolyard.CheckName(fmt.Sprintf("_meta[%q]", m.key), name); err != nil {
			return batch, malformed("%v", err)
		}
		m.set(name)
	}
	if v, there := req.Params.Meta[metaLinks]; there {
		if _, ok := v.(bool); !ok {
			return batch, malformed("_meta[%q]: want true or false", metaLinks)
		}
	}
	if who.Permit == nil {
		return batch, nil
	}
	asks := batch.Interactive
	if err := who.Permit(&batch); err != nil {
		return batch, malformed("%v", err)
	}
	if asks && !batch.Interactive && req.Params.RequestState != "" {
		return batch, malformed("the token does not say that a person can be asked")
	}
	return batch, nil
}

// notSubmitted says why a batch was not accepted.
func (s *Server) notSubmitted(err error) (*mcp.CallToolResult, error) {
	var in *toolyard.InputError
	switch {
	case errors.As(err, &in), errors.Is(err, client.ErrOtherContent):
		return nil, malformed("%v", err)
	case errors.Is(err, client.ErrNoAnswer): // it may have been stored
	case errors.Is(err, client.ErrFull):
		return failed("The pool takes no more calls now. Call again in a moment."), nil
	}
	return s.unreachable("submit a call", err), nil
}

// unreachable is the result of a call that the pool said nothing about.
func (s *Server) unreachable(what string, err error) *mcp.CallToolResult {
	return s.failedAt(what, err, "The pool does not answer now, so it is not known whether the call has run. Look at "+
		"what it should have changed before you call it again.")
}

// failedAt is the result of a call that failed at something, which the log says, and what the model is told.
func (s *Server) failedAt(what string, err error, says string) *mcp.CallToolResult {
	s.cfg.Log.Error("a call over MCP failed", "at", what, "error", err)
	return failed("%s", says)
}

// await waits for the result of a batch, and passes on what its call reports meanwhile. Where a person can be asked, it
// ends with the question that was asked after a time, when there is one, or with the task that the call becomes; ask is
// nil where nobody can be. A client that goes before there is
// a result cancels the batch; a server that stops does not.
func (s *Server) await(ctx context.Context, req *mcp.CallToolRequest, sent *toolyard.Batch, b *client.Batch,
	ask *time.Time) (*mcp.CallToolResult, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, s.cfg.MaxWait, errLate)
	defer cancel()
	unneeded := context.AfterFunc(s.stopping, cancel)
	defer unneeded()
	told := s.tellProgress(waiting, req, b)
	asked := make(chan client.Approval, 1)
	if ask != nil {
		go s.lookForQuestion(waiting, b, *ask, asked)
	}
	var long <-chan time.Time
	task := mayBecome(ctx, b)
	if task != nil {
		timer := time.NewTimer(s.cfg.TaskAfter)
		defer timer.Stop()
		long = timer.C
	}
	results := make(chan outcome, 1)
	go func() { results <- first(waiting, b) }()
	select {
	case <-long:
		cancel()
		<-told
		return s.becomeTask(ctx, task, req, b, ask != nil)
	case a := <-asked:
		cancel()
		<-told
		if task != nil {
			return s.becomeTask(ctx, task, req, b, ask != nil)
		}
		return s.question(ctx, req, sent, b, a)
	case o := <-results:
		late := errors.Is(context.Cause(waiting), errLate)
		cancel()
		<-told // nothing is told about a call that is over
		if o.err == nil {
			return s.answer(ctx, s.wishOf(req), b, &o.result)
		}
		return s.abandoned(ctx, req, b, o.err, late)
	}
}

// errLate is why a wait ended that had its time.
var errLate = errors.New("the request has waited for as long as it may")

type outcome struct {
	result toolyard.Result
	err    error
}

// first is the one result of a batch, once the batch is over: hooks may have something to say of it.
func first(ctx context.Context, b *client.Batch) outcome {
	out := outcome{err: fmt.Errorf("batch %s ended without a result", b.Key())}
	for r, err := range b.Results(ctx) {
		if err == nil || out.err != nil { // an error behind the result takes nothing from it
			out = outcome{r, err}
		}
	}
	return out
}

// abandoned ends a call that is not waited for any longer; late says that it was waited for as long as may be.
func (s *Server) abandoned(ctx context.Context, req *mcp.CallToolRequest, b *client.Batch, err error, late bool,
) (*mcp.CallToolResult, error) {
	refused := new(client.RefusedError)
	switch {
	case errors.As(err, &refused):
		return s.notSubmittedAfterAll(err)
	case s.stopping.Err() != nil:
		return failed("The server stops. The call goes on, and nobody here will see its result."), nil
	case !late && ctx.Err() == nil:
		return s.unreachable("wait for a result", err), nil
	}
	reason := "the client has canceled the request, or is gone"
	if ended := context.Cause(ctx); errors.Is(ended, errSessionOver) {
		reason = ended.Error()
	}
	if late {
		reason = "the request has waited for " + s.cfg.MaxWait.String()
	}
	bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	cerr := b.Cancel(bye, reason)
	if cerr != nil && !errors.Is(cerr, client.ErrCompleted) {
		s.cfg.Log.Warn("a call that is not waited for was not canceled", "batch", b.Key(), "error", cerr)
	}
	switch {
	case !late:
		return nil, context.Cause(ctx)
	case cerr == nil:
		return failed("There was no result within %s, so the call is canceled. It may have done a part of its work.",
			s.cfg.MaxWait), nil
	case errors.Is(cerr, client.ErrCompleted): // it has a result by now
		if o := first(bye, b); o.err == nil {
			return s.answer(ctx, s.wishOf(req), b, &o.result)
		}
		return failed("There was no result within %s, and the call's result could not be read since. It is over, and "+
			"may have done its work.", s.cfg.MaxWait), nil
	}
	return failed("There was no result within %s, and it is not known whether the call could be stopped. It may go on.",
		s.cfg.MaxWait), nil
}

// notSubmittedAfterAll is for a batch that was stored and then refused.
func (s *Server) notSubmittedAfterAll(err error) (*mcp.CallToolResult, error) {
	if errors.Is(err, client.ErrFull) {
		return s.notSubmitted(err)
	}
	return failed("%v", err), nil
}

// wishOf is what the client of a call makes of its result.
func (s *Server) wishOf(req *mcp.CallToolRequest) wish {
	w := wish{anyData: req.ProtocolVersion() >= stateless, links: s.callerOf(req.Extra).Links}
	if asked, ok := req.Params.Meta[metaLinks].(bool); ok {
		w.links = asked
	}
	return w
}

// answer is what a client gets for a result.
func (s *Server) answer(ctx context.Context, w wish, b *client.Batch, r *toolyard.Result) (*mcp.CallToolResult,
	error) {
	if r.Code == toolyard.UnknownTool { // it went between the list and the call
		return nil, unknown(r.Tool)
	}
	if !w.links {
		results := []toolyard.Result{*r}
		if err := b.Fill(ctx, results); err != nil { // then its words say where it is
			s.cfg.Log.Warn("a part of a result could not be read", "batch", b.Key(), "error", err)
		}
		r = &results[0] // what was read is in this copy alone
	}
	out, err := render(r, s.notice(ctx, b), w)
	if err != nil {
		return nil, err
	}
	meta := mcp.Meta{metaBatch: string(b.Key().ID)}
	if r.Code != toolyard.OK {
		meta["dev.toolyard/code"] = string(r.Code)
	}
	if r.IsError {
		meta["dev.toolyard/retryable"] = r.Retryable
	}
	if r.RetryAfterMS > 0 {
		meta["dev.toolyard/retryAfterMs"] = r.RetryAfterMS
	}
	if r.Origin != nil {
		meta["dev.toolyard/origin"] = r.Origin
	}
	out.Meta = meta
	return out, nil
}

// notice is what hooks had to say when the batch was over.
func (s *Server) notice(ctx context.Context, b *client.Batch) *toolyard.Notice {
	if !s.cfg.Notices {
		return nil
	}
	v, err := b.View(ctx)
	if err != nil {
		s.cfg.Log.Warn("what hooks have to say of a call over MCP could not be read", "batch", b.Key(), "error", err)
	}
	return v.Notice
}

// unknown says, in the library's words, that there is no such tool.
func unknown(name string) error { return malformed("unknown tool %q", name) }

// tellProgress passes a call's reports on to a client that has asked for them. The channel is closed when no more
// follow.
func (s *Server) tellProgress(ctx context.Context, req *mcp.CallToolRequest, b *client.Batch) <-chan struct{} {
	done := make(chan struct{})
	token := req.Params.GetProgressToken()
	if token == nil {
		close(done)
		return done
	}
	go func() {
		defer close(done)
		bar := new(bar)
		if call, ok := ctx.Value(taskCallKey{}).(*taskCall); ok { // one request may wait several times
			bar = &call.bar
		}
		for p, err := range b.Progress(ctx) {
			if err != nil {
				if ctx.Err() == nil {
					s.cfg.Log.Debug("progress of a call over MCP is lost", "batch", b.Key(), "error", err)
				}
				return
			}
			n, ok := bar.next(p.Progress)
			if !ok {
				continue
			}
			n.ProgressToken = token
			if err := req.Session.NotifyProgress(ctx, n); err != nil {
				return // the client is gone, or will be told the result
			}
		}
	}()
	return done
}
