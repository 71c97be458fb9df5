package toolset

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/elicit"
	wire "github.com/toolyard/toolyard/internal/mcp"
	"github.com/toolyard/toolyard/tool"
)

// A server may ask a person something before it goes on, if the manifest lets it.
//
// From the revision 2026-07-28 on it ends the call with the question, and goes on when the call comes again with the
// answer: nothing of the call is left meanwhile, so it can wait as long as a person needs. Of several questions at once
// a person answers one after the other, and the call comes again with all answers.
//
// A server of an older revision asks while the call runs. A running call cannot wait for a person without its slot and
// its workspace. So the server gets an error for its question, the call ends, and is made again from its beginning when
// the person has answered; then the server gets the answer where it asks the same. A call that may not be made twice is
// declined. So is a question of which it is not certain which call asks it: over HTTP it comes on the response of its
// call, and over a pipe there must be one call alone.

// capabilities of a client towards a server: tasks, and forms if the manifest lets the server ask.
func (s *session) capabilities() *mcp.ClientCapabilities {
	caps := tasked()
	if s.t.o.Server.Elicitation {
		caps.Elicitation = &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}}
	}
	return caps
}

// running is a call that runs, as far as its server may ask something meanwhile. The session's mu guards it.
type running struct {
	tool string
	// mute says why nobody is asked; empty: a person is.
	mute   string
	replay *elicit.Replay
	// asked has the question that ends the call, if there is one; pending says so.
	asked   chan *elicit.Question
	pending bool
	// declined says why the last question was declined that was.
	declined string
}

// begins notes that a call runs. token names it.
func (s *session) begins(ctx context.Context, token string, c call) *running {
	asks := elicit.From(ctx)
	r := &running{tool: c.name, mute: asks.Mute, asked: make(chan *elicit.Question, 1)}
	if r.replay = elicit.NewReplay(asks.Answer); !c.again {
		r.mute = "the tool is neither read-only nor idempotent, and a call that has begun may not be made again"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = map[string]*running{}
	}
	s.calls[token] = r
	return r
}

// ends notes that a call is over. answered says that the server has ended it, so that it asks nothing more.
func (s *session) ends(token string, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, token)
	s.unanswered = s.unanswered || !answered
}

// hush has a call ask nothing more.
func (s *session) hush(r *running, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.mute = why
}

// question is what a call has asked; nil if nothing.
func (r *running) question() *elicit.Question {
	select {
	case q := <-r.asked:
		return q
	default:
		return nil
	}
}

// explained adds to a tool's failure why its question was declined.
func (s *session) explained(r *running, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil || r.declined == "" {
		return err
	}
	e := *tool.AsError(err)
	e.Message += fmt.Sprintf(" (The tool wanted to ask a person something, which was declined: %s.)", r.declined)
	return &e
}

// codeAsked is the JSON-RPC code for a question that a person is asked behind the end of its call.
const codeAsked = -32000

// asksNow answers a server that asks while a call runs; nil where the server may ask nothing.
func (s *session) asksNow() func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	if !s.t.o.Server.Elicitation {
		return nil
	}
	return func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		if req.Params.Mode == "url" { // the SDK would wait until somebody has opened the address
			return nil, &jsonrpc.Error{Code: mcp.CodeURLElicitationRequired, Message: errAddress.Error()}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		name := ""
		r, why := s.whoAsks(req.Params)
		if why == nil {
			var res *mcp.ElicitResult
			name = r.tool
			if res, why = s.answerNow(r, req.Params); why == nil && res == nil {
				return nil, &jsonrpc.Error{Code: codeAsked,
					Message: "a person is asked; end the call, which is made again when they have answered"}
			}
			if why == nil {
				return res, nil
			}
			r.declined = why.Error()
		}
		s.t.log.Info("a question of an MCP server is declined", "tool", name, "why", why)
		return &mcp.ElicitResult{Action: "decline", Meta: mcp.Meta{declinedMeta: why.Error()}}, nil
	}
}

// declinedMeta is the key in the _meta of an answer that says why a question was declined.
const declinedMeta = "dev.toolyard/reason"

// whoAsks is the call that asks. The error says why that is not certain.
func (s *session) whoAsks(p *mcp.ElicitParams) (*running, error) {
	if p.Meta[wire.RelatedTask] != nil {
		return nil, errTask
	}
	if s.t.o.Server.URL != "" {
		token, _ := p.Meta[wire.MetaCall].(string)
		if r := s.calls[token]; r != nil {
			return r, nil
		}
		return nil, errors.New("it does not ask on the response of the call that it is about")
	}
	if s.unanswered {
		return nil, errors.New("a call before this one was not answered, and may be the one that asks")
	}
	if len(s.calls) != 1 {
		return nil, fmt.Errorf("%d calls run, and nothing says which of them asks", len(s.calls))
	}
	for _, r := range s.calls {
		return r, nil
	}
	return nil, nil
}

