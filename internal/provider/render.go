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

// Render writes exactly what goes back to the model, without a newline at the end:
//
//	native       the results, an indented array
//	anthropic    one user message with a tool_result block a call
//	openai       an array of items, a function_call_output for most calls
//	openai-chat  an array of messages with role tool
//	gemini       one user content with a functionResponse part a call
//
// Parts of an output that the form has a place for go there, and of others the text tells; data that is kept elsewhere
// has to be filled in before. What the provider wants back is in each result's echo.
//
// results must hold the result of calls[i] at each i; see [answer.Pair] for that guard and for the text that a model
// reads. Its error, unlike those of [Decode], is a bug of the caller, except for an unknown format, which is a
// [*toolyard.InputError].
func Render(format Format, calls []toolyard.Call, results []toolyard.Result) ([]byte, error) {
	return RenderBatch(format, calls, results, nil)
}

// RenderBatch is [Render] for a batch that is over, with what hooks have to say of it: the last answer has it behind
// its text. The native form has results alone.
func RenderBatch(format Format, calls []toolyard.Call, results []toolyard.Result, notice *toolyard.Notice) ([]byte,
	error) {
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
