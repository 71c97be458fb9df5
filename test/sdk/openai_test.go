package sdk

import (
	"encoding/json"
	"testing"

	"github.com/openai/openai-go/v3/responses"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/answer"
	"github.com/toolyard/toolyard/internal/provider/definition"
	"github.com/toolyard/toolyard/internal/provider/openai"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

func TestOpenAIRender(t *testing.T) {
	answers := []answer.Answer{
		{CallID: "call_a", Text: "a <b>\n"},
		{CallID: "call_b", Text: "no such tool", IsError: true},
		{CallID: "call_c"},
	}
	got, err := openai.Render(answers)
	must.OK(t, err)
	var items responses.ResponseInputParam
	must.OK(t, json.Unmarshal(got, &items))
	for i, a := range answers {
		o := items[i].OfFunctionCallOutput
		if o == nil || o.CallID.Value != a.CallID || o.Output.OfString.Value != a.Text {
			t.Errorf("the SDK reads item %d as %+v", i, o)
		}
	}
}

func TestOpenAIRenderParts(t *testing.T) {
	png, pdf := []byte("\x89PNG"), []byte("%PDF")
	parts := []toolyard.Content{
		{Type: toolyard.ContentText, Text: "see"}, {Type: toolyard.ContentImage, MIMEType: "image/png", Data: png},
		{Type: toolyard.ContentResource, MIMEType: "application/pdf", Data: pdf, URI: "file:///a/b.pdf"},
		{Type: toolyard.ContentAudio, MIMEType: "audio/wav", Data: png},
	}
	custom, program := toolyard.Echo(`{"type":"custom_tool_call","caller":{"type":"direct"}}`),
		toolyard.Echo(`{"caller":{"type":"program","caller_id":"p"},"namespace":"crm"}`)
	got, err := openai.Render([]answer.Answer{
		{CallID: "1", Text: "all", Parts: parts}, {CallID: "2", Text: "all", Parts: parts, Echo: custom},
		{CallID: "3", Text: "all", Parts: parts, Echo: program},
		{CallID: "4", Text: "one", Parts: []toolyard.Content{
			{Type: toolyard.ContentTool, Name: "crm.find", WireName: "crm_find", Description: "Finds.",
				Schema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"}}}`)},
			{Type: toolyard.ContentTool, Name: "bare"},
		}, Echo: toolyard.Echo(`{"type":"tool_search_call","execution":"client"}`)},
		{CallID: "5", Text: "failed", IsError: true, Echo: toolyard.Echo(`{"type":"tool_search_call"}`)},
	})
	must.OK(t, err)
	var items responses.ResponseInputParam
	must.OK(t, json.Unmarshal(got, &items))
	list := items[0].OfFunctionCallOutput.Output.OfResponseFunctionCallOutputItemArray
	if len(list) != 4 || list[0].OfInputText.Text != "see" ||
		list[1].OfInputImage.ImageURL.Value != "data:image/png;base64,iVBORw==" ||
		list[2].OfInputFile.Filename.Value != "b.pdf" ||
		list[2].OfInputFile.FileData.Value != "data:application/pdf;base64,JVBERg==" ||
		list[3].OfInputText.Text != "[audio: audio/wav, 4 bytes]" {
		t.Errorf("parts: %s", got)
	}
	c := items[1].OfCustomToolCallOutput
	if c == nil || c.CallID != "2" || len(c.Output.OfOutputContentList) != 4 ||
		c.Output.OfOutputContentList[1].OfInputImage == nil || c.Caller.OfDirect == nil {
		t.Errorf("custom: %s", got)
	}
	p := items[2].OfFunctionCallOutput
	if p.Output.OfString.Value != "all" || p.Namespace.Value != "crm" || p.Caller.OfProgram == nil ||
		p.Caller.OfProgram.CallerID != "p" {
		t.Errorf("a program reads text: %s", got)
	}
	s := items[3].OfToolSearchOutput
	if s == nil || s.CallID.Value != "4" || len(s.Tools) != 1 || s.Tools[0].OfFunction.Name != "crm_find" ||
		!s.Tools[0].OfFunction.DeferLoading.Value || s.Tools[0].OfFunction.Strict.Value ||
		s.Execution != responses.ResponseToolSearchOutputItemParamExecutionClient ||
		s.Tools[0].OfFunction.Parameters["type"] != "object" {
		t.Errorf("search: %s", got)
	}
	if s := items[4].OfToolSearchOutput; s == nil || s.CallID.Value != "5" || len(s.Tools) != 0 {
		t.Errorf("a search that failed: %s", got)
	}
}

// TestTheSearchIsTheClients: only beside tools that it can load; otherwise it is a function like any other.
func TestTheSearchIsTheClients(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","properties":{"query":{"type":"string"}}}`)
	search := definition.Tool{Name: openai.SearchTool, Description: "Finds tools.", Schema: schema, Strict: true}
	for _, rest := range [][]definition.Tool{{{Name: "a", Schema: schema, Deferred: true}},
		{{Name: "a", Schema: schema}}} {
		data, err := openai.Tools(append([]definition.Tool{search}, rest...))
		must.OK(t, err)
		var list []responses.ToolUnionParam
		must.OK(t, json.Unmarshal(data, &list))
		if s := list[0].OfToolSearch; rest[0].Deferred != (s != nil) ||
			rest[0].Deferred == (list[0].OfFunction != nil) {
			t.Errorf("%s", data)
		} else if s != nil && (s.Execution != responses.ToolSearchToolExecutionClient ||
			s.Description.Value != "Finds tools." || s.Parameters == nil) {
			t.Errorf("%s", data)
		}
	}
}
