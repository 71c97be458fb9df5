package openai

import (
	"encoding/json"
	"fmt"
	"path"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/answer"
	"github.com/toolyard/toolyard/internal/provider/definition"
	"github.com/toolyard/toolyard/internal/provider/lower"
)

// Render writes an array of items, one for every answer, in order: what is appended to the input of the next request. An item is
// a function_call_output, a custom_tool_call_output or a tool_search_output, as its call was. The output is text, or a list of
// the parts where there are images or PDF documents and no program reads it. The form has no flag for errors; the text
// says it. A tool_search_output has no place for a text either: a search that failed has found nothing.
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

func functionOutput(a *answer.Answer) responses.ResponseInputItemFunctionCallOutputParam {
	item := responses.ResponseInputItemFunctionCallOutputParam{CallID: param.NewOpt(a.CallID)}
	if caller, _ := a.Caller(); caller != nil {
		item.Caller = param.Override[responses.ResponseInputItemFunctionCallOutputCallerUnionParam](caller)
	}
	if namespace := a.Field("namespace"); namespace != "" {
		item.Namespace = param.NewOpt(namespace)
	}
	if !showsMedia(a) {
		item.Output.OfString = param.NewOpt(a.Text)
		return item
	}
	for i := range a.Parts {
		var u responses.ResponseFunctionCallOutputItemUnionParam
		switch p := &a.Parts[i]; answer.MediaOf(p) {
		case answer.Image:
			u.OfInputImage = &responses.ResponseInputImageContentParam{ImageURL: param.NewOpt(answer.DataURL(p))}
		case answer.Document:
			u.OfInputFile = &responses.ResponseInputFileContentParam{FileData: param.NewOpt(answer.DataURL(p)), Filename: param.NewOpt(fileName(p))}
		default:
			u.OfInputText = &responses.ResponseInputTextContentParam{Text: p.String()}
		}
		item.Output.OfResponseFunctionCallOutputItemArray = append(item.Output.OfResponseFunctionCallOutputItemArray, u)
	}
	return item
}

func customOutput(a *answer.Answer) responses.ResponseCustomToolCallOutputParam {
	item := responses.ResponseCustomToolCallOutputParam{CallID: a.CallID}
	if caller, _ := a.Caller(); caller != nil {
		item.Caller = param.Override[responses.ResponseCustomToolCallOutputCallerUnionParam](caller)
	}
	if !showsMedia(a) {
		item.Output.OfString = param.NewOpt(a.Text)
		return item
	}
	for i := range a.Parts {
		var u responses.ResponseCustomToolCallOutputOutputOutputContentListItemUnionParam
		switch p := &a.Parts[i]; answer.MediaOf(p) {
		case answer.Image:
			u.OfInputImage = &responses.ResponseInputImageParam{ImageURL: param.NewOpt(answer.DataURL(p)), Detail: responses.ResponseInputImageDetailAuto}
		case answer.Document:
			u.OfInputFile = &responses.ResponseInputFileParam{FileData: param.NewOpt(answer.DataURL(p)), Filename: param.NewOpt(fileName(p))}
		default:
			u.OfInputText = &responses.ResponseInputTextParam{Text: p.String()}
		}
		item.Output.OfOutputContentList = append(item.Output.OfOutputContentList, u)
	}
	return item
}

// showsMedia reports whether an answer is a list of parts. A program that has called the tool reads text.
func showsMedia(a *answer.Answer) bool {
	_, kind := a.Caller()
	return (kind == "" || kind == "direct") && answer.HasMedia(a.Parts)
}

// fileName is what a document is called: the API wants a name.
func fileName(p *toolyard.Content) string {
	for _, name := range []string{p.Name, path.Base(p.URI)} {
		if name != "" && name != "." && name != "/" {
			return name
		}
	}
	return "document.pdf"
}

// searchOutput has the definitions of the tools that a search has found: those that the model may call from here on.
func searchOutput(a *answer.Answer) (any, error) {
	item := responses.ResponseToolSearchOutputItemParam{
		CallID: param.NewOpt(a.CallID), Execution: responses.ResponseToolSearchOutputItemParamExecutionClient,
		Status: responses.ResponseToolSearchOutputItemParamStatusCompleted, Tools: []responses.ResponseToolSearchOutputItemParamToolUnion{},
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
			return nil, fmt.Errorf("writing the OpenAI tool %q: %w", p.Name, err)
		}
		f := responses.FunctionToolParam{Name: answer.SentName(p), Parameters: parameters, Strict: param.NewOpt(false), DeferLoading: param.NewOpt(true)}
		if p.Description != "" {
			f.Description = param.NewOpt(p.Description)
		}
		item.Tools = append(item.Tools, responses.ResponseToolSearchOutputItemParamToolUnion{OfFunction: &f})
	}
	return item, nil
}
