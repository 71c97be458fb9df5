package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/display"
	"github.com/toolyard/toolyard/internal/events"
	wire "github.com/toolyard/toolyard/internal/mcp"
)

// A call that waits for a person ends its request with a question to the client's person. The client comes again with
// the same call, the answer, and a state that says which call it is about. For clients of older revisions the library
// asks within one request, and comes again itself.

// questionID names the one question of a request.
const questionID = "approval"

// hasForms reports whether a client has a person who fills in forms.
func hasForms(caps *mcp.ClientCapabilities) bool {
	if caps == nil || caps.Elicitation == nil {
		return false
	}
	return caps.Elicitation.Form != nil || caps.Elicitation.URL == nil
}

// lookForQuestion sends the question about a batch's call that was asked after a time, when there is one.
func (s *Server) lookForQuestion(ctx context.Context, b *client.Batch, after time.Time, asked chan<- client.Approval) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	waits := s.followWaits(ctx, b)
	var again <-chan time.Time // nil while the call does not wait
	for {
		select {
		case now, ok := <-waits:
			if !ok {
				return
			}
			if again = nil; !now {
				continue
			}
		case <-again:
		}
		list, err := s.cfg.Client.Approvals(ctx, b.Key().Agent)
		for _, a := range list {
			if a.Batch == b.Key().ID && a.AskedAt.After(after) {
				select {
				case asked <- a:
				case <-ctx.Done():
				}
				return
			}
		}
		if err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("a call over MCP is not asked about here", "batch", b.Key(), "error", err)
		}
		again = time.After(listEvery) // the list follows the log within a moment
	}
}

