package sdk

import (
	"encoding/json"
	"testing"

	sdk "github.com/openai/openai-go/v3"

	"github.com/toolyard/toolyard/internal/provider/answer"
	"github.com/toolyard/toolyard/internal/provider/openaichat"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

func TestOpenAIChatRender(t *testing.T) {
	answers := []answer.Answer{
		{CallID: "call_a", Text: "a <b>\n"},
		{CallID: "call_b", Text: "no such tool", IsError: true},
		{CallID: "call_c"},
	}
	got, err := openaichat.Render(answers)
	must.OK(t, err)
	var messages []sdk.ChatCompletionMessageParamUnion
	must.OK(t, json.Unmarshal(got, &messages))
	for i, a := range answers {
		m := messages[i].OfTool
		if m == nil || m.ToolCallID != a.CallID || m.Content.OfString.Value != a.Text {
			t.Errorf("the SDK reads message %d as %+v", i, m)
		}
	}
}
