package pipeline

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// TestAnInputThatNeedsAnotherLock: neither a hook nor a person can have a call run with a name that its group does not
// hold. One that needs the same runs.
func TestAnInputThatNeedsAnotherLock(t *testing.T) {
	locked := func(r *rig) {
		e := r.tools["echo"]
		e.Locks = []string{"file:{text}"}
		r.setTool(e)
		r.job.Locks = []tool.Lock{{Name: "file:hi", Shared: true}}
	}
	var held []tool.Lock
	seen := func(r *rig) {
		e := r.tools["echo"]
		run := e.Run
		e.Run = func(ctx context.Context, env tool.Env, input json.RawMessage) (tool.Output, error) {
			held = env.Locks
			return run(ctx, env, input)
		}
		r.setTool(e)
	}
	for input, same := range map[string]bool{`{"text":"./HI"}`: true, `{"text":"ho"}`: false, `{"text":"/hi"}`: false} {
		hook := newRig(locked, seen, func(r *rig) {
			r.pre = func(context.Context, HookInput) (HookVerdict, error) {
				return HookVerdict{Input: json.RawMessage(input), By: "h"}, nil
			}
		})
		res := hook.result(t)
		if same && (res.Code != toolyard.OK || len(held) != 1 || held[0].Name != "file:hi") ||
			!same && (res.Code != toolyard.HookFailed || !strings.Contains(res.Detail, "other locks")) {
			t.Errorf("a hook's input %s: %s: %s (%s)", input, res.Code, res.Error, res.Detail)
		}
		edit := newRig(asks, locked, func(r *rig) {
			r.job.Call.Input = json.RawMessage(input)
			r.job.Approved = &Approved{By: "ann", InputHash: hashOf(t, input), Edited: true}
		})
		res = edit.result(t)
		if same && res.Code != toolyard.OK || !same && (res.Code != toolyard.PermissionDenied ||
			!strings.Contains(res.Error, "other locks")) {
			t.Errorf("a person's input %s: %s: %s", input, res.Code, res.Error)
		}
	}
}
