package openaichat

import (
	"encoding/json"
	"fmt"

	"github.com/toolyard/toolyard/internal/provider/answer"
)

// message is one output message, with fields in the order of the SDK.
type message struct {
	Content string `json:"content"`
	CallID  string `json:"tool_call_id"`
	Role    string `json:"role"`
}

// Render writes an array of tool messages, one for every answer, in order, to append to the messages of the next
// request. The form has no flag for errors; the text says it. It accepts only text: images and other data are one line
// each.
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
