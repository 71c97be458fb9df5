package pipeline

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// TestAHookReturnsWhatItWasShown: what a hook returns as it was shown stands for the original, also where that is only
// the beginning of a long input, or lacks a secret in a name. What stands for the rest never runs.
func TestAHookReturnsWhatItWasShown(t *testing.T) {
	const short = `{"list":["b"],"text":"x"}`
	word := strings.Repeat("a", 100) + `","`
	long := `{"list":["` + strings.Repeat(word, MaxHookInputBytes/len(word)+1) + `b"],"text":"x"}`
	fits := strings.Repeat(word, MaxObservableBytes/len(word)+1) // but not into what others see
	secret := `{"s3cret":1,"text":"x"}`
	shown := func(in json.RawMessage) json.RawMessage { return in }
	more := func(in json.RawMessage) json.RawMessage {
		return append([]byte(`{"more":1,`), in[1:]...)
	}
	for name, c := range map[string]struct {
		input string
		give  func(json.RawMessage) json.RawMessage
		runs  string // empty: the hook breaks
	}{
		"a short input": {short, shown, short},
		"one that is cut for others": {`{"list":["` + fits + `b"],"text":"x"}`, more,
			`{"list":["` + fits + `b"],"more":1,"text":"x"}`},
		"a long input":                {long, shown, long},
		"a long input with a field":   {long, more, ""},
		"a long input written anew":   {long, func(json.RawMessage) json.RawMessage { return []byte(short) }, short},
		"a secret in a name":          {secret, shown, secret},
		"a secret beside a new field": {secret, more, ""},
	} {
		var ran json.RawMessage
		res := newRig(secretless, input(c.input), with(func(t *tool.Tool) {
			t.InputSchema = json.RawMessage(`{"type":"object","required":["text"],"additionalProperties":true}`)
			t.Run = func(_ context.Context, _ tool.Env, input json.RawMessage) (tool.Output, error) {
				ran = input
				return tool.Output{Text: "done"}, nil
			}
		}), func(r *rig) {
			r.pre = func(_ context.Context, in HookInput) (HookVerdict, error) {
				return HookVerdict{Input: c.give(in.Input), By: "mine"}, nil
			}
		}).result(t)
		code := toolyard.HookFailed
		if c.runs != "" {
			code = toolyard.OK
		}
		if res.Code != code || string(ran) != c.runs {
			t.Errorf("%s: %q, and %.60q runs: %.300s %v", name, res.Code, ran, res.Error, res.Phases)
		}
	}
}
