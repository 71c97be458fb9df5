package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	wire "github.com/toolyard/toolyard/internal/mcp"
	"github.com/toolyard/toolyard/internal/pause"
	"github.com/toolyard/toolyard/internal/submission"
)

// A task asks what its call asks. If that runs a script, the task asks what the calls of the script ask too, which are
// in batches of their own: as many questions at once as there are calls that wait.

// question is a call that waits for a person, as it is shown.
type question struct {
	client.Approval
	text string
}

// questionsOf are the questions that a task waits for. What is too long to be shown is denied, as nobody allows what
// they have not seen.
func (s *Server) questionsOf(ctx context.Context, l *looked) (open []question, err error) {
	waiting := l.waits
	if len(l.st.Scripts) == 0 {
		if waiting, err = s.waiting(ctx, l.b.Key(), nil); err != nil {
			return nil, s.unreadable("read the approvals", err)
		}
	}
	for _, a := range waiting {
		text, err := describe(a)
		if err == nil {
			open = append(open, question{a, text})
		} else if err := s.denyUnshown(ctx, a, err); err != nil {
			return nil, s.unreadable("deny a call", err)
		}
	}
	return open, nil
}

// waiting are the calls of a batch and of its scripts that wait for a person, MaxQuestions at most: those that were
// asked about last. The list of approvals may be a moment behind: of a script's call its own log says whether it waits.
func (s *Server) waiting(ctx context.Context, of toolyard.BatchKey, scripts []toolyard.Parent) (out []client.Approval,
	err error) {
	list, err := s.cfg.Client.Approvals(ctx, of.Agent)
	if err != nil {
		return nil, err
	}
	for _, a := range list {
		made := slices.ContainsFunc(scripts, func(p toolyard.Parent) bool { return submission.IsChild(a.Batch, p) })
		waits := a.Batch == of.ID
		if made {
			st, err := s.cfg.Client.Batch(toolyard.BatchKey{Agent: of.Agent, ID: a.Batch}).Standing(ctx)
			if err != nil && !errors.Is(err, client.ErrNoBatch) {
				return nil, err
			}
			waits = st.Asked
		}
		if waits {
			out = append(out, a)
		}
		if len(out) == MaxQuestions {
			break
		}
	}
	return out, nil
}

// questionKey names a question. No two of a task have the same: it is made from the input that is shown, and when it
// was asked.
func questionKey(a *client.Approval) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %s", a.ID, a.AskedAt.UnixNano(), a.InputSHA256))
	return questionID + "-" + hex.EncodeToString(sum[:8])
}

// updateTask takes answers to a task's questions. Answers to others are passed over, and questions without an answer
// stay open.
func (s *Server) updateTask(ctx context.Context, l *looked, responses map[string]json.RawMessage) (mcp.Result, error) {
	if l.task.Status == wire.InputRequired {
		open, err := s.questionsOf(ctx, l)
		if err != nil {
			return nil, err
		}
		answers := make([]*mcp.ElicitResult, len(open))
		for i := range open { // all are read before one counts
			if raw, ok := responses[questionKey(&open[i].Approval)]; ok {
				answers[i] = new(mcp.ElicitResult)
				if err := json.Unmarshal(raw, answers[i]); err != nil {
					return nil, malformed("inputResponses: %v", err)
				}
			}
		}
		for i := range open {
			if answers[i] == nil {
				continue
			}
			if err := s.decideTask(ctx, l, &open[i].Approval, answers[i]); err != nil {
				return nil, err
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
	d.By, d.InputSHA256 = decider(l.who.Agent), a.InputSHA256
	err := s.cfg.Client.Decide(ctx, a.ID, d)
	bad := new(toolyard.InputError)
	switch {
	case err == nil, overtaken(err):
		return nil
	case errors.As(err, &bad):
		return malformed("%v", err)
	}
	return s.unreadable("decide about a call", err)
}

// resultOfTask waits for a task's call, and asks the client's person meanwhile. Going away cancels nothing.
func (s *Server) resultOfTask(ctx context.Context, l *looked, session *mcp.ServerSession) (mcp.Result, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, s.cfg.MaxWait, errLate)
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	asked, answered := make(chan client.Approval, 1), make(chan error, 1)
	if l.asks && !l.task.Status.Terminal() {
		go s.lookForQuestion(waiting, l.b, time.Time{}, asked)
		go s.lookForScripts(waiting, *l, asked)
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
				select {
				case answered <- err:
				case <-waiting.Done():
				}
				if err == nil && a.Batch == l.b.Key().ID { // its tool may ask something else
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

// lookForScripts sends what the calls of a task's script ask, each question once, until the task is over. What cannot
// be read now is read again, as the request goes on without it.
func (s *Server) lookForScripts(ctx context.Context, l looked, asked chan<- client.Approval) {
	for seen, over := map[string]bool{}, false; !over; {
		s.follow(ctx, &l, func() bool {
			err := s.lookAgain(ctx, &l)
			over = l.task.Status.Terminal() || isMalformed(err)
			if err != nil {
				return false
			}
			if len(l.st.Scripts) == 0 {
				return !over
			}
			open, err := s.questionsOf(ctx, &l)
			for i := range open {
				key := questionKey(&open[i].Approval)
				if seen[key] {
					continue
				}
				seen[key] = true
				select {
				case asked <- open[i].Approval:
				case <-ctx.Done():
					return false
				}
			}
			return err == nil
		})
		if !over && pause.For(ctx, PollInterval) != nil {
			return
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
