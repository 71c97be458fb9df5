package openai

import (
	"encoding/json"
	"fmt"
	"path"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/answer"
	"github.com/toolyard/toolyard/internal/provider/definition"
	"github.com/toolyard/toolyard/internal/provider/lower"
)

// functionOutputItem, customOutputItem, searchOutputItem and part are the output, with fields in the order of the SDK.
// An output is a string or a list of parts; a caller is returned unchanged.
type functionOutputItem struct {
	Output    any             `json:"output"`
	CallID    string          `json:"call_id"`
	Namespace string          `json:"namespace,omitempty"`
	Caller    json.RawMessage `json:"caller,omitempty"`
	Type      string          `json:"type"`
}

type customOutputItem struct {
	CallID string          `json:"call_id"`
	Output any             `json:"output"`
	Caller json.RawMessage `json:"caller,omitempty"`
	Type   string          `json:"type"`
}

type searchOutputItem struct {
	Tools     []functionTool `json:"tools"`
	CallID    string         `json:"call_id"`
	Status    string         `json:"status"`
	Execution string         `json:"execution"`
	Type      string         `json:"type"`
}

// part is a text, an image or a file.
type part struct {
	Text     *string `json:"text,omitempty"`
	Detail   string  `json:"detail,omitempty"`
	ImageURL string  `json:"image_url,omitempty"`
	FileData string  `json:"file_data,omitempty"`
	Filename string  `json:"filename,omitempty"`
	Type     string  `json:"type"`
}

// Render writes an array of items, one for every answer, in order, to append to the input of the next request. An item
// is a function_call_output, a custom_tool_call_output or a tool_search_output, according to its call. The output is
// text, or a list of the parts if there are images or PDF documents and no program reads it. The form has no flag for
// errors; the text says it. A tool_search_output cannot have a text either: a failed search has found nothing.
func Render(answers []answer.Answer) ([]byte, error) {
	items := make([]any, len(answers))
	for i := range answers {
		a := &answers[i]
		var err error
		switch a.Field("type") {
		case toolSearchCall:
			items[i], err = searchOutput(a)
		case customToolCall:
			items[i] = customOutput(a)
		default:
			items[i] = functionOutput(a)
		}
		if err != nil {
			return nil, err
		}
	}
	data, err := json.Marshal(items)
	if err != nil {
		return nil, fmt.Errorf("rendering results as OpenAI input items: %w", err)
	}
	return data, nil
}

func functionOutput(a *answer.Answer) functionOutputItem {
	caller, _ := a.Caller()
	return functionOutputItem{
		Output: outputOf(a, ""), CallID: a.CallID, Namespace: a.Field("namespace"), Caller: caller,
		Type: "function_call_output",
	}
}

func customOutput(a *answer.Answer) customOutputItem {
	caller, _ := a.Caller()
	return customOutputItem{CallID: a.CallID, Output: outputOf(a, "auto"), Caller: caller,
		Type: "custom_tool_call_output"}
}

// outputOf is an answer's text, or its parts. detail is for images: the output of a custom tool must have one.
func outputOf(a *answer.Answer, detail string) any {
	if !showsMedia(a) {
		return a.Text
	}
	parts := make([]part, len(a.Parts))
	for i := range a.Parts {
		switch p := &a.Parts[i]; answer.MediaOf(p) {
		case answer.Image:
			parts[i] = part{Detail: detail, ImageURL: answer.DataURL(p), Type: "input_image"}
		case answer.Document:
			parts[i] = part{FileData: answer.DataURL(p), Filename: fileName(p), Type: "input_file"}
		default:
			text := p.String()
			parts[i] = part{Text: &text, Type: "input_text"}
		}
	}
	return parts
}

// showsMedia reports whether an answer is a list of parts. A program that called the tool reads text.
func showsMedia(a *answer.Answer) bool {
	_, kind := a.Caller()
	return (kind == "" || kind == "direct") && answer.HasMedia(a.Parts)
}

// fileName is the name of a document, which the API requires.
func fileName(p *toolyard.Content) string {
	for _, name := range []string{p.Name, path.Base(p.URI)} {
		if name != "" && name != "." && name != "/" {
			return name
		}
	}
	return "document.pdf"
}

// searchOutput has the definitions of the tools that a search has found: the model may call these from now on.
func searchOutput(a *answer.Answer) (searchOutputItem, error) {
	item := searchOutputItem{
		Tools: []functionTool{}, CallID: a.CallID, Status: "completed", Execution: "client", Type: "tool_search_output",
	}
	for i := range a.Parts {
		p := &a.Parts[i]
		if p.Type != toolyard.ContentTool || len(p.Schema) == 0 {
			continue
		}
		lowered, err := lower.Lower(lower.OpenAI, p.Schema)
		if err != nil {
			continue // left out of the request's tools for the same reason
		}
		parameters, err := definition.Parameters(lowered.Schema)
		if err != nil {
			return item, fmt.Errorf("writing the OpenAI tool %q: %w", p.Name, err)
		}
		item.Tools = append(item.Tools, functionTool{
			Parameters: parameters, Name: answer.SentName(p), Description: p.Description, DeferLoading: true,
			Type: "function",
		})
	}
	return item, nil
}
