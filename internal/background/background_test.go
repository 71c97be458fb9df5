package background

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

func named(t testing.TB, name string) tool.Tool {
	t.Helper()
	for _, made := range Tools() {
		if made.Name == name {
			checked, err := tool.Raw(made)
			must.OK(t, err)
			return checked
		}
	}
	t.Fatalf("there is no %s", name)
	return tool.Tool{}
}

// TestWaiting: a tool asks until the call is over or its wait is, with the hash of its input.
func TestWaiting(t *testing.T) {
	for _, c := range []struct {
		tool, input string
		overAfter   time.Duration
		took        time.Duration // at least
		state       string
	}{
		{toolyard.BackgroundCheck, `{"handle":"bg-1"}`, time.Hour, 0, "running"},
		{toolyard.BackgroundWait, `{"handle":"bg-1"}`, time.Hour, DefaultWait, "running"},
		{toolyard.BackgroundWait, `{"handle":"bg-1","wait_ms":1000}`, time.Hour, time.Second, "running"},
		{toolyard.BackgroundWait, `{"handle":"bg-1","wait_ms":999999999}`, time.Hour, toolyard.MaxBackgroundWait,
			"running"},
		{toolyard.BackgroundWait, `{"handle":"bg-1"}`, 5 * time.Second, 5 * time.Second, "over"},
		{toolyard.BackgroundStart, `{"tool":"x","input":{},"wait_ms":60000}`, 5 * time.Second, 5 * time.Second, "over"},
		{toolyard.BackgroundStart, `{"tool":"x","input":{}}`, 5 * time.Second, 0, "running"},
	} {
		synctest.Test(t, func(t *testing.T) {
			v, err := schema.Parse(json.RawMessage(c.input))
			must.OK(t, err)
			began, asked := time.Now(), 0
			ctx := WithAsk(t.Context(), func(_ context.Context, hash string) (broker.BackgroundAnswer, error) {
				asked++
				a := broker.BackgroundAnswer{Handle: "bg-1", State: broker.BackgroundRunning,
					Tail: broker.OutputTail{Text: "so far", LostBytes: 7}}
				if hash != v.Hash() {
					t.Errorf("it asks with %q", hash)
				}
				if time.Since(began) >= c.overAfter {
					a.State, a.Result = broker.BackgroundOver, &toolyard.Result{Output: "all of it"}
				}
				return a, nil
			})
			env := tool.Env{Progress: func(tool.Progress) {}}
			out, err := named(t, c.tool).Run(ctx, env, json.RawMessage(c.input))
			took := time.Since(began)
			if err != nil || took < c.took || took > c.took+longestLook ||
				!strings.Contains(string(out.Structured), `"state":"`+c.state+`"`) {
				t.Errorf("%s %s: %+v, %v after %s", c.tool, c.input, out, err, took)
			}
			want := "[7 bytes before this are left out]\nso far"
			if c.state == "over" {
				want = "all of it"
			}
			if !strings.Contains(out.Text, want) {
				t.Errorf("%s %s: %q", c.tool, c.input, out.Text)
			}
			if most := int(c.took/longestLook) + 10; asked > most {
				t.Errorf("%s %s: it asked %d times", c.tool, c.input, asked)
			}
		})
	}
}

// TestWhatIsSaid: each state has its words, and what was not done is an error that says why.
func TestWhatIsSaid(t *testing.T) {
	for _, c := range []struct {
		a    broker.BackgroundAnswer
		err  error
		code toolyard.Code
		want string
	}{
		{broker.BackgroundAnswer{Handle: "bg-1", State: broker.BackgroundQueued}, nil, "", "has not begun"},
		{broker.BackgroundAnswer{Handle: "bg-1", State: broker.BackgroundWaiting}, nil, "", "a person's permission"},
		{broker.BackgroundAnswer{Handle: "bg-1", State: broker.BackgroundRunning}, nil, "", "[none]"},
		{broker.BackgroundAnswer{Handle: "bg-1", State: broker.BackgroundRefused, Problem: "no room"}, nil, "",
			"no room"},
		{broker.BackgroundAnswer{Handle: "bg-1", State: broker.BackgroundOver, Result: &toolyard.Result{IsError: true,
			Code: toolyard.Timeout, Error: "too long"}}, nil, "", "ended as timeout]\ntoo long"},
		{broker.BackgroundAnswer{Handle: "bg-1", State: broker.BackgroundOver, Result: &toolyard.Result{Truncated: true,
			Output: "begins", Blob: "r"}}, nil, "", "read_result with ref r"},
		{broker.BackgroundAnswer{Code: toolyard.InvalidArguments, Problem: "why"}, nil, toolyard.InvalidArguments,
			"why"},
		{broker.BackgroundAnswer{Code: toolyard.UnknownTool, Problem: "why"}, nil, toolyard.InvalidArguments, "why"},
		{broker.BackgroundAnswer{Code: toolyard.ExecutionFailed, Problem: "why"}, nil, toolyard.ExecutionFailed, "why"},
		{broker.BackgroundAnswer{Code: toolyard.DependencyUnavailable, Problem: "why"}, nil,
			toolyard.DependencyUnavailable, "why"},
		{broker.BackgroundAnswer{}, errors.New("silence"), toolyard.DependencyUnavailable, "no dispatcher answered"},
	} {
		ask := func(context.Context, string) (broker.BackgroundAnswer, error) { return c.a, c.err }
		ctx := WithAsk(t.Context(), ask)
		out, err := named(t, toolyard.BackgroundCheck).Run(ctx, tool.Env{}, json.RawMessage(`{"handle":"bg-1"}`))
		if c.code == "" {
			if err != nil || !strings.Contains(out.Text, c.want) {
				t.Errorf("%+v: %+v, %v", c.a, out, err)
			}
			continue
		}
		if e := tool.AsError(err); err == nil || e.Code != c.code || !strings.Contains(e.Message, c.want) {
			t.Errorf("%+v: %v", c.a, err)
		}
	}
	_, err := named(t, toolyard.BackgroundCheck).Run(t.Context(), tool.Env{}, json.RawMessage(`{"handle":"bg-1"}`))
	if e := tool.AsError(err); err == nil || e.Code != toolyard.SetupRequired {
		t.Errorf("without a dispatcher: %v", err)
	}
}

