package anthropic

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/answer"
)

// message, result, block and source are the output, with fields in the order of the SDK.
type message struct {
	Content []result `json:"content"`
	Role    string   `json:"role"`
}

type result struct {
	CallID  string  `json:"tool_use_id"`
	Toolset string  `json:"toolset_name,omitempty"`
	IsError bool    `json:"is_error,omitempty"`
	Content []block `json:"content"`
	Type    string  `json:"type"`
}

// block is a text, an image, a document or a reference to a tool. A text is never empty.
type block struct {
	Text     string  `json:"text,omitempty"`
	Source   *source `json:"source,omitempty"`
	Title    string  `json:"title,omitempty"`
	ToolName *string `json:"tool_name,omitempty"`
	Type     string  `json:"type"`
}

type source struct {
	Data      string `json:"data"`
	MediaType string `json:"media_type"`
	Type      string `json:"type"`
}

// noOutput replaces an output of only white space: the API refuses such a text block with status 400.
const noOutput = "(no output)"

// skipped are the texts that models know for an action of a toolset that was not tried, because one before it failed.
var skipped = map[string]string{
	"computer": "Not executed: an earlier computer action in this turn failed.",
	"browser":  "Not executed: an earlier action in this turn failed.",
}

// Render writes one user message with a tool_result block for every answer, in order; is_error is present only if true.
// The content of a block is an array of text, or of the output's parts: images, PDF documents, and references to tools
// that the model may call from now on. Errors are text alone, as the API requires, and so is an answer to a program
// that called the tool.
func Render(answers []answer.Answer) ([]byte, error) {
	m := message{Content: make([]result, len(answers)), Role: "user"}
	for i := range answers {
		a := &answers[i]
		m.Content[i] = result{
			CallID: a.CallID, Toolset: a.Field("toolset_name"), IsError: a.IsError, Content: content(a),
			Type: "tool_result",
		}
	}
	data, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("rendering results as an Anthropic message: %w", err)
	}
	return data, nil
}

func content(a *answer.Answer) (list []block) {
	text := func(s string) {
		if strings.TrimSpace(s) != "" {
			list = append(list, block{Text: s, Type: "text"})
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

// mediaBlock makes the block of a part that is more than text.
func mediaBlock(p *toolyard.Content) (b block, ok bool) {
	data := func(mime string) *source { return &source{Data: answer.Base64(p), MediaType: mime, Type: "base64"} }
	switch answer.MediaOf(p) {
	case answer.Image:
		return block{Source: data(p.MIMEType), Type: "image"}, true
	case answer.Document:
		return block{Source: data("application/pdf"), Title: strings.TrimSpace(p.Title), Type: "document"}, true
	}
	if p.Type == toolyard.ContentTool {
		name := answer.SentName(p)
		return block{ToolName: &name, Type: "tool_reference"}, true
	}
	return b, false
}