// answerNow is the answer that a person has given before; nil if they are asked now, and the call ends. The error says
// why they are not.
func (s *session) answerNow(r *running, p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	form, err := s.formOf(p)
	if err != nil {
		return nil, err
	}
	if content, ok := r.replay.Next(form); ok {
		res, err := accepted(content)
		if err != nil {
			return nil, fmt.Errorf("the answer to what it asks cannot be read: %w", err)
		}
		return res, nil
	}
	switch {
	case r.mute != "":
		return nil, errors.New(r.mute)
	case r.pending:
		return nil, errors.New("one thing is asked at a time")
	}
	q, err := r.replay.Ask(form)
	if err != nil {
		return nil, err
	}
	r.pending = true
	r.asked <- q
	return nil, nil
}

// accepted is a person's answer for a server, with numbers as the person wrote them.
func accepted(content json.RawMessage) (*mcp.ElicitResult, error) {
	res := &mcp.ElicitResult{Action: "accept"}
	d := json.NewDecoder(bytes.NewReader(content))
	d.UseNumber()
	return res, d.Decode(&res.Content)
}

// endWith ends a call with its question. The server is given a moment to end it itself. Over a pipe it must: a call
// that goes on could ask in the name of the next one. answered says that the server has ended it.
func (s *session) endWith(ctx, asking context.Context, q *elicit.Question, answers <-chan callAnswer,
) (answered bool, err error) {
	late := time.NewTimer(askedGrace)
	defer late.Stop()
	select {
	case got := <-answers:
		answered = got.answered()
	case <-asking.Done():
	case <-late.C:
		if s.t.o.Server.URL == "" {
			return false, tool.Failed(nil, "The MCP server wants to ask a person something, and did not end its call "+
				"when it was told that the call would be made again. The tool did not finish.")
		}
	}
	if ctx.Err() != nil {
		return answered, context.Cause(ctx)
	}
	return answered, q
}

// errAddress is for elicitation in URL mode, and errTask for a question of a task.
var (
	errAddress = errors.New("it wants a person to open an address, and only forms are asked")
	errTask    = errors.New("it is a task that asks")
)

// answered puts a person's answers into a call that comes again with them, where the server has ended the call with its
// questions. next is what the person is asked before the server is.
func (s *session) answered(ctx context.Context, params *mcp.CallToolParams) (next *elicit.Question, err error) {
	a := elicit.From(ctx).Answer
	if a == nil || elicit.IsReplay(a) || s.version() < wire.Alone2026 {
		return nil, nil
	}
	answers, state, next, err := a.Answers()
	if err != nil || next != nil {
		return next, err
	}
	params.InputResponses, params.RequestState = mcp.InputResponseMap{}, state
	for key, content := range answers {
		res, err := accepted(content)
		if err != nil {
			return nil, fmt.Errorf("read the answer to what the server asked: %w", err)
		}
		params.InputResponses[key] = res
	}
	return nil, nil
}

// question is the error of a call that ended with a question: an [*elicit.Question], or why nobody is asked.
func (s *session) question(ctx context.Context, res *mcp.CallToolResult) error {
	q, err := s.questionOf(ctx, res)
	if err == nil {
		return q
	}
	return tool.Failed(err, "The MCP server wants to ask a person something before it goes on, which is not possible "+
		"here: %v. The tool did not finish.", err)
}

func (s *session) questionOf(ctx context.Context, res *mcp.CallToolResult) (*elicit.Question, error) {
	if !s.t.o.Server.Elicitation {
		return nil, errors.New("its operator does not let it ask")
	}
	if mute := elicit.From(ctx).Mute; mute != "" {
		return nil, errors.New(mute)
	}
	var all []elicit.Asked
	for _, key := range slices.Sorted(maps.Keys(res.InputRequests)) {
		asked, ok := res.InputRequests[key].(*mcp.ElicitParams)
		if !ok || asked == nil {
			return nil, fmt.Errorf("what it asks for is no form (%T)", res.InputRequests[key])
		}
		form, err := s.formOf(asked)
		if err != nil {
			return nil, err
		}
		all = append(all, elicit.Asked{Key: key, Form: form})
	}
	return elicit.Ask(all, res.RequestState)
}

// formOf is what a server asks.
func (s *session) formOf(p *mcp.ElicitParams) (toolyard.Form, error) {
	if p.Mode != "" && p.Mode != "form" || p.URL != "" {
		return toolyard.Form{}, errAddress
	}
	form, err := json.Marshal(p.RequestedSchema)
	if err != nil {
		return toolyard.Form{}, fmt.Errorf("its form cannot be read: %w", err)
	}
	return toolyard.Form{Server: s.t.o.Server.Name, Message: p.Message, Schema: form}, nil
}
