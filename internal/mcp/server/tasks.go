package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	wire "github.com/toolyard/toolyard/internal/mcp"
	"github.com/toolyard/toolyard/internal/pause"
)

// taskParams are the parameters of all methods of tasks.
type taskParams struct {
	mcp.ParamsBase
	TaskID         string                     `json:"taskId"`
	Cursor         string                     `json:"cursor"`
	InputResponses map[string]json.RawMessage `json:"inputResponses"`
}

// taskRequest is a request of one of these methods.
type taskRequest = *mcp.ServerRequest[*taskParams]

// taskAnswer is the answer to one, and what a call is answered with that became a task.
type taskAnswer struct {
	mcp.ResultBase
	form map[string]any
}

// MarshalJSON implements [json.Marshaler].
func (a *taskAnswer) MarshalJSON() ([]byte, error) {
	form := map[string]any{}
	for name, value := range a.form {
		form[name] = value
	}
	if len(a.Meta) > 0 {
		form["_meta"] = a.Meta
	}
	return json.Marshal(form)
}

// extended is a result with fields that its type does not have, added to an object in it or to itself.
type extended struct {
	mcp.Result
	add func(form map[string]json.RawMessage) error
}

// MarshalJSON implements [json.Marshaler].
func (e *extended) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(e.Result)
	if err != nil {
		return nil, err
	}
	form := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &form); err != nil {
		return nil, err
	}
	if err := e.add(form); err != nil {
		return nil, err
	}
	return json.Marshal(form)
}

// addTasks adds the methods of tasks. What they answer is decided in [Server.aroundTask]: a handler of the library's
// does not know who asks.
func (s *Server) addTasks() error {
	for _, method := range []string{wire.MethodGet, wire.MethodResult, wire.MethodList, wire.MethodCancel,
		wire.MethodUpdate} {
		err := mcp.AddReceivingCustomMethod(s.mcp, method,
			func(context.Context, *mcp.ServerSession, *taskParams) (*taskAnswer, error) {
				return nil, errors.New("a request of a task came past the server's middleware")
			})
		if err != nil {
			return err
		}
	}
	return nil
}

// taskCall is how one call may become a task.
type taskCall struct {
	// at says that it is one at once; may that it is one if it takes long, or waits for a person.
	at, may bool
	// made is what the request is answered with when it became a task.
	made *taskAnswer
}

type taskCallKey struct{}

// aroundCall has a call's request answered with its task, where it became one.
func (s *Server) aroundCall(ctx context.Context, method string, req mcp.Request, next mcp.MethodHandler) (mcp.Result,
	error) {
	t := &taskCall{}
	res, err := s.askWithin(context.WithValue(ctx, taskCallKey{}, t), method, req, next)
	if err != nil || t.made == nil {
		return res, err
	}
	return t.made, nil
}

// plan decides whether a call may become a task, and gives its batch the id of one.
func (s *Server) plan(ctx context.Context, req *mcp.CallToolRequest, tool listed, batch *toolyard.Batch) error {
	t, ok := ctx.Value(taskCallKey{}).(*taskCall)
	if !ok {
		return nil
	}
	support, version := s.support(tool.name), req.ProtocolVersion()
	asked, err := askedOf(req.Params.Meta)
	switch {
	case hasTasks(version) && err != nil:
		return err
	case hasTasks(version) && asked != nil && support == wire.Forbidden:
		return noMethod("the tool %q cannot be called as a task", tool.sent)
	case hasTasks(version) && asked == nil && support == wire.Required:
		return noMethod("the tool %q can only be called as a task", tool.sent)
	case hasTasks(version):
		t.at = asked != nil
	case extendsTasks(version) && support == wire.Required && !declares(req.ClientCapabilities()):
		return missingTasks("the tool %q can only be called as a task", tool.sent)
	case extendsTasks(version):
		t.at = support == wire.Required
		t.may = support == wire.Optional && declares(req.ClientCapabilities())
		asked = nil
	}
	switch {
	case !t.at && !t.may, isTaskID(batch.ID):
	case batch.ID == "":
		ttl := time.Duration(0)
		if asked != nil {
			ttl = keptFor(*asked, s.cfg.Lifetime)
		}
		batch.ID = newTaskID(ttl, client.NewBatchID())
	case t.at:
		return malformed("_meta[%q]: the id of a call that becomes a task begins with %q", metaBatch, taskPrefix)
	default:
		t.may = false
	}
	return nil
}

