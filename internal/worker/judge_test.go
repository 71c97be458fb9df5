package worker

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// TestAJudgeTellsNoSecret: what a tool says of a call stands in the batch's log and is shown to people and hooks. It is
// redacted as the tool's results are.
func TestAJudgeTellsNoSecret(t *testing.T) {
	bubble.Run(t, broker.Settings{MaxStoreBytes: 256 << 20}, func(e *bubble.Env) {
		made, err := tool.Raw(tool.Tool{
			Declaration: tool.Declaration{Name: "judged", Description: "A tool of a test.",
				InputSchema: json.RawMessage(`{"type":"object"}`), Class: tool.ClassRule{Ask: true}},
			Run: func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) {
				return tool.Output{}, nil
			},
			Judge: func(input json.RawMessage) (tool.Judgement, error) {
				switch {
				case strings.Contains(string(input), "fails"):
					return tool.Judgement{}, errors.New("the service has refused hunter2")
				case strings.Contains(string(input), "panics"):
					panic("with hunter2")
				}
				return tool.Judgement{Class: toolyard.ReadOnly, Why: "hunter2 only reads"}, nil
			},
		})
		must.OK(e.T, err)
		w, err := New(e.Broker("w"), Config{ID: "w", Tools: []tool.Tool{made}, Origin: registry.Toolset,
			Redact:     func(text string) string { return strings.ReplaceAll(text, "hunter2", "[secret]") },
			DrainGrace: time.Second, Log: e.Log()})
		must.OK(e.T, err)
		_, entry, ok := w.tools.Lookup("judged")
		if !ok {
			e.Fatal("there is no tool")
		}
		for form, want := range map[string]string{
			"answers": "[secret] only reads",
			"fails":   "the tool's judge failed: the service has refused [secret]",
			"panics":  "the tool's judge panicked: with [secret]",
		} {
			out := w.judge(e.Context(), []broker.JudgeCall{{Tool: "judged", Declaration: entry.Hash,
				Input: json.RawMessage(`{"form":"` + form + `"}`)}})
			if len(out) != 1 || out[0].Judgement.Why+out[0].Failed != want {
				e.Errorf("%s: %+v, want %q", form, out, want)
			}
		}
	})
}
