package anthropic

import (
	"fmt"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"github.com/toolyard/toolyard/internal/provider/answer"
)

// noOutput stands for an output of nothing but white space: the API refuses such a text block with status 400.
const noOutput = "(no output)"

// Render writes one user message with a tool_result block for every answer, in order. The content of a block is an
// array with one text block; is_error is there only when true.
func Render(answers []answer.Answer) ([]byte, error) {
	blocks := make([]sdk.ContentBlockParamUnion, len(answers))
	for i, a := range answers {
		text := a.Text
		if strings.TrimSpace(text) == "" {
			text = noOutput
		}
		result := sdk.ToolResultBlockParam{
			ToolUseID: a.CallID,
			Content:   []sdk.ToolResultBlockParamContentUnion{{OfText: &sdk.TextBlockParam{Text: text}}},
		}
		if a.IsError {
			result.IsError = sdk.Bool(true)
		}
		blocks[i].OfToolResult = &result
	}
	data, err := sdk.NewUserMessage(blocks...).MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("rendering results as an Anthropic message: %w", err)
	}
	return data, nil
}
