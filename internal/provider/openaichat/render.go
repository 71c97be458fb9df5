package openaichat

import (
	"encoding/json"
	"fmt"

	sdk "github.com/openai/openai-go/v3"

	"github.com/toolyard/toolyard/internal/provider/answer"
)

// Render writes an array of tool messages, one for every answer, in order: what is appended to the messages of the
// next request. The form has no flag for errors; the text says it. It takes text alone: of images and other data there
// is a line each.
func Render(answers []answer.Answer) ([]byte, error) {
	messages := make([]sdk.ChatCompletionToolMessageParam, len(answers))
	for i, a := range answers {
		messages[i].ToolCallID = a.CallID
		messages[i].Content.OfString = sdk.String(a.Text)
	}
	data, err := json.Marshal(messages)
	if err != nil {
		return nil, fmt.Errorf("rendering results as Chat Completions messages: %w", err)
	}
	return data, nil
}
