package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/events"
	wire "github.com/toolyard/toolyard/internal/mcp"
)

// Clients may be told when the state of a task changes: in a session that made the task, and in the stream of a
// listener that names it. The library sends no notifications of other kinds than its own, so they travel in those of
// progress up to the writer.

// notify sends a notification of any kind.
func notify(ctx context.Context, session *mcp.ServerSession, method string, params map[string]any) error {
	return session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: wire.MetaNotification,
		Meta: mcp.Meta{wire.MetaNotification: wire.Notification{Method: method, Params: params}}})
}

// loweredNotifications is a piece that the library writes, with the notifications that are carried in it as they are.
func loweredNotifications(piece []byte) []byte {
	if !bytes.Contains(piece, []byte(wire.MetaNotification)) {
		return piece
	}
	if piece[0] == '{' { // of a pipe
		return wire.Line(piece, wire.LowerNotification)
	}
	return wire.InEvent(wire.LowerNotification)(piece)
}

// write writes a piece of the library's, which is a message or an event.
func write(w io.Writer, piece []byte) error {
	_, err := w.Write(loweredNotifications(piece))
	return err
}

// loweringResponse is the stream of a session. The library writes each event in one piece.
type loweringResponse struct{ http.ResponseWriter }

// Write implements [io.Writer]. The stream of a request that is canceled ends without an answer.
func (l loweringResponse) Write(p []byte) (int, error) {
	if answersCanceled(p) {
		return len(p), nil
	}
	return len(p), write(l.ResponseWriter, p)
}

// Unwrap is for [http.ResponseController].
func (l loweringResponse) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// turns are the events of a batch after which its task may have another state, or its call may be a script that has
// begun.
var turns = []events.Type{events.CallClaimed, events.CallWaiting, events.CallDecided, events.BatchCanceled,
	events.BatchRefused, events.Results}

// follow calls look whenever a task may stand elsewhere: behind events of its batch, at their end, and every
// [PollInterval] while a script runs, whose calls are in batches of their own. It returns when look says so, or ctx
// ends. look reads the task anew.
func (s *Server) follow(ctx context.Context, l *looked, look func() (more bool)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	news := make(chan struct{})
	go func() {
		defer close(news)
		for e, err := range l.b.Watch(ctx) {
			refused := new(client.RefusedError)
			if err != nil && !errors.As(err, &refused) {
				if ctx.Err() == nil {
					s.cfg.Log.Debug("a client is not told of its task any more", "batch", l.b.Key(), "error", err)
				}
				cancel()
				return
			}
			if slices.Contains(turns, events.Type(e.Type)) {
				select {
				case news <- struct{}{}:
				case <-ctx.Done():
				}
			}
		}
	}()
	for {
		var again <-chan time.Time
		if len(l.st.Scripts) > 0 {
			again = time.After(PollInterval)
		}
		select {
		case _, more := <-news:
			if ctx.Err() != nil || !look() || !more {
				return
			}
		case <-again:
			if !look() {
				return
			}
		}
	}
}

// tell sends a task's state whenever it is another than was said, until the task is over or ctx ends. said is the form
// that was sent last; nil: none was.
func (s *Server) tell(ctx context.Context, l *looked, said map[string]any, send func(form map[string]any) error) {
	last, asked := l.task, openIn(said)
	s.follow(ctx, l, func() bool {
		err := s.lookAgain(ctx, l)
		same := func() bool { return l.task.Status == last.Status && l.task.Message == last.Message }
		if err != nil || same() && l.task.Status != wire.InputRequired {
			return err == nil
		}
		form, err := s.detailed(ctx, l)
		if err != nil {
			return false
		}
		if now := openIn(form); !same() || !slices.Equal(now, asked) {
			last, asked = l.task, now
			return send(form) == nil && !l.task.Status.Terminal()
		}
		return true
	})
}

// openIn are the keys of the questions in the form of a task.
func openIn(form map[string]any) []string {
	requests, _ := form["inputRequests"].(mcp.InputRequestMap)
	return slices.Sorted(maps.Keys(requests))
}

// lives are the sessions in which somebody is told of tasks, each with a context that ends with it.
type lives struct {
	mu   sync.Mutex
	each map[*mcp.ServerSession]context.Context
}

// of is a context that ends with a session, or with parent.
func (l *lives) of(parent context.Context, session *mcp.ServerSession) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if life, ok := l.each[session]; ok {
		return life
	}
	life, end := context.WithCancel(parent)
	if l.each == nil {
		l.each = map[*mcp.ServerSession]context.Context{}
	}
	l.each[session] = life
	go func() {
		_ = session.Wait() // it is over, whatever ended it
		end()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.each, session)
	}()
	return life
}

// tellSession tells the session that has made a task of its states, and of its call's progress if it asked for that,
// as long as both last. Where too many are told already, it is not: clients look for themselves.
func (s *Server) tellSession(req *mcp.CallToolRequest, l *looked) {
	if l.task.Status.Terminal() {
		return
	}
	leave, full := s.told.Enter(l.who.Agent, 0)
	if full != nil {
		return
	}
	life := s.lives.of(s.stopping, req.Session)
	go func() {
		defer leave()
		ctx, cancel := context.WithCancel(life)
		progress := s.tellProgress(ctx, req, l.b)
		s.tell(ctx, l, nil, func(form map[string]any) error {
			return notify(ctx, req.Session, wire.NotifyStatus2025, form)
		})
		cancel()
		<-progress
	}()
}

