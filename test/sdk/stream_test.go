package sdk

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	anthropicsdk "github.com/anthropics/anthropic-sdk-go"
	openaisdk "github.com/openai/openai-go/v3"
	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider"
	"github.com/toolyard/toolyard/internal/provider/eventstream/streamtest"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestStreamsInTheSDKs: the official SDKs put the same calls together out of the same events. They take inputs that are
// objects only.
func TestStreamsInTheSDKs(t *testing.T) {
	put := map[provider.Format]func(stream []string) ([]sdkCall, error){
		provider.Anthropic: func(stream []string) (calls []sdkCall, err error) {
			var m anthropicsdk.Message
			for _, data := range stream {
				var e anthropicsdk.MessageStreamEventUnion
				if err := json.Unmarshal([]byte(data), &e); err != nil {
					return nil, err
				}
				if e.Type == "ping" {
					continue
				}
				if err := m.Accumulate(e); err != nil {
					return nil, err
				}
			}
			for _, block := range m.Content {
				if use, ok := block.AsAny().(anthropicsdk.ToolUseBlock); ok {
					calls = append(calls, sdkCall{ID: use.ID, Tool: use.Name, Input: string(use.Input)})
				}
			}
			return calls, nil
		},
		provider.OpenAIChat: func(stream []string) (calls []sdkCall, err error) {
			var a openaisdk.ChatCompletionAccumulator
			for _, data := range stream {
				var c openaisdk.ChatCompletionChunk
				if err := json.Unmarshal([]byte(data), &c); err != nil {
					return nil, err
				}
				a.AddChunk(c)
			}
			for _, call := range a.Choices[0].Message.ToolCalls {
				calls = append(calls, sdkCall{ID: call.ID, Tool: call.Function.Name, Input: call.Function.Arguments})
			}
			return calls, nil
		},
	}
	for format, theirs := range put {
		random := rand.New(rand.NewPCG(7, 8))
		compared := 0
		for range 200 {
			r := streamtest.Random(random)
			for i := range r.Said {
				r.Said[i].Text = streamtest.Inputs[random.IntN(4)]
			}
			_, stream := streamtest.Writers[string(format)](random, r)
			ours, cut := feed(t, format, stream)
			want, err := theirs(stream)
			if err != nil || cut != nil || len(ours) != len(want) {
				t.Fatalf("%s: the SDK reads %+v, %v; we %s, %v", format, want, err, ours, cut)
			}
			for i, c := range ours {
				var a, b any
				if json.Unmarshal(c.Input, &a) != nil || json.Unmarshal([]byte(want[i].Input), &b) != nil ||
					c.ID != want[i].ID || c.Tool != want[i].Tool || !sameValue(a, b) {
					t.Fatalf("%s: the SDK reads call %d as %+v, we as %s", format, i, want[i], c)
				}
				compared++
			}
		}
		if compared < 200 {
			t.Errorf("%s: %d calls were compared", format, compared)
		}
	}
}

func sameValue(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// feed reads a stream, its events named as the providers do, and returns its calls and why it is not whole.
func feed(t *testing.T, format provider.Format, stream []string) (calls []toolyard.Call, cut error) {
	t.Helper()
	d, err := provider.Stream(format)
	must.OK(t, err)
	for _, data := range stream {
		var e struct{ Type string }
		must.OK(t, json.Unmarshal([]byte(data), &e))
		name := ""
		if e.Type != "" {
			name = "event: " + e.Type + "\n"
		}
		whole, err := d.Feed([]byte(name + "data: " + data + "\n\n"))
		must.OK(t, err)
		calls = append(calls, whole...)
	}
	rest, cut := d.End()
	return append(calls, rest...), cut
}