// mayBecome is what a call's request is told of its task, if its batch may become one; else nil.
func mayBecome(ctx context.Context, b *client.Batch) *taskCall {
	t, ok := ctx.Value(taskCallKey{}).(*taskCall)
	if !ok || !t.may || !isTaskID(b.Key().ID) {
		return nil
	}
	return t
}

// support is whether a tool can be called as a task.
func (s *Server) support(name string) wire.Support {
	if s.cfg.Tasks == nil {
		return wire.Optional
	}
	return s.cfg.Tasks(name)
}

// declares reports whether a client has the extension.
func declares(caps *mcp.ClientCapabilities) bool {
	if caps == nil {
		return false
	}
	_, ok := caps.Extensions[wire.Extension]
	return ok
}

// becomeTask answers a call's request with its task. The batch is stored; what cannot be read of it yet is waited for,
// since the client may look at once, at any server.
func (s *Server) becomeTask(ctx context.Context, t *taskCall, req *mcp.CallToolRequest, b *client.Batch,
	asks bool) (*mcp.CallToolResult, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	l := &looked{who: s.callerOf(req.Extra), version: req.ProtocolVersion(), b: b, asks: asks}
	for {
		st, err := b.Standing(ctx)
		if err == nil {
			l.st, l.task = st, taskOf(&st, l.version, asks, s.cfg.Lifetime)
			form := l.task.Encode(l.version)
			if extendsTasks(l.version) {
				form["resultType"] = "task"
			} else {
				form = map[string]any{"task": form}
				s.tellSession(req, l)
			}
			t.made = &taskAnswer{form: form}
			return &mcp.CallToolResult{}, nil
		}
		if !errors.Is(err, client.ErrNoBatch) || pause.For(ctx, listEvery) != nil {
			return s.unreachable("read a task", err), nil
		}
	}
}

// aroundTask answers a request about tasks.
func (s *Server) aroundTask(ctx context.Context, method string, req taskRequest) (mcp.Result, error) {
	version, who := req.ProtocolVersion(), s.callerOf(req.Extra)
	only2025 := method == wire.MethodResult || method == wire.MethodList
	switch {
	case hasTasks(version) && method == wire.MethodUpdate, extendsTasks(version) && only2025,
		!hasTasks(version) && !extendsTasks(version):
		return nil, noMethod("%q is no method of the revision %s", method, cut(version, maxMessageBytes))
	case extendsTasks(version) && !declares(req.ClientCapabilities()):
		return nil, missingTasks("%q is for clients that have the extension", method)
	}
	params := req.Params
	if params == nil {
		params = &taskParams{}
	}
	leave, full := s.enter(who.Agent)
	if full != "" {
		return nil, busy("%s; come again later", full)
	}
	defer leave()
	if method == wire.MethodList {
		return s.listTasks(ctx, who, version, req)
	}
	l, err := s.look(ctx, who, version, params.TaskID, req.ClientCapabilities())
	if err != nil {
		return nil, err
	}
	switch method {
	case wire.MethodGet:
		return s.getTask(ctx, l)
	case wire.MethodCancel:
		return s.cancelTask(ctx, l)
	case wire.MethodUpdate:
		return s.updateTask(ctx, l, params.InputResponses)
	}
	ctx, over := s.underWay.enter(ctx, who.Agent, req.GetSession().ID())
	defer over()
	return s.resultOfTask(ctx, l, req.Session)
}

// looked is a task of the agent who asks, as it stood a moment ago.
type looked struct {
	who     Caller
	version string
	b       *client.Batch
	st      client.Standing
	// asks says that the client has a person who can be asked about the call.
	asks bool
	task wire.Task
}