// listening is a listener who names tasks.
type listening struct {
	ids []string
	// acked is closed when the listener was told of which tasks it will hear; meta is what the library adds to that.
	acked chan struct{}
	meta  mcp.Meta
}

type listeningKey struct{}

// listen tells a listener of the tasks that it names, beside all else that the library does for it.
func (s *Server) listen(ctx context.Context, req *mcp.SubscriptionsListenRequest, next mcp.MethodHandler) (mcp.Result,
	error) {
	const method = "subscriptions/listen"
	named, there := req.Params.Meta[wire.MetaTaskIDs]
	if !there {
		return next(ctx, method, req)
	}
	if !declares(req.ClientCapabilities()) {
		return nil, missingTasks("taskIds are for clients that have the extension")
	}
	ids, ok := texts(named)
	if !ok || len(ids) > MaxTaskIDs {
		return nil, malformed("notifications.taskIds: want a list of %d texts at most", MaxTaskIDs)
	}
	who, l := s.callerOf(req.Extra), &listening{ids: []string{}, acked: make(chan struct{})}
	var tasks []*looked
	for i, id := range ids {
		if slices.Contains(ids[:i], id) { // it is told of each once
			continue
		}
		leave, full := s.told.Enter(who.Agent, 0)
		if full != nil {
			break // of the others it does not hear
		}
		defer leave()
		task, err := s.look(ctx, who, req.ProtocolVersion(), id, req.ClientCapabilities())
		if err == nil {
			l.ids, tasks = append(l.ids, id), append(tasks, task)
		}
	}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, listeningKey{}, l))
	defer cancel()
	var telling sync.WaitGroup
	for _, task := range tasks {
		telling.Go(func() {
			select {
			case <-l.acked:
			case <-ctx.Done():
				return
			}
			send := func(form map[string]any) error {
				form["_meta"] = l.meta
				return notify(ctx, req.Session, wire.NotifyStatus2026, form)
			}
			form, err := s.detailed(ctx, task) // as it stands, for who has not looked
			if err == nil && send(form) == nil && !task.task.Status.Terminal() {
				s.tell(ctx, task, form, send)
			}
		})
	}
	res, err := next(ctx, method, req)
	if err != nil {
		cancel()
	}
	telling.Wait()
	return res, err
}

// texts is a value that is a list of texts.
func texts(v any) ([]string, bool) {
	data, err := json.Marshal(v)
	var out []string
	return out, err == nil && v != nil && json.Unmarshal(data, &out) == nil
}

// acknowledging adds the tasks of which a listener hears to what it is told at first.
func acknowledging(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		l, ok := ctx.Value(listeningKey{}).(*listening)
		ack, isAck := req.GetParams().(*mcp.SubscriptionsAcknowledgedParams)
		session, isOurs := req.GetSession().(*mcp.ServerSession)
		if !ok || !isAck || !isOurs {
			return next(ctx, method, req)
		}
		data, err := json.Marshal(ack.Notifications)
		if err != nil {
			return nil, err
		}
		agreed := map[string]any{}
		if err := json.Unmarshal(data, &agreed); err != nil {
			return nil, err
		}
		agreed["taskIds"] = l.ids
		l.meta = ack.Meta
		err = notify(ctx, session, method, map[string]any{"notifications": agreed, "_meta": ack.Meta})
		close(l.acked)
		return nil, err
	}
}

// withTasks adds the capability to the answer to a handshake, of the revision that has it.
func withTasks(res mcp.Result) mcp.Result {
	r, ok := res.(*mcp.InitializeResult)
	if !ok || r == nil || !hasTasks(r.ProtocolVersion) {
		return res
	}
	return &extended{Result: r, add: func(form map[string]json.RawMessage) error {
		caps := map[string]json.RawMessage{}
		if err := json.Unmarshal(form["capabilities"], &caps); err != nil {
			return err
		}
		caps["tasks"] = json.RawMessage(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`)
		data, err := json.Marshal(caps)
		form["capabilities"] = data
		return err
	}}
}

// withSupport adds to each listed tool whether it can be called as a task.
func (s *Server) withSupport(list *mcp.ListToolsResult) mcp.Result {
	type tool struct {
		*mcp.Tool
		Execution wire.Execution `json:"execution"`
	}
	return &extended{Result: list, add: func(form map[string]json.RawMessage) error {
		tools := make([]tool, len(list.Tools))
		for i, t := range list.Tools {
			tools[i] = tool{t, wire.Execution{TaskSupport: s.support(s.nameOf(t.Name))}}
		}
		data, err := json.Marshal(tools)
		form["tools"] = data
		return err
	}}
}

// nameOf is the name that the pool knows a listed tool by.
func (s *Server) nameOf(sent string) string {
	s.tools.mu.Lock()
	defer s.tools.mu.Unlock()
	if t, ok := s.tools.tools[sent]; ok {
		return t.name
	}
	return sent
}
