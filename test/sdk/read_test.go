package sdk

import (
	"encoding/json"
	"fmt"

	anthropicsdk "github.com/anthropics/anthropic-sdk-go"
	openaisdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/toolyard/toolyard/internal/provider"
	"google.golang.org/genai"
)

// sdkCall is a call, or the answer to one, as a provider's own SDK reads it. A Gemini call mostly has no id.
type sdkCall struct {
	ID, Tool string
	// Input is the object, or for the OpenAI forms the text that holds it; of an answer, what the model reads.
	Input   string
	IsError bool
}

// sdkCalls reads a whole response, or what comes in its place, with the types of the provider's SDK.
func sdkCalls(format provider.Format, data []byte) (calls []sdkCall, err error) {
	switch format {
	case provider.Anthropic:
		var m anthropicsdk.Message
		err = json.Unmarshal(data, &m)
		for _, block := range m.Content {
			if use, ok := block.AsAny().(anthropicsdk.ToolUseBlock); ok {
				calls = append(calls, sdkCall{ID: use.ID, Tool: use.Name, Input: string(use.Input)})
			}
		}
	case provider.OpenAI:
		var r responses.Response
		if len(data) > 0 && data[0] == '[' {
			err = json.Unmarshal(data, &r.Output)
		} else {
			err = json.Unmarshal(data, &r)
		}
		for _, item := range r.Output {
			switch call := item.AsAny().(type) {
			case responses.ResponseFunctionToolCall:
				calls = append(calls, sdkCall{ID: call.CallID, Tool: call.Name, Input: call.Arguments})
			case responses.ResponseToolSearchCall:
				if call.Execution != responses.ResponseToolSearchCallExecutionServer && call.CallID != "" {
					calls = append(calls, sdkCall{ID: call.CallID, Tool: "tool_search"})
				}
			}
		}
	case provider.OpenAIChat:
		var c openaisdk.ChatCompletion
		if err = json.Unmarshal(data, &c); err == nil && len(c.Choices) == 0 {
			c.Choices = make([]openaisdk.ChatCompletionChoice, 1)
			err = json.Unmarshal(data, &c.Choices[0].Message)
		}
		for _, choice := range c.Choices {
			for _, call := range choice.Message.ToolCalls {
				if call.Type != "custom" {
					calls = append(calls, sdkCall{ID: call.ID, Tool: call.Function.Name,
						Input: call.Function.Arguments})
				}
			}
		}
	case provider.Gemini:
		var r genai.GenerateContentResponse
		if err = json.Unmarshal(data, &r); err == nil && len(r.Candidates) == 0 {
			r.Candidates = []*genai.Candidate{{Content: &genai.Content{}}}
			err = json.Unmarshal(data, r.Candidates[0].Content)
		}
		for _, candidate := range r.Candidates {
			if candidate == nil || candidate.Content == nil {
				continue
			}
			for _, part := range candidate.Content.Parts {
				if part == nil || part.FunctionCall == nil {
					continue
				}
				args, err := json.Marshal(part.FunctionCall.Args)
				if err != nil {
					return nil, err
				}
				calls = append(calls, sdkCall{ID: part.FunctionCall.ID, Tool: part.FunctionCall.Name,
					Input: string(args)})
			}
		}
	default:
		err = fmt.Errorf("no SDK for %s", format)
	}
	return calls, err
}

// sdkAnswers reads what [Render] wrote with the types of the provider's SDK.
func sdkAnswers(format provider.Format, data []byte) (answers []sdkCall, err error) {
	switch format {
	case provider.Anthropic:
		var m anthropicsdk.MessageParam
		err = json.Unmarshal(data, &m)
		for _, block := range m.Content {
			r := block.OfToolResult
			a := sdkCall{ID: r.ToolUseID, IsError: r.IsError.Value}
			if len(r.Content) > 0 && r.Content[0].OfText != nil {
				a.Input = r.Content[0].OfText.Text
			}
			answers = append(answers, a)
		}
	case provider.OpenAI:
		var items responses.ResponseInputParam
		err = json.Unmarshal(data, &items)
		for _, item := range items {
			switch {
			case item.OfFunctionCallOutput != nil:
				answers = append(answers, sdkCall{ID: item.OfFunctionCallOutput.CallID.Value,
					Input: item.OfFunctionCallOutput.Output.OfString.Value})
			case item.OfCustomToolCallOutput != nil:
				answers = append(answers, sdkCall{ID: item.OfCustomToolCallOutput.CallID,
					Input: item.OfCustomToolCallOutput.Output.OfString.Value})
			case item.OfToolSearchOutput != nil:
				answers = append(answers, sdkCall{ID: item.OfToolSearchOutput.CallID.Value})
			}
		}
	case provider.OpenAIChat:
		var messages []openaisdk.ChatCompletionMessageParamUnion
		err = json.Unmarshal(data, &messages)
		for _, m := range messages {
			answers = append(answers, sdkCall{ID: m.OfTool.ToolCallID, Input: m.OfTool.Content.OfString.Value})
		}
	case provider.Gemini:
		var c genai.Content
		err = json.Unmarshal(data, &c)
		for _, part := range c.Parts {
			r := part.FunctionResponse
			text, isError := r.Response["error"]
			if !isError {
				text = r.Response["output"]
			}
			answers = append(answers, sdkCall{ID: r.ID, Tool: r.Name, Input: text.(string), IsError: isError})
		}
	default:
		err = fmt.Errorf("no SDK for %s", format)
	}
	return answers, err
}