// look reads a task. What is no task of the agent, or no longer one, is not there.
func (s *Server) look(ctx context.Context, who Caller, version, id string, caps *mcp.ClientCapabilities) (*looked,
	error) {
	l := &looked{who: who, version: version, asks: s.cfg.Approvals && hasForms(caps)}
	if !isTaskID(toolyard.BatchID(id)) || toolyard.CheckName("taskId", id) != nil {
		return nil, noTask()
	}
	l.b = s.cfg.Client.Batch(toolyard.BatchKey{Agent: who.Agent, ID: toolyard.BatchID(id)})
	return l, s.lookAgain(ctx, l)
}

// lookAgain reads the task anew.
func (s *Server) lookAgain(ctx context.Context, l *looked) error {
	st, err := l.b.Standing(ctx)
	switch {
	case errors.Is(err, client.ErrNoBatch):
		return noTask()
	case err != nil:
		return s.unreadable("read a task", err)
	case st.Calls != 1:
		return noTask()
	}
	l.st, l.task = st, taskOf(&st, l.version, l.asks, s.cfg.Lifetime)
	if expired(&l.task, time.Now()) {
		return malformed("the task is not kept any longer")
	}
	return nil
}

func noTask() error { return malformed("there is no such task") }

// unreadable is the answer that the pool could not be asked.
func (s *Server) unreadable(what string, err error) error {
	s.cfg.Log.Error("a request about a task failed", "at", what, "error", err)
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the pool does not answer now; ask again"}
}

// noMethod is the answer that a method, or a way of calling one, is not there.
func noMethod(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf(format, args...)}
}

// missingTasks is the answer to a client that does not say that it has the extension.
func missingTasks(format string, args ...any) error {
	const data = `{"requiredCapabilities":{"extensions":{"` + wire.Extension + `":{}}}}`
	return &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapabilities, Message: fmt.Sprintf(format, args...) +
		"; declare " + wire.Extension, Data: json.RawMessage(data)}
}

// getTask is the task as it stands; of the extension, with its result, its error, or the questions that are open.
func (s *Server) getTask(ctx context.Context, l *looked) (mcp.Result, error) {
	form, err := s.detailed(ctx, l)
	if err != nil {
		return nil, err
	}
	if extendsTasks(l.version) {
		form["resultType"] = "complete"
	}
	return &taskAnswer{form: form}, nil
}

// detailed is the form of a task with what a revision has beside its state.
func (s *Server) detailed(ctx context.Context, l *looked) (map[string]any, error) {
	if !extendsTasks(l.version) {
		return l.task.Encode(l.version), nil
	}
	details := map[string]any{}
	switch l.task.Status {
	case wire.InputRequired:
		a, text, err := s.questionOf(ctx, l)
		if err != nil {
			return nil, err
		}
		if a == nil { // it is answered by now
			l.task.Status, l.task.Message = wire.Working, ""
			break
		}
		details["inputRequests"] = mcp.InputRequestMap{questionKey(a): form(text, a.Form)}
	case wire.Completed, wire.Failed:
		res, err := s.outcomeOf(ctx, l)
		failure := new(jsonrpc.Error)
		switch {
		case errors.As(err, &failure):
			details["error"] = map[string]any{"code": failure.Code, "message": failure.Message}
		case err != nil:
			return nil, s.unreadable("read the result of a task", err)
		default:
			details["result"] = res
		}
	}
	out := l.task.Encode(l.version)
	for name, value := range details {
		out[name] = value
	}
	return out, nil
}

// outcomeOf is what the call of a task that is over would have been answered with: a result or an error of the
// protocol.
func (s *Server) outcomeOf(ctx context.Context, l *looked) (*mcp.CallToolResult, error) {
	o := first(ctx, l.b)
	refused := new(client.RefusedError)
	switch {
	case errors.As(o.err, &refused):
		return s.notSubmittedAfterAll(o.err)
	case o.err != nil:
		return nil, o.err
	}
	return s.answer(ctx, wish{anyData: extendsTasks(l.version), links: l.who.Links}, l.b, &o.result)
}

