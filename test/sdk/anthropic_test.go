package sdk

import (
	"encoding/json"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/answer"
	"github.com/toolyard/toolyard/internal/provider/anthropic"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

func TestAnthropicRender(t *testing.T) {
	got, err := anthropic.Render([]answer.Answer{
		{CallID: "toolu_1", Tool: "grep", Text: "a <b>\n"},
		{CallID: "toolu_2", Tool: "nope", Text: "no such tool", IsError: true},
		{CallID: "toolu_3", Tool: "bash", Text: " \n"},
	})
	must.OK(t, err)
	var message sdk.MessageParam
	must.OK(t, json.Unmarshal(got, &message))
	if message.Role != sdk.MessageParamRoleUser || len(message.Content) != 3 {
		t.Fatalf("the SDK reads %+v", message)
	}
	for i, wantError := range []bool{false, true, false} {
		r := message.Content[i].OfToolResult
		if r == nil || r.IsError.Value != wantError || len(r.Content) != 1 || r.Content[0].OfText == nil {
			t.Errorf("the SDK reads block %d as %+v", i, r)
		}
	}
}

func TestAnthropicRenderParts(t *testing.T) {
	png, pdf := []byte("\x89PNG"), []byte("%PDF")
	parts := []toolyard.Content{
		{Type: toolyard.ContentText, Text: "see"}, {Type: toolyard.ContentText, Text: " "},
		{Type: toolyard.ContentImage, MIMEType: "image/png", Data: png},
		{Type: toolyard.ContentResource, MIMEType: "application/pdf", Data: pdf, Title: "T"},
		{Type: toolyard.ContentImage, MIMEType: "image/tiff", Data: png},
		{Type: toolyard.ContentImage, MIMEType: "image/png", Blob: "result-1", Size: 9},
		{Type: toolyard.ContentTool, Name: "crm.find", WireName: "crm_find"},
		{Type: toolyard.ContentImage, MIMEType: "image/png", Data: make([]byte, answer.MaxMediaBytes)},
	}
	got, err := anthropic.Render([]answer.Answer{
		{CallID: "1", Text: "all", Parts: parts, Echo: toolyard.Echo(`{"toolset_name":"browser"}`)},
		{CallID: "2", Text: "all", Parts: parts,
			Echo: toolyard.Echo(`{"caller":{"type":"code_execution_20260120","tool_id":"x"}}`)},
		{CallID: "3", Text: "not run: call 1 failed", IsError: true, Code: toolyard.Skipped,
			Echo: toolyard.Echo(`{"toolset_name":"browser"}`)},
		{CallID: "4", Text: "not run: call 1 failed", IsError: true, Code: toolyard.Skipped,
			Echo: toolyard.Echo(`{"toolset_name":"computer"}`)},
		{CallID: "5", Text: "not run: call 1 failed", IsError: true, Code: toolyard.Skipped},
	})
	must.OK(t, err)
	var message sdk.MessageParam
	must.OK(t, json.Unmarshal(got, &message))
	r := message.Content[0].OfToolResult
	if r.ToolsetName.Value != "browser" || len(r.Content) != 7 {
		t.Fatalf("the SDK reads %d blocks of %q", len(r.Content), r.ToolsetName.Value)
	}
	if c := r.Content; c[0].OfText.Text != "see" || c[1].OfImage.Source.OfBase64.Data != "iVBORw==" ||
		c[1].OfImage.Source.OfBase64.MediaType != "image/png" ||
		c[2].OfDocument.Source.OfBase64.Data != "JVBERg==" || c[2].OfDocument.Title.Value != "T" ||
		c[3].OfText.Text != "[image: image/tiff, 4 bytes]" ||
		c[4].OfText.Text != "[image: image/png, 9 bytes, stored as result-1]" ||
		c[5].OfToolReference.ToolName != "crm_find" || c[6].OfText.Text != "[image: image/png, 5242880 bytes]" {
		t.Errorf("%.1000s", got)
	}
	for i, want := range []string{1: "all", 2: "Not executed: an earlier action in this turn failed.",
		3: "Not executed: an earlier computer action in this turn failed.", 4: "not run: call 1 failed"} {
		if r := message.Content[i].OfToolResult; i > 0 && (len(r.Content) != 1 || r.Content[0].OfText.Text != want) {
			t.Errorf("answer %d: %+v", i, r.Content)
		}
	}
}
