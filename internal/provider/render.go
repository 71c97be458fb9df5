package provider

import (
	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/answer"
	"github.com/toolyard/toolyard/internal/provider/anthropic"
	"github.com/toolyard/toolyard/internal/provider/gemini"
	"github.com/toolyard/toolyard/internal/provider/native"
	"github.com/toolyard/toolyard/internal/provider/openai"
	"github.com/toolyard/toolyard/internal/provider/openaichat"
)

// Render writes exactly what goes back to the model for a completed batch, without a newline at the end:
//
//	native       the results, an indented array
//	anthropic    one user message with a tool_result block a call
//	openai       an array of items, a function_call_output for most calls
//	openai-chat  an array of messages with role tool
//	gemini       one user content with a functionResponse part a call
//
// Parts of an output go where the form has a place for them; the text describes the others. Data that is stored
// elsewhere must be fetched before. Each result's echo has what else the provider needs back.
//
// notice is what hooks say about the batch. It follows the text of the last answer; the native form has only results.
//
// results must have the result of calls[i] at each i; [answer.Pair] checks this and makes the text for the model. An
// error, unlike those of [Decode], is a bug of the caller, except for an unknown format, which is a
// [*toolyard.InputError].
func Render(format Format, calls []toolyard.Call, results []toolyard.Result, notice *toolyard.Notice) ([]byte, error) {
	if format == "" {
		format = Native
	}
	if _, err := ParseFormat(string(format)); err != nil {
		return nil, err
	}
	answers, err := answer.Pair(calls, results)
	if err != nil {
		return nil, err
	}
	answer.AddNotice(answers, notice)
	switch format {
	case Anthropic:
		return anthropic.Render(answers)
	case OpenAI:
		return openai.Render(answers)
	case OpenAIChat:
		return openaichat.Render(answers)
	case Gemini:
		return gemini.Render(answers)
	}
	return native.Render(results)
}
