package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// TestTheToolsOwnPermission: a tool's own answer counts in the permission phase, and can only tighten.
func TestTheToolsOwnPermission(t *testing.T) {
	type answer = func(context.Context, tool.Env, json.RawMessage) (tool.Permission, error)
	say := func(p tool.Permission, err error) answer {
		return func(context.Context, tool.Env, json.RawMessage) (tool.Permission, error) { return p, err }
	}
	for name, c := range map[string]struct {
		says answer
		rule Behavior
		want toolyard.Code
		text string
	}{
		"nothing": {say(tool.Permission{}, nil), Allow, toolyard.OK, ""},
		"a denial": {say(tool.Permission{Behavior: tool.Deny, Reason: "not on Sundays"}, nil), Allow,
			toolyard.PermissionDenied, "not on Sundays"},
		"a rule denies": {say(tool.Permission{}, nil), Deny, toolyard.PermissionDenied, ""},
		"an unknown answer": {say(tool.Permission{Behavior: "allow"}, nil), Allow, toolyard.PermissionDenied,
			"the tool"},
		"no way past a rule": {say(tool.Permission{Behavior: "allow"}, nil), Deny, toolyard.PermissionDenied, ""},
		"an error": {say(tool.Permission{}, errors.New("the quota is used up")), Allow,
			toolyard.PermissionDenied, "the quota is used up"},
		"a panic": {func(context.Context, tool.Env, json.RawMessage) (tool.Permission, error) { panic("x") }, Allow,
			toolyard.PermissionDenied, "could not be checked"},
		"silence": {func(ctx context.Context, _ tool.Env, _ json.RawMessage) (tool.Permission, error) {
			<-ctx.Done()
			return tool.Permission{}, ctx.Err()
		}, Allow, toolyard.PermissionDenied, "could not be checked"},
		"its input and place": {func(_ context.Context, env tool.Env, input json.RawMessage) (tool.Permission, error) {
			if string(input) != `{"text":"hi"}` || env.Session != "s" || env.WorkspaceDir != "/ws" ||
				env.CallID != "c3" {
				return tool.Permission{Behavior: tool.Deny, Reason: "wrong"}, nil
			}
			return tool.Permission{}, nil
		}, Allow, toolyard.OK, ""},
	} {
		ran := false
		r := newRig(decides(PermissionDecision{Behavior: c.rule, Source: "test"}, nil), func(r *rig) {
			e := r.tools["echo"]
			run := e.Run
			e.Run = func(ctx context.Context, env tool.Env, input json.RawMessage) (tool.Output, error) {
				ran = true
				return run(ctx, env, input)
			}
			e.CheckPermission = c.says
			r.setTool(e)
			r.CheckTimeout, r.Grace = 50*time.Millisecond, 50*time.Millisecond
		})
		res := r.result(t)
		if res.Code != c.want || !strings.Contains(res.Error, c.text) || ran != (c.want == toolyard.OK) {
			t.Errorf("%s: %q %q, ran %t; want %q", name, res.Code, res.Error, ran, c.want)
		}
		for _, f := range res.Phases {
			if f.Outcome == toolyard.OutcomeFailed && f.Phase != toolyard.PhasePermission {
				t.Errorf("%s: it failed in %s", name, f.Phase)
			}
		}
	}
}

// TestThePersonIsShownWhatWouldChange: the tool's diff is shown without secrets and cut at a line; a failing diff does
// not prevent the question.
func TestThePersonIsShownWhatWouldChange(t *testing.T) {
	for name, c := range map[string]struct {
		says func() (string, error)
		want string
	}{
		"a diff":   {func() (string, error) { return "-old\n+new hunter2\n", nil }, "-old\n+new [redacted]\n"},
		"a panic":  {func() (string, error) { panic("x") }, ""},
		"an error": {func() (string, error) { return "half", errors.New("x") }, ""},
		"a long one": {func() (string, error) { return strings.Repeat("+line\n", MaxShownDiffBytes), nil },
			strings.Repeat("+line\n", (MaxShownDiffBytes-24)/6) + "\\ the rest is left out\n"},
	} {
		r := newRig(asks, func(r *rig) {
			e := r.tools["echo"]
			e.Diff = func(context.Context, tool.Env, json.RawMessage) (string, error) { return c.says() }
			r.setTool(e)
			r.Redact = func(s string) string { return strings.ReplaceAll(s, "hunter2", "[redacted]") }
		})
		_, err := r.Run(t.Context(), r.job)
		w, ok := errors.AsType[*WaitingError](err)
		if !ok || w.Diff != c.want {
			t.Errorf("%s: %v, %d bytes; want %d", name, err, len(w.Diff), len(c.want))
		}
	}
}

// atOnce is a permission that says whether it decides at once.
type atOnce struct {
	*rig
	at bool
}

func (a atOnce) DecidesAtOnce(*PermissionInput) bool { return a.at }

// TestAPermissionAtOnce: what is decided in the call's own goroutine has the same ends; what may wait for something is
// abandoned when it does not return.
func TestAPermissionAtOnce(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	for name, c := range map[string]struct {
		at     bool
		decide func(context.Context, PermissionInput) (PermissionDecision, error)
		want   toolyard.Code
	}{
		"allowed": {true, func(context.Context, PermissionInput) (PermissionDecision, error) {
			return PermissionDecision{Behavior: Allow}, nil
		}, toolyard.OK},
		"denied": {true, func(context.Context, PermissionInput) (PermissionDecision, error) {
			return PermissionDecision{Behavior: Deny}, nil
		}, toolyard.PermissionDenied},
		"an error": {true, func(context.Context, PermissionInput) (PermissionDecision, error) {
			return PermissionDecision{Behavior: Allow}, errors.New("x")
		}, toolyard.PermissionDenied},
		"a panic": {true, func(context.Context, PermissionInput) (PermissionDecision, error) { panic("x") },
			toolyard.InternalError},
		"a hanging file system": {false, func(context.Context, PermissionInput) (PermissionDecision, error) {
			<-hang
			return PermissionDecision{Behavior: Allow}, nil
		}, toolyard.Canceled},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		r := newRig(func(r *rig) {
			r.Permission, r.Grace = atOnce{r, c.at}, time.Millisecond
			r.decide = func(ctx context.Context, in PermissionInput) (PermissionDecision, error) {
				if c.want == toolyard.Canceled {
					cancel(ErrCanceled)
				}
				return c.decide(ctx, in)
			}
		})
		res, err := r.Run(ctx, r.job)
		if cancel(nil); err != nil || res.Code != c.want {
			t.Errorf("%s: %q %q, %v; want %q", name, res.Code, res.Error, err, c.want)
		}
	}
}
