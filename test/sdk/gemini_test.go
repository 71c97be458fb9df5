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
)

func TestGeminiRender(t *testing.T) {
	got, err := gemini.Render([]answer.Answer{
		{CallID: "toolyard_call_1", Tool: "grep", Text: "a <b>\n"},
		{CallID: "fc-7", Tool: "nope", Text: "no such tool", IsError: true},
		{CallID: "toolyard_call_3", Tool: "bash"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var c genai.Content
	if err := json.Unmarshal(got, &c); err != nil {
		t.Fatal(err)
	}
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
	theirs, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var ourWire, theirWire any
	if err := errors.Join(json.Unmarshal(got, &ourWire), json.Unmarshal(theirs, &theirWire)); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	var c genai.Content
	if err := json.Unmarshal(got, &c); err != nil {
		t.Fatal(err)
	}
	r := c.Parts[0].FunctionResponse
	if r.Response["output"] != "see\n[image: image/png, 4 bytes]" || len(r.Parts) != 1 ||
		r.Parts[0].InlineData.MIMEType != "image/png" || string(r.Parts[0].InlineData.Data) != "\x89PNG" {
		t.Errorf("%s", got)
	}
}
