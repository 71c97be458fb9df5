package toolset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/clip"
	wire "github.com/toolyard/toolyard/internal/mcp"
	"github.com/toolyard/toolyard/internal/pause"
	"github.com/toolyard/toolyard/tool"
)

// A call may become a task of its server: in the revision 2025-11-25 when we ask for it, in 2026-07-28 when the server
// likes. Then the server is asked again and again until the task is over, as long as the call may take. The task ends
// with the call: one that nobody waits for any longer is canceled.

// taskParams are the parameters of the methods of tasks.
type taskParams struct {
	mcp.ParamsBase
	TaskID string `json:"taskId"`
}

// taskAnswer is an answer to one, as the server wrote it.
type taskAnswer struct {
	mcp.ResultBase
	raw json.RawMessage
}

// UnmarshalJSON implements [json.Unmarshaler].
func (a *taskAnswer) UnmarshalJSON(data []byte) error {
	var form struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	if err := json.Unmarshal(data, &form); err != nil {
		return err
	}
	a.raw = json.RawMessage(append([]byte(nil), data...))
	if made, ok := form.Meta[wire.MetaTask]; ok { // it says that it is a new task, as some do
		a.raw = made
	}
	return nil
}

// addTasks has a client know the methods of tasks, and say so.
func addTasks(c *mcp.Client) error {
	return errors.Join(
		mcp.AddSendingCustomMethod[*taskParams, *taskAnswer](c, wire.MethodGet),
		mcp.AddSendingCustomMethod[*taskParams, *taskAnswer](c, wire.MethodCancel),
		mcp.AddSendingCustomMethod[*taskParams, *mcp.CallToolResult](c, wire.MethodResult),
	)
}

// tasked are the capabilities of a client that knows tasks, and nothing else that a server could ask it for.
func tasked() *mcp.ClientCapabilities {
	caps := &mcp.ClientCapabilities{}
	caps.AddExtension(wire.Extension, nil)
	return caps
}

// lowering is a pipe to a server. The SDK writes each message in one piece.
type lowering struct{ io.WriteCloser }

// Write implements [io.Writer].
func (l lowering) Write(p []byte) (int, error) {
	if _, err := l.WriteCloser.Write(wire.Line(p, wire.LowerRequest)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// version is the revision of a session, and offersTasks whether its server makes a task of a call when we ask for it.
func (s *session) version() string {
	if res := s.mcp.InitializeResult(); res != nil {
		return res.ProtocolVersion
	}
	return ""
}

func (s *session) offersTasks() bool {
	res := s.mcp.InitializeResult()
	if res == nil || res.Capabilities == nil || res.ProtocolVersion < wire.Session2025 ||
		res.ProtocolVersion >= wire.Alone2026 {
		return false
	}
	offered, _ := res.Capabilities.Experimental[wire.ExperimentalTasks].(map[string]any)
	requests, _ := offered["requests"].(map[string]any)
	tools, _ := requests["tools"].(map[string]any)
	return tools["call"] != nil
}

// supportOf is whether a listed tool can be called as a task.
func supportOf(listed *mcp.Tool) wire.Support {
	data, err := json.Marshal(listed.Meta[wire.MetaExecution])
	var execution wire.Execution
	if err != nil || json.Unmarshal(data, &execution) != nil {
		return wire.Forbidden
	}
	return execution.TaskSupport
}

// askFor has a call ask for a task, which the server need not keep longer than the call may take.
func (s *session) askFor(ctx context.Context, c call, params *mcp.CallToolParams) {
	if c.task != wire.Required && c.task != wire.Optional || !s.offersTasks() {
		return
	}
	asked := wire.Asked{}
	if end, ok := ctx.Deadline(); ok {
		ms := float64((max(0, time.Until(end)) + taskSlack).Milliseconds())
		asked.TTL = &ms
	}
	params.Meta[wire.MetaTask] = asked
}

// madeTask is the task that a call became; ok is false if it did not.
func (s *session) madeTask(res *mcp.CallToolResult) (task wire.Task, ok bool, err error) {
	if res == nil || res.Meta[wire.MetaTask] == nil {
		return task, false, nil
	}
	data, err := json.Marshal(res.Meta[wire.MetaTask])
	if err == nil {
		task, err = wire.DecodeTask(data, s.version())
	}
	return task, true, err
}

// openTasks are the tasks of a session that are not known to be over.
type openTasks struct {
	mu        sync.Mutex
	ids       map[string]bool
	canceling sync.WaitGroup
}

func (o *openTasks) add(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ids == nil {
		o.ids = map[string]bool{}
	}
	o.ids[id] = true
}

// remove reports whether it was there.
func (o *openTasks) remove(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	had := o.ids[id]
	delete(o.ids, id)
	return had
}

func (o *openTasks) all() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var ids []string
	for id := range o.ids {
		ids = append(ids, id)
	}
	return ids
}

// follow waits for a task, and cancels it when the call is over before it.
func (s *session) follow(ctx context.Context, env tool.Env, c call, task wire.Task) (tool.Output, error) {
	s.open.add(task.ID)
	defer s.cancelTask(task.ID)
	answer, said, lost := &taskAnswer{}, "", 0
	for {
		switch {
		case task.Status.Terminal() && (answer.raw != nil || s.version() < wire.Alone2026):
			s.open.remove(task.ID)
			return s.taskOutput(ctx, c, task, answer.raw)
		case task.Status == wire.InputRequired:
			return tool.Output{}, tool.Failed(nil, "The MCP server wants to ask a person something before it goes on, "+
				"which is not possible here. The tool did not finish.")
		case task.Message != "" && task.Message != said && env.Progress != nil:
			said = task.Message
			env.Progress(tool.Progress{Fraction: -1, Status: clip.Bytes(said, MaxStatusBytes)})
		}
		// A task that is over when it is made has its result behind the first look: the server knew the call, which an
		// earlier attempt has made.
		if !task.Status.Terminal() || lost > 0 {
			if err := s.pauseFor(ctx, task.Poll); err != nil {
				return tool.Output{}, s.brokeOff(ctx, err, c)
			}
		}
		next, err := ask(ctx, s, task.ID, func(ctx context.Context) (*taskAnswer, error) {
			return mcp.CallCustomMethod[*taskParams, *taskAnswer](ctx, s.mcp, wire.MethodGet,
				&taskParams{TaskID: task.ID})
		})
		if err != nil {
			// The task goes on where the server cannot be reached for a moment.
			refused, isRefusal := errors.AsType[*jsonrpc.Error](err)
			if lost++; lost >= maxLostLooks || isRefusal && refused.Code != codeRejected {
				return tool.Output{}, s.brokeOff(ctx, err, c)
			}
			continue
		}
		now, err := wire.DecodeTask(next.raw, s.version())
		if err != nil || now.ID != task.ID {
			err = errors.Join(errors.New("the state of its task cannot be read"), err)
			return tool.Output{}, s.brokeOff(ctx, err, c)
		}
		s.silent.Store(0)
		task, answer, lost = now, next, 0
	}
}

// pauseFor waits for as long as a server wants between two looks, within bounds, or until the call or the session ends.
func (s *session) pauseFor(ctx context.Context, wanted time.Duration) error {
	if wanted == 0 {
		wanted = defaultLook
	}
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(context.Cause(s.life)) })()
	return pause.For(waiting, min(max(wanted, minLook), maxLook))
}

