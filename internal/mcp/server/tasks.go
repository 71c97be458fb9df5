package server

import (
	"context"
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
	// bar is what the client was told of the progress.
	bar bar
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
// since the client may look at once, at any server. A client that has canceled the request meanwhile gets no answer:
// then its call is canceled, as it would run for nobody.
func (s *Server) becomeTask(ctx context.Context, t *taskCall, req *mcp.CallToolRequest, b *client.Batch,
	asks bool) (*mcp.CallToolResult, error) {
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	l := &looked{who: s.callerOf(req.Extra), version: req.ProtocolVersion(), b: b, asks: asks}
	for {
		err := s.stand(reading, l)
		if errors.Is(ctx.Err(), context.Canceled) && s.stopping.Err() == nil { // nobody gets to know the task's id
			return s.abandoned(ctx, req, b, context.Cause(ctx), false)
		}
		if err == nil {
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
		if !errors.Is(err, client.ErrNoBatch) || pause.For(reading, listEvery) != nil {
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
	// waits are the calls of its scripts, and its own, that waited for a person when it was read; only with scripts.
	waits []client.Approval
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
	err := s.stand(ctx, l)
	switch {
	case errors.Is(err, client.ErrNoBatch):
		return noTask()
	case err != nil:
		return s.unreadable("read a task", err)
	case l.st.Calls != 1:
		return noTask()
	}
	if expired(&l.task, time.Now()) {
		return malformed("the task is not kept any longer")
	}
	return nil
}

// stand reads where a task stands. One whose call is a script waits for a person while a call of the script does.
func (s *Server) stand(ctx context.Context, l *looked) error {
	st, err := l.b.Standing(ctx)
	if err != nil {
		return err
	}
	l.waits = nil
	if len(st.Scripts) > 0 {
		if l.waits, err = s.waiting(ctx, l.b.Key(), st.Scripts); err != nil {
			return err
		}
		st.Asked = st.Asked || len(l.waits) > 0
	}
	l.st, l.task = st, taskOf(&st, l.version, l.asks, s.cfg.Lifetime)
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
		open, err := s.questionsOf(ctx, l)
		if err != nil {
			return nil, err
		}
		if len(open) == 0 { // they are answered by now
			l.task.Status, l.task.Message = wire.Working, ""
			break
		}
		requests := mcp.InputRequestMap{}
		for i := range open {
			requests[questionKey(&open[i].Approval)] = form(open[i].text, open[i].Form)
		}
		details["inputRequests"] = requests
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
