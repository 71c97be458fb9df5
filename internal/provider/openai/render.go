package openai

import (
	"encoding/json"
	"fmt"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/toolyard/toolyard/internal/provider/answer"
)

// Render writes an array of function_call_output items, one for every answer, in order: what is appended to the input
// of the next request. The form has no flag for errors; the text says it.
func Render(answers []answer.Answer) ([]byte, error) {
	items := make([]responses.ResponseInputItemFunctionCallOutputParam, len(answers))
	for i, a := range answers {
		items[i].CallID = param.NewOpt(a.CallID)
		items[i].Output.OfString = param.NewOpt(a.Text)
	}
	data, err := json.Marshal(items)
	if err != nil {
		return nil, fmt.Errorf("rendering results as OpenAI input items: %w", err)
	}
	return data, nil
}
