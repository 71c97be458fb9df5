package sdk

import (
	"encoding/json"
	"testing"

	sdk "github.com/openai/openai-go/v3"

	"github.com/toolyard/toolyard/internal/provider/answer"
	"github.com/toolyard/toolyard/internal/provider/openaichat"
)

func TestOpenAIChatRender(t *testing.T) {
	answers := []answer.Answer{
		{CallID: "call_a", Text: "a <b>\n"},
		{CallID: "call_b", Text: "no such tool", IsError: true},
		{CallID: "call_c"},
	}
	got, err := openaichat.Render(answers)
	if err != nil {
		t.Fatal(err)
	}
	var messages []sdk.ChatCompletionMessageParamUnion
	if err := json.Unmarshal(got, &messages); err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		m := messages[i].OfTool
		if m == nil || m.ToolCallID != a.CallID || m.Content.OfString.Value != a.Text {
			t.Errorf("the SDK reads message %d as %+v", i, m)
		}
	}
}