// brokeOff is the error of a call whose task is known no more.
func (s *session) brokeOff(ctx context.Context, err error, c call) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return brokeOff(s.t.o.Server.Name, err, c.again)
}

// taskOutput is the output of a task that is over.
func (s *session) taskOutput(ctx context.Context, c call, task wire.Task, raw json.RawMessage) (tool.Output, error) {
	server := s.t.o.Server.Name
	if task.Status == wire.Cancelled {
		return tool.Output{}, tool.Failed(nil, "The MCP server %q has canceled the call. %s", server,
			clip.Bytes(task.Message, MaxStatusBytes))
	}
	if s.version() < wire.Alone2026 {
		res, err := ask(ctx, s, task.ID, func(ctx context.Context) (*mcp.CallToolResult, error) {
			return mcp.CallCustomMethod[*taskParams, *mcp.CallToolResult](ctx, s.mcp, wire.MethodResult,
				&taskParams{TaskID: task.ID})
		})
		refused, isRefusal := errors.AsType[*jsonrpc.Error](err)
		switch {
		case err == nil:
			return output(res)
		case isRefusal && refused.Code != codeRejected && task.Status == wire.Failed:
			return tool.Output{}, refusal(server, refused)
		}
		return tool.Output{}, s.brokeOff(ctx, err, c)
	}
	var details struct {
		Result json.RawMessage `json:"result"`
		Error  *jsonrpc.Error  `json:"error"`
	}
	var res *mcp.CallToolResult
	err := json.Unmarshal(raw, &details)
	if err == nil && details.Result != nil {
		err = json.Unmarshal(wire.LiftStructured(details.Result), &res)
	}
	if err != nil || res == nil && details.Error == nil {
		return tool.Output{}, &tool.Error{Code: toolyard.ResultMappingFailed, Err: err,
			Message: fmt.Sprintf("The MCP server %q says that the call is over, and its result cannot be read.", server)}
	}
	if details.Error != nil {
		return tool.Output{}, refusal(server, details.Error)
	}
	return output(res)
}

// ask sends a request about a task, and waits for its answer only so long.
func ask[R any](ctx context.Context, s *session, id string, send func(context.Context) (R, error)) (R, error) {
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(context.Cause(s.life)) })()
	asking, stop := context.WithTimeoutCause(asking, askTimeout, errNoAnswer)
	defer stop()
	asking, _ = withResponses(context.WithValue(asking, taskKey{}, id), func() { cancel(errCut) })
	type answer struct {
		res R
		err error
	}
	answers := make(chan answer, 1)
	go func() { // a write may block, even after the context has ended
		res, err := send(asking)
		answers <- answer{res, err}
	}()
	select {
	case got := <-answers:
		return got.res, got.err
	case <-asking.Done():
		var none R
		return none, context.Cause(asking)
	}
}

// errNoAnswer is for a server that says nothing of a task.
var errNoAnswer = errors.New("the server did not say how its task stands")

// taskKey is where a request's task stands, for the header that names it.
type taskKey struct{}

// cancelTask cancels a task that is not known to be over. Nobody waits for that but the end of the session.
func (s *session) cancelTask(id string) {
	if !s.open.remove(id) || s.life.Err() != nil {
		return
	}
	s.open.canceling.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
		defer cancel()
		_, err := ask(ctx, s, id, func(ctx context.Context) (*taskAnswer, error) {
			return mcp.CallCustomMethod[*taskParams, *taskAnswer](ctx, s.mcp, wire.MethodCancel,
				&taskParams{TaskID: id})
		})
		if err != nil {
			s.t.log.Debug("a task of an MCP server was not canceled", "error", err)
		}
	})
}

// cancelTasks cancels what is left of a session's tasks before it ends, and waits for that.
func (s *session) cancelTasks() {
	for _, id := range s.open.all() {
		s.cancelTask(id)
	}
	s.open.canceling.Wait()
}
