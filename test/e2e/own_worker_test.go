//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
	pool "github.com/toolyard/toolyard/worker"
)

// TestAProgramsOwnHooksAndCredentials: a Go program's worker runs hooks of its own around its tools, and gives a tool a
// credential that nobody else sees.
func TestAProgramsOwnHooksAndCredentials(t *testing.T) {
	t.Parallel()
	const credential = "a-credential-4711"
	d := dispatcher(t)
	nc, err := nats.Connect(d.says["nats"], credsFor(t, d.says["nats"], "worker.own"))
	must.OK(t, err)
	t.Cleanup(nc.Close)
	says := func(name string) tool.Tool {
		made, err := tool.New(tool.Typed[struct {
			Text string `json:"text"`
		}, string]{
			Declaration: tool.Declaration{Name: name, Description: "Says what it got.",
				Class: tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true},
			Run: func(_ context.Context, env tool.Env, in struct {
				Text string `json:"text"`
			}) (string, error) {
				value, err := env.Secret("SERVICE_LOGIN")
				return in.Text + " with " + value, err
			},
		})
		must.OK(t, err)
		return made
	}
	changed := "changed by a hook"
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- pool.Run(ctx, nc, pool.Options{
			Pool: "own", Tools: []tool.Tool{says("granted"), says("bare")},
			Credentials: map[string]map[string]string{"granted": {"SERVICE_LOGIN": credential}},
			Ready:       func(id string) { ready <- id },
			Hooks: []pool.Hook{
				{Name: "guard", Matcher: "granted|bare",
					Before: func(_ context.Context, c pool.HookCall) (pool.Before, error) {
						switch {
						case strings.Contains(string(c.Input), "forbidden"):
							return pool.Before{Block: true, Reason: "not with " + c.Tool}, nil
						case strings.Contains(string(c.Input), "break"):
							return pool.Before{}, errors.New("oops")
						case strings.Contains(string(c.Input), "other"):
							return pool.Before{Input: json.RawMessage(`{"text":"another"}`)}, nil
						}
						return pool.Before{}, nil
					},
					After: func(_ context.Context, c pool.HookCall, o pool.Outcome) (pool.After, error) {
						if strings.Contains(o.Output+o.Error, credential) {
							t.Errorf("a hook saw the credential: %+v", o)
						}
						if strings.Contains(string(c.Input), "after") {
							return pool.After{Output: &changed}, nil
						}
						return pool.After{Context: "seen"}, nil
					}},
			},
		})
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	b := toolyard.Batch{}
	for _, c := range []struct{ tool, text string }{{"granted", "plain"}, {"bare", "plain"}, {"granted", "forbidden"},
		{"granted", "break"}, {"granted", "other"}, {"granted", "after"}} {
		b.Calls = append(b.Calls, toolyard.Call{Tool: c.tool, Input: input(map[string]any{"text": c.text})})
	}
	stdout, stderr, status := run(t, nil, "dispatcher", "submit", "--nats", d.says["nats"], "--json", "--on-error",
		"continue", batchFile(t, b))
	if status != 0 {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	if strings.Contains(stdout, credential) {
		t.Error("the credential stands in a result")
	}
	for i, want := range []struct {
		code toolyard.Code
		says string
	}{
		{toolyard.ResultRedacted, "plain with [redacted: SERVICE_LOGIN]\n\n[added by a hook] seen"},
		{toolyard.SetupRequired, `this tool needs the credential "SERVICE_LOGIN"`},
		{toolyard.HookBlocked, "not with granted"},
		{toolyard.HookFailed, "a broken hook blocks the call"},
		{toolyard.ResultRedacted, "another with [redacted: SERVICE_LOGIN]"},
		{toolyard.OK, changed},
	} {
		r := viewOf(t, stdout).Results[i]
		if r.Code != want.code || !strings.Contains(r.Output+r.Error, want.says) {
			t.Errorf("call %d: %q %s%s, want %q %s", i, r.Code, r.Output, r.Error, want.code, want.says)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