// TestAsResult: what is over in time is the start's own result, a failure included; what is not over is a handle.
func TestAsResult(t *testing.T) {
	over := func(r toolyard.Result) broker.BackgroundAnswer {
		r.IsError = r.Code != ""
		return broker.BackgroundAnswer{State: broker.BackgroundOver, Result: &r}
	}
	for _, c := range []struct {
		a    broker.BackgroundAnswer
		code toolyard.Code // of the error; empty: there is none
		text string
	}{
		{over(toolyard.Result{Output: "built"}), "", "built"},
		{over(toolyard.Result{Output: "begins", Truncated: true, Blob: "r"}), "",
			"begins\n[this is the beginning; read_result with ref r has all of it]"},
		{over(toolyard.Result{Code: toolyard.ExecutionFailed, Error: "exit status 2"}), toolyard.ExecutionFailed,
			"exit status 2"},
		{over(toolyard.Result{Code: toolyard.PermissionDenied, Error: "no"}), toolyard.ExecutionFailed,
			"The call ended as permission_denied. no"},
		{broker.BackgroundAnswer{State: broker.BackgroundRefused, Problem: "no room"}, toolyard.ExecutionFailed,
			"The call was refused and has not run: no room"},
		{broker.BackgroundAnswer{State: broker.BackgroundRunning}, "",
			"[background call bg-1 is running; its output so far follows]\n[none]"},
		{broker.BackgroundAnswer{State: broker.BackgroundWaiting}, "",
			"[background call bg-1 waits for a person's permission]"},
	} {
		c.a.Handle = "bg-1"
		ctx := WithAsk(t.Context(), func(context.Context, string) (broker.BackgroundAnswer, error) { return c.a, nil })
		out, err := named(t, toolyard.BackgroundStart).Run(ctx, tool.Env{},
			json.RawMessage(`{"tool":"bash","input":{},"as_result":true}`))
		text, code := out.Text, toolyard.OK
		if err != nil {
			e := tool.AsError(err)
			text, code = e.Message, e.Code
		}
		if text != c.text || code != c.code {
			t.Errorf("%+v: %q %q, %v", c.a, code, text, err)
		}
	}
}

// TestAsResultKeepsData: the start has the data of the call, and says when it may be repeated.
func TestAsResultKeepsData(t *testing.T) {
	for _, r := range []toolyard.Result{
		{Output: "text", Structured: json.RawMessage(`{"queue":3}`)},
		{IsError: true, Code: toolyard.DependencyUnavailable, Error: "busy", Retryable: true, RetryAfterMS: 7_000},
	} {
		ctx := WithAsk(t.Context(), func(context.Context, string) (broker.BackgroundAnswer, error) {
			return broker.BackgroundAnswer{Handle: "bg-1", State: broker.BackgroundOver, Result: &r}, nil
		})
		out, err := named(t, toolyard.BackgroundStart).Run(ctx, tool.Env{},
			json.RawMessage(`{"tool":"bash","input":{},"as_result":true}`))
		if string(out.Structured) != string(r.Structured) || (err != nil) != r.IsError ||
			err != nil && tool.AsError(err).RetryAfterMS != r.RetryAfterMS {
			t.Errorf("%+v: %+v, %+v", r, out, err)
		}
	}
}

// FuzzInput: whatever an input is, a tool neither panics nor waits longer than it may, and asks only about JSON.
func FuzzInput(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"wait_ms":-1}`, `{"wait_ms":9223372036854775807}`, `{"wait_ms":null}`, `[]`, `{"a":`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		in, err := read(raw, DefaultWait)
		if in.wait < 0 || in.wait > toolyard.MaxBackgroundWait || err == nil && (in.hash == "" || !json.Valid(raw)) {
			t.Errorf("%q: %+v %v", raw, in, err)
		}
	})
}
