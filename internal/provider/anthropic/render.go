package anthropic

import (
	"fmt"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/answer"
)

// noOutput stands for an output of nothing but white space: the API refuses such a text block with status 400.
const noOutput = "(no output)"

// skipped are the words that models know for an action of a toolset that was not tried, because one before it failed.
var skipped = map[string]string{
	"computer": "Not executed: an earlier computer action in this turn failed.",
	"browser":  "Not executed: an earlier action in this turn failed.",
}

// Render writes one user message with a tool_result block for every answer, in order; is_error is there only when true. The content
// of a block is an array of text, or of the output's parts: images, PDF documents, and references to tools that the model may
// call from here on. Errors are text alone, as the API wants them, and so is what a program reads that called the tool.
func Render(answers []answer.Answer) ([]byte, error) {
	blocks := make([]sdk.ContentBlockParamUnion, len(answers))
	for i := range answers {
		a := &answers[i]
		result := sdk.ToolResultBlockParam{ToolUseID: a.CallID, Content: content(a)}
		if a.IsError {
			result.IsError = sdk.Bool(true)
		}
		if toolset := a.Field("toolset_name"); toolset != "" {
			result.ToolsetName = param.NewOpt(toolset)
		}
		blocks[i].OfToolResult = &result
	}
	data, err := sdk.NewUserMessage(blocks...).MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("rendering results as an Anthropic message: %w", err)
	}
	return data, nil
}

func content(a *answer.Answer) (list []sdk.ToolResultBlockParamContentUnion) {
	text := func(s string) {
		if strings.TrimSpace(s) != "" {
			list = append(list, sdk.ToolResultBlockParamContentUnion{OfText: &sdk.TextBlockParam{Text: s}})
		}
	}
	words, known := skipped[a.Field("toolset_name")]
	_, program := a.Caller()
	switch {
	case a.Code == toolyard.Skipped && known:
		text(words)
	case len(a.Parts) == 0 || program != "":
		text(a.Text)
	default:
		for i := range a.Parts {
			if b, ok := mediaBlock(&a.Parts[i]); ok {
				list = append(list, b)
			} else {
				text(a.Parts[i].String())
			}
		}
	}
	if len(list) == 0 {
		text(noOutput)
	}
	return list
}

// mediaBlock is a part that is more than text.
func mediaBlock(p *toolyard.Content) (b sdk.ToolResultBlockParamContentUnion, ok bool) {
	switch answer.MediaOf(p) {
	case answer.Image:
		b.OfImage = &sdk.ImageBlockParam{Source: sdk.ImageBlockParamSourceUnion{OfBase64: &sdk.Base64ImageSourceParam{
			MediaType: sdk.Base64ImageSourceMediaType(p.MIMEType), Data: answer.Base64(p)}}}
		return b, true
	case answer.Document:
		b.OfDocument = &sdk.DocumentBlockParam{Source: sdk.DocumentBlockParamSourceUnion{OfBase64: &sdk.Base64PDFSourceParam{Data: answer.Base64(p)}}}
		if title := strings.TrimSpace(p.Title); title != "" {
			b.OfDocument.Title = param.NewOpt(title)
		}
		return b, true
	}
	if p.Type == toolyard.ContentTool {
		b.OfToolReference = &sdk.ToolReferenceBlockParam{ToolName: answer.SentName(p)}
		return b, true
	}
	return b, false
}