// questionOf is the approval that a task waits for, and its question; nil if it waits for none any more. What is too
// long to be shown is denied, as nobody allows what they have not seen.
func (s *Server) questionOf(ctx context.Context, l *looked) (*client.Approval, string, error) {
	list, err := s.cfg.Client.Approvals(ctx, l.who.Agent)
	if err != nil {
		return nil, "", s.unreadable("read the approvals", err)
	}
	for _, a := range list {
		if a.Batch != l.b.Key().ID {
			continue
		}
		text, err := describe(a)
		if err == nil {
			return &a, text, nil
		}
		if err := s.denyUnshown(ctx, a, err); err != nil {
			return nil, "", s.unreadable("deny a call", err)
		}
	}
	return nil, "", nil
}

// questionKey names a question. No two of a task have the same: it is made from the input that is shown, and when it
// was asked.
func questionKey(a *client.Approval) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %s", a.ID, a.AskedAt.UnixNano(), a.InputSHA256))
	return questionID + "-" + hex.EncodeToString(sum[:8])
}

// cancelTask asks for the task to end. It does not wait for that: the log says that it is canceled.
func (s *Server) cancelTask(ctx context.Context, l *looked) (mcp.Result, error) {
	over := func() error {
		return malformed("the task cannot be canceled: it is %s", l.task.Status)
	}
	if hasTasks(l.version) && l.task.Status.Terminal() {
		return nil, over()
	}
	err := l.b.Cancel(ctx, "the client has canceled the task")
	if err != nil && !errors.Is(err, client.ErrCompleted) {
		return nil, s.unreadable("cancel a task", err)
	}
	if extendsTasks(l.version) {
		return &taskAnswer{form: map[string]any{"resultType": "complete"}}, nil
	}
	if err := s.lookAgain(ctx, l); err != nil {
		return nil, err
	}
	if l.task.Status != wire.Cancelled { // the cancel came too late
		return nil, malformed("the task cannot be canceled: its call has ended")
	}
	return &taskAnswer{form: l.task.Encode(l.version)}, nil
}

// updateTask takes the answer to a task's question. Answers to others are passed over.
func (s *Server) updateTask(ctx context.Context, l *looked, responses map[string]json.RawMessage) (mcp.Result, error) {
	if l.task.Status == wire.InputRequired {
		a, _, err := s.questionOf(ctx, l)
		if err != nil {
			return nil, err
		}
		if a != nil {
			if raw, ok := responses[questionKey(a)]; ok {
				r := new(mcp.ElicitResult)
				if err := json.Unmarshal(raw, r); err != nil {
					return nil, malformed("inputResponses: %v", err)
				}
				if err := s.decideTask(ctx, l, a, r); err != nil {
					return nil, err
				}
			}
		}
	}
	return &taskAnswer{form: map[string]any{"resultType": "complete"}}, nil
}

// decideTask takes a person's answer about a task's call. One that cannot be read leaves the question open.
func (s *Server) decideTask(ctx context.Context, l *looked, a *client.Approval, r *mcp.ElicitResult) error {
	d, ok := decisionFrom(r, a.Form != nil)
	if !ok {
		return nil
	}
	if l.who.Permit != nil {
		probe := toolyard.Batch{ID: a.Batch, Agent: a.Agent, Session: a.Session, Workspace: a.Workspace,
			Interactive: true, Calls: []toolyard.Call{{Tool: a.Tool, Input: a.Input}}}
		if err := l.who.Permit(&probe); err != nil {
			return malformed("%v", err)
		}
		if !probe.Interactive {
			return malformed("the token does not say that a person can be asked")
		}
	}
	d.By = decider(l.who.Agent)
	if d.Verdict == client.Allow {
		d.InputSHA256 = a.InputSHA256
	}
	err := s.cfg.Client.Decide(ctx, a.ID, d)
	bad := new(toolyard.InputError)
	switch {
	case errors.As(err, &bad):
		return malformed("%v", err)
	case err != nil && !errors.Is(err, client.ErrNoApproval): // somebody else may have decided
		return s.unreadable("decide about a call", err)
	}
	return nil
}