// followWaits sends whether a batch's call waits for a person, each time that its log says so. It closes the channel at
// the end of the log or of ctx.
func (s *Server) followWaits(ctx context.Context, b *client.Batch) <-chan bool {
	waits := make(chan bool)
	go func() {
		defer close(waits)
		for e, err := range b.Watch(ctx) {
			if err != nil {
				if ctx.Err() == nil {
					s.cfg.Log.Warn("a call over MCP is not asked about here", "batch", b.Key(), "error", err)
				}
				return
			}
			switch events.Type(e.Type) {
			case events.CallWaiting, events.CallDecided, events.CallFinished:
				select {
				case waits <- e.Type == string(events.CallWaiting):
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return waits
}

// asking is what one request knows of its question: which call is left when the client cannot be asked.
type asking struct {
	open  string // the approval's id; empty while nothing is asked
	batch toolyard.BatchKey
	at    time.Time // when it was asked
	shown string    // the hash of what is asked
	form  bool      // a tool asks, which has begun
}

type askingKey struct{}

// question ends a request with the question about its call. What is too long to be shown is not asked about: nobody
// allows what they have not seen.
func (s *Server) question(ctx context.Context, req *mcp.CallToolRequest, sent *toolyard.Batch, b *client.Batch,
	a client.Approval) (*mcp.CallToolResult, error) {
	text, err := describe(a)
	if err != nil {
		if err := s.denyUnshown(ctx, a, err); err != nil {
			return s.unreachable("deny a call", err), nil
		}
		return s.await(ctx, req, sent, b, nil)
	}
	// The call may wait no longer by then: the log says so, by the clock of the NATS server, when the answer is stored.
	state, err := s.state.seal(pendingOf(sent, b.Key().ID, a, time.Now().Add(StateLifetime)))
	if err != nil {
		return nil, err
	}
	return ask(ctx, a, text, state), nil
}

// denyUnshown denies a call that could not be shown.
func (s *Server) denyUnshown(ctx context.Context, a client.Approval, why error) error {
	err := s.cfg.Client.Decide(ctx, a.ID, client.Decision{Verdict: client.Deny, By: decider(a.Agent),
		InputSHA256: a.InputSHA256,
		Reason:      "the person at the MCP client was not asked: " + cut(why.Error(), client.MaxReasonBytes/2)})
	if errors.Is(err, client.ErrNoApproval) { // somebody else has decided
		return nil
	}
	return err
}

func ask(ctx context.Context, about client.Approval, text, state string) *mcp.CallToolResult {
	if a, ok := ctx.Value(askingKey{}).(*asking); ok {
		a.open, a.batch = about.ID, toolyard.BatchKey{Agent: about.Agent, ID: about.Batch}
		a.at, a.shown, a.form = about.AskedAt, about.InputSHA256, about.Form != nil
	}
	return &mcp.CallToolResult{RequestState: state,
		InputRequests: mcp.InputRequestMap{questionID: form(text, about.Form)}}
}

// form is the form of a question: that of a tool which asks one itself, or that of a decision.
func form(text string, asked *toolyard.Form) *mcp.ElicitParams {
	schema := json.RawMessage(decisionSchema)
	if asked != nil {
		schema = asked.Schema
	}
	return &mcp.ElicitParams{Mode: "form", Message: text, RequestedSchema: schema}
}

// decisionSchema is the form of an answer.
const decisionSchema = `{"type":"object","properties":{` +
	`"decision":{"type":"string","title":"Decision","description":"allow runs the call as it is shown, deny does not","enum":["allow","deny"]},` +
	`"reason":{"type":"string","title":"Reason","description":"The model reads it.","maxLength":1000}},"required":["decision"]}`

// describe is a call as a person is asked about it. Each line of the input stands behind a mark of its own, so no text
// in it can look like a part of the question. What cannot be shown whole is an error.
func describe(a client.Approval) (string, error) {
	if a.Form != nil { // whose form the client shows
		return fmt.Sprintf("The MCP server \"%s\" asks, for the tool \"%s\": %s", display.Text(a.Form.Server),
			display.Text(a.Tool), display.Text(a.Form.Message)), nil
	}
	lines, err := display.Lines(a.Input, display.Options{Columns: shownColumns, SHA256: a.InputSHA256, Form: a.Form})
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("Allow the tool \"%s\" to run in the workspace \"%s\"?", display.Text(a.Tool),
		display.Text(string(a.Workspace)))
	if a.Destructive {
		text += " It may do what cannot be undone."
	}
	if a.Reason != "" {
		text += "\nAsked because: " + display.Text(a.Reason)
	}
	text += "\nInput (" + display.Legend + " " + display.LegendFolded + "):\n" + strings.Join(lines, "\n")
	if a.Diff != "" { // it may be left out: the input alone says what runs
		diff := "\nWhat it would change, as things stood when it was asked about:\n" +
			strings.Join(display.DiffLines(a.Diff, shownColumns, display.MaxDiffLines), "\n")
		if len(text)+len(diff) <= MaxShownBytes {
			text += diff
		}
	}
	if len(text) > MaxShownBytes {
		return "", fmt.Errorf("%w: it is too long, %d bytes as it is shown; at most %d are", display.ErrPart, len(text),
			MaxShownBytes)
	}
	return text, nil
}

// decider is who stands in the log as the one who decided.
func decider(agent toolyard.Agent) string {
	by := "mcp client of " + string(agent)
	if toolyard.CheckName("by", by) != nil {
		return "mcp client"
	}
	return by
}

// resume goes on with a call that was asked about.
func (s *Server) resume(ctx context.Context, req *mcp.CallToolRequest, batch *toolyard.Batch) (*mcp.CallToolResult,
	error) {
	p, err := s.state.open(req.Params.RequestState, time.Now())
	if err != nil || !p.isOf(batch) {
		return nil, malformed("requestState: %v", errState)
	}
	if !s.cfg.Approvals { // it was switched off since
		return nil, malformed("requestState: this server asks nobody")
	}
	b := s.cfg.Client.Batch(toolyard.BatchKey{Agent: p.Agent, ID: p.Batch})
	asked := time.Unix(0, p.Asked)
	d, ok := decisionOf(req.Params.InputResponses, p.Form)
	if !ok { // no answer, or none to this question: it is asked again, as long as there is something to decide
		list, err := s.cfg.Client.Approvals(ctx, p.Agent)
		if err != nil {
			return s.unreachable("read the approvals", err), nil
		}
		for _, a := range list {
			if a.ID == p.Approval {
				return s.question(ctx, req, batch, b, a)
			}
		}
		return s.await(ctx, req, batch, b, &asked)
	}
	if a, ok := ctx.Value(askingKey{}).(*asking); ok {
		a.open = ""
	}
	if p.Form { // a client may send the same answer again
		another, err := s.asksAnother(ctx, p.Agent, p.Approval, asked)
		if err != nil {
			return s.unreachable("read the approvals", err), nil
		}
		if another {
			return s.await(ctx, req, batch, b, &asked)
		}
	}
	d.By, d.InputSHA256 = decider(p.Agent), p.Shown
	err = s.cfg.Client.Decide(ctx, p.Approval, d)
	var bad *toolyard.InputError
	switch {
	case err == nil, overtaken(err): // the result says what came of it, or the next question is asked
	case errors.As(err, &bad):
		return nil, malformed("inputResponses: %v", err)
	default:
		return s.unreachable("decide about a call", err), nil
	}
	return s.await(ctx, req, batch, b, &asked)
}

// asksAnother reports whether a call asks something else than what it asked at a time. A tool may ask in the same words
// again, so that a decision about the former question would be taken for one about the other.
func (s *Server) asksAnother(ctx context.Context, agent toolyard.Agent, id string, asked time.Time) (bool, error) {
	list, err := s.cfg.Client.Approvals(ctx, agent)
	return slices.ContainsFunc(list, func(a client.Approval) bool {
		return a.ID == id && !a.AskedAt.Equal(asked)
	}), err
}

// overtaken reports whether a decision failed because its question is no longer open: somebody else has decided, or
// nobody in time, or this is the same answer again and the call asks something else by now.
func overtaken(err error) bool {
	bad, ok := errors.AsType[*toolyard.InputError](err)
	return ok && bad.Field == "input_sha256" || errors.Is(err, client.ErrNoApproval)
}

// decisionOf reads the answer to a request's question. ok is false where there is none that can be read.
func decisionOf(responses mcp.InputResponseMap, form bool) (d client.Decision, ok bool) {
	r, is := responses[questionID].(*mcp.ElicitResult)
	if !is || r == nil {
		return d, false
	}
	return decisionFrom(r, form)
}

// decisionFrom reads a form. Only one that says so allows anything: a form that was closed or declined is a denial.
// form says that a tool has asked: then what was filled in is the answer.
func decisionFrom(r *mcp.ElicitResult, form bool) (d client.Decision, ok bool) {
	d.Verdict = client.Deny
	switch {
	case r.Action == "decline", r.Action == "cancel":
		d.Reason = "the person has not allowed it"
		if form {
			d.Reason = "the person has declined"
		}
		return d, true
	case r.Action != "accept":
		return d, false
	case form:
		input, err := json.Marshal(contentOf(r))
		d.Verdict, d.Input = client.Allow, input
		return d, err == nil
	}
	if reason, there := r.Content["reason"]; there {
		if d.Reason, ok = reason.(string); !ok {
			return d, false
		}
		d.Reason = cut(d.Reason, client.MaxReasonBytes-len("…"))
	}
	switch r.Content["decision"] {
	case string(client.Allow):
		d.Verdict = client.Allow
		return d, true
	case string(client.Deny):
		return d, true
	}
	return d, false
}

// contentOf is what a person has filled in, with numbers as they were sent, and what the library has filled in beside
// it.
func contentOf(r *mcp.ElicitResult) map[string]any {
	content := map[string]any{}
	maps.Copy(content, r.Content)
	text, _ := r.Meta[wire.MetaContent].(string)
	var sent map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &sent) == nil {
		for name, value := range sent {
			content[name] = value
		}
	}
	return content
}

// askWithin bounds a call's request, and denies its call when a client of an older revision could not be asked within
// it.
func (s *Server) askWithin(ctx context.Context, method string, req mcp.Request, next mcp.MethodHandler) (mcp.Result,
	error) {
	within, cancel := context.WithTimeout(ctx, 2*s.cfg.MaxWait+MaxAsk)
	defer cancel()
	a := &asking{}
	res, err := next(context.WithValue(within, askingKey{}, a), method, req)
	call, ok := req.(*mcp.CallToolRequest)
	if a.open == "" || !ok || call.ProtocolVersion() >= stateless {
		return res, err
	}
	if err != nil {
		s.cfg.Log.Info("a person could not be asked over MCP", "approval", a.open, "error", err)
	}
	out, err := s.unasked(ctx, call, a)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// unasked denies a call that the client's person was not asked about. When somebody else has decided first, the call
// may have run, and may ask something else: then its result is the answer.
func (s *Server) unasked(ctx context.Context, req *mcp.CallToolRequest, a *asking) (*mcp.CallToolResult, error) {
	who := s.callerOf(req.Extra).Agent
	bye, stop := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer stop()
	another, err := s.asksAnother(bye, a.batch.Agent, a.open, a.at)
	if err == nil && !another {
		err = s.cfg.Client.Decide(bye, a.open, client.Decision{Verdict: client.Deny, InputSHA256: a.shown,
			By: decider(who), Reason: "the person at the client could not be asked"})
	}
	switch {
	case another, overtaken(err):
		leave, full := s.enter(who)
		if full != "" {
			return failed("Somebody else has decided about this call, so it may run. %s, so its result is not waited "+
				"for.", full), nil
		}
		defer leave()
		return s.await(ctx, req, nil, s.cfg.Client.Batch(a.batch), nil)
	case err != nil:
		return s.unreachable("deny a call that nobody could be asked about", err), nil
	case a.form: // the library asks a client of an older revision once in a request
		return failed("The call's tool asked a person something, and the client did not ask one. It did not " +
			"finish."), nil
	}
	return failed("A person had to allow this call, and the client did not ask one. It has not run."), nil
}
