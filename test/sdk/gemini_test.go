package sdk

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"google.golang.org/genai"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/answer"
	"github.com/toolyard/toolyard/internal/provider/gemini"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

func TestGeminiRender(t *testing.T) {
	got, err := gemini.Render([]answer.Answer{
		{CallID: "toolyard_call_1", Tool: "grep", Text: "a <b>\n"},
		{CallID: "fc-7", Tool: "nope", Text: "no such tool", IsError: true},
		{CallID: "toolyard_call_3", Tool: "bash"},
	})
	must.OK(t, err)
	var c genai.Content
	must.OK(t, json.Unmarshal(got, &c))
	want := genai.Content{Role: "user", Parts: []*genai.Part{
		{FunctionResponse: &genai.FunctionResponse{Name: "grep", Response: map[string]any{"output": "a <b>\n"}}},
		{FunctionResponse: &genai.FunctionResponse{ID: "fc-7", Name: "nope",
			Response: map[string]any{"error": "no such tool"}}},
		{FunctionResponse: &genai.FunctionResponse{Name: "bash", Response: map[string]any{"output": ""}}},
	}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("\n got %s", got)
	}

	// What the SDK would send for the same content is what we send.
	theirs := must.JSON(t, want)
	var ourWire, theirWire any
	must.OK(t, errors.Join(json.Unmarshal(got, &ourWire), json.Unmarshal(theirs, &theirWire)))
	if !reflect.DeepEqual(ourWire, theirWire) {
		t.Errorf("\n ours %s\ntheirs %s", got, theirs)
	}
}

func TestGeminiRenderParts(t *testing.T) {
	got, err := gemini.Render([]answer.Answer{{CallID: "1", Tool: "shot", Text: "see\n[image: image/png, 4 bytes]",
		Parts: []toolyard.Content{
			{Type: toolyard.ContentText, Text: "see"}, {Type: toolyard.ContentImage, MIMEType: "image/png",
				Data: []byte("\x89PNG")},
			{Type: toolyard.ContentAudio, MIMEType: "audio/wav", Data: []byte("RIFF")},
		}}})
	must.OK(t, err)
	var c genai.Content
	must.OK(t, json.Unmarshal(got, &c))
	r := c.Parts[0].FunctionResponse
	if r.Response["output"] != "see\n[image: image/png, 4 bytes]" || len(r.Parts) != 1 ||
		r.Parts[0].InlineData.MIMEType != "image/png" || string(r.Parts[0].InlineData.Data) != "\x89PNG" {
		t.Errorf("%s", got)
	}
}