// resultOfTask waits for a task's call, and asks the client's person meanwhile. Going away cancels nothing.
func (s *Server) resultOfTask(ctx context.Context, l *looked, session *mcp.ServerSession) (mcp.Result, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, s.cfg.MaxWait, errLate)
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	asked, answered := make(chan client.Approval, 1), make(chan error, 1)
	if l.asks && !l.task.Status.Terminal() {
		go s.lookForQuestion(waiting, l.b, time.Time{}, asked)
	}
	type end struct {
		res *mcp.CallToolResult
		err error
	}
	ends := make(chan end, 1)
	go func() {
		res, err := s.outcomeOf(waiting, l)
		ends <- end{res, err}
	}()
	for {
		select {
		case a := <-asked:
			go func() {
				err := s.askInTask(waiting, l, session, a)
				answered <- err
				if err == nil { // its tool may ask something else
					s.lookForQuestion(waiting, l.b, a.AskedAt, asked)
				}
			}()
		case err := <-answered:
			if err != nil {
				return nil, err
			}
		case e := <-ends:
			failure := new(jsonrpc.Error)
			switch {
			case e.err == nil:
				if e.res.Meta == nil {
					e.res.Meta = mcp.Meta{}
				}
				e.res.Meta[wire.RelatedTask] = map[string]string{"taskId": l.task.ID}
				return e.res, nil
			case errors.As(e.err, &failure):
				return nil, failure
			case errors.Is(context.Cause(waiting), errLate), s.stopping.Err() != nil:
				return nil, busy("the task has not ended yet; ask again")
			case ctx.Err() != nil:
				return nil, context.Cause(ctx)
			}
			return nil, s.unreadable("wait for a task", e.err)
		}
	}
}

// askInTask asks the client's person about a task's call, on the way to its result. The call goes on waiting when the
// client fails to ask.
func (s *Server) askInTask(ctx context.Context, l *looked, session *mcp.ServerSession, a client.Approval) error {
	text, err := describe(a)
	if err != nil {
		if err := s.denyUnshown(ctx, a, err); err != nil {
			return s.unreadable("deny a call", err)
		}
		return nil
	}
	question := form(text, a.Form)
	question.Meta = mcp.Meta{wire.RelatedTask: map[string]string{"taskId": l.task.ID}}
	r, err := session.Elicit(ctx, question)
	if err != nil {
		if ctx.Err() != nil {
			return nil // the result is there, or nobody waits for it
		}
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("the person could not be asked: %v",
			err)}
	}
	return s.decideTask(ctx, l, &a, r)
}

// listTasks is a page of the agent's tasks, the newest first. The index that it is read from may be a moment behind.
func (s *Server) listTasks(ctx context.Context, who Caller, version string, req taskRequest) (mcp.Result, error) {
	cursor := ""
	if req.Params != nil {
		cursor = req.Params.Cursor
	}
	after, ok := parseCursor(cursor)
	if !ok {
		return nil, malformed("cursor: it is none of this server's")
	}
	tasks := []map[string]any{}
	out := &taskAnswer{form: map[string]any{}}
	page, more, err := s.cfg.Client.Batches(ctx, client.Filter{Agent: who.Agent, After: after, Limit: taskScan})
	if err != nil {
		return nil, s.unreadable("list the tasks", err)
	}
	for i, info := range page {
		if isTaskID(info.ID) && info.Calls <= 1 {
			l, err := s.look(ctx, who, version, string(info.ID), req.ClientCapabilities())
			if bad := new(jsonrpc.Error); errors.As(err, &bad) && bad.Code == jsonrpc.CodeInvalidParams {
				continue // it is kept no longer
			}
			if err != nil {
				return nil, err
			}
			tasks = append(tasks, l.task.Encode(version))
		}
		if rest := more || i+1 < len(page); rest && (len(tasks) == TaskPage || i+1 == len(page)) {
			out.form["nextCursor"] = cursorOf(info.Cursor)
			break
		}
	}
	out.form["tasks"] = tasks
	return out, nil
}
