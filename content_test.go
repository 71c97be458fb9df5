package toolyard_test

import (
	"testing"

	"github.com/toolyard/toolyard"
)

func TestPartsInWords(t *testing.T) {
	for _, tt := range []struct {
		part toolyard.Content
		want string
	}{
		{toolyard.Content{Type: toolyard.ContentText, Text: "as it is", Name: "not shown"}, "as it is"},
		{toolyard.Content{Type: toolyard.ContentImage}, "[image]"},
		{toolyard.Content{Type: toolyard.ContentImage, MIMEType: "image/png", Data: []byte("abc")},
			"[image: image/png, 3 bytes]"},
		{toolyard.Content{Type: toolyard.ContentImage, MIMEType: "image/png", Blob: "result-1", Size: 9},
			"[image: image/png, 9 bytes, stored as result-1]"},
		{toolyard.Content{Type: toolyard.ContentLink, Name: "n", Title: "T", URI: "file:///n",
			Description: "what it is"}, "[link: n, T, file:///n: what it is]"},
		{toolyard.Content{Type: toolyard.ContentResource, URI: "file:///n", Text: "inside"},
			"[resource: file:///n]\ninside"},
		{toolyard.Content{Type: toolyard.ContentTool, Name: "a.b", Description: "Does."}, "[tool: a.b: Does.]"},
	} {
		if got := tt.part.String(); got != tt.want {
			t.Errorf("%+v is %q, want %q", tt.part, got, tt.want)
		}
	}
	if got := toolyard.TextOf([]toolyard.Content{{Type: toolyard.ContentText, Text: "a"},
		{Type: toolyard.ContentAudio}}); got != "a\n[audio]" {
		t.Errorf("together: %q", got)
	}
}

func TestEmptyEchoesAreNone(t *testing.T) {
	b := toolyard.Batch{Calls: []toolyard.Call{{Tool: "a", Echo: toolyard.Echo("null")},
		{Tool: "b", Echo: toolyard.Echo("")}, {Tool: "c", Echo: toolyard.Echo("{}")}}}
	b.Normalize("b")
	if err := b.Validate(); err != nil || b.Calls[0].Echo != nil || b.Calls[1].Echo != nil ||
		string(b.Calls[2].Echo) != "{}" {
		t.Errorf("%v: %+v", err, b.Calls)
	}
}
