package openaichat

import (
	"encoding/json"
	"fmt"

	"github.com/toolyard/toolyard/internal/provider/answer"
)

// message is what goes back, in the order of fields in which the SDK writes them.
type message struct {
	Content string `json:"content"`
	CallID  string `json:"tool_call_id"`
	Role    string `json:"role"`
}

// Render writes an array of tool messages, one for every answer, in order: what is appended to the messages of the
// next request. The form has no flag for errors; the text says it. It takes text alone: of images and other data there
// is a line each.
func Render(answers []answer.Answer) ([]byte, error) {
	messages := make([]message, len(answers))
	for i, a := range answers {
		messages[i] = message{Content: a.Text, CallID: a.CallID, Role: "tool"}
	}
	data, err := json.Marshal(messages)
	if err != nil {
		return nil, fmt.Errorf("rendering results as Chat Completions messages: %w", err)
	}
	return data, nil
}
