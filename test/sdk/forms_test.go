package sdk

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	anthropicsdk "github.com/anthropics/anthropic-sdk-go"
	openaisdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"google.golang.org/genai"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider"
)

// Each decoder by itself: a document that nobody recognises is at home in the one that it is forced on. Seeds stand in
// testdata/fuzz.

func FuzzDecodeNative(f *testing.F)     { fuzzForm(f, provider.Native, nativeDoc) }
func FuzzDecodeAnthropic(f *testing.F)  { fuzzForm(f, provider.Anthropic, anthropicDoc) }
func FuzzDecodeOpenAI(f *testing.F)     { fuzzForm(f, provider.OpenAI, openaiDoc) }
func FuzzDecodeOpenAIChat(f *testing.F) { fuzzForm(f, provider.OpenAIChat, chatDoc) }
func FuzzDecodeGemini(f *testing.F)     { fuzzForm(f, provider.Gemini, geminiDoc) }

func fuzzForm(f *testing.F, format provider.Format, doc string) {
	f.Add([]byte(doc))
	for _, e := range examples {
		if e.format == format {
			f.Add(readExample(f, e.file))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkDocument(t, data, format) })
}

// FuzzRender renders results with anything in their parts and echoes: whatever it is, every form is what the
// provider's SDK reads, every call is answered in order, and nothing is in it that the provider is known to refuse.
func FuzzRender(f *testing.F) {
	f.Add("image", "image/png", "a text", []byte("data"), []byte(`{"toolset_name":"browser"}`), "", true)
	f.Add("resource", "application/pdf", "", []byte("data"),
		[]byte(`{"caller":{"type":"program","caller_id":"x"},"namespace":"n"}`), "skipped", false)
	f.Add("tool", "", "name", []byte(`{"type":"object"}`), []byte(`{"type":"tool_search_call","execution":"client"}`),
		"", false)
	f.Add("audio", "audio/wav", " ", []byte{}, []byte(`{"type":"custom_tool_call","caller":{"type":"direct"}}`),
		"timeout", false)
	f.Fuzz(func(t *testing.T, kind, mime, text string, data, echo []byte, code string, isText bool) {
		if !utf8.ValidString(kind+mime+text+code) || toolyard.CheckEcho("echo", echo) != nil {
			return // no result has such
		}
		part := toolyard.Content{Type: toolyard.ContentType(kind), MIMEType: mime, Text: text, Data: data, URI: text,
			Name: text, Title: text}
		if json.Valid(data) {
			part.Schema = data
		}
		parts := []toolyard.Content{part}
		if isText {
			parts = append(parts, toolyard.Content{Type: toolyard.ContentText, Text: text})
		}
		calls := []toolyard.Call{{ID: "call_a", Tool: "t"}, {ID: "call_b", Tool: "t"}, {ID: "call_c", Tool: "t"}}
		results := []toolyard.Result{
			{Index: 0, CallID: "call_a", Output: toolyard.TextOf(parts), Content: parts, Echo: echo},
			{Index: 1, CallID: "call_b", IsError: true, Code: toolyard.Code(code), Error: text, Content: parts,
				Echo: echo},
			{Index: 2, CallID: "call_c", Output: text, Content: parts},
		}
		for _, format := range provider.Formats {
			out, err := provider.Render(format, calls, results, nil)
			if err != nil || !json.Valid(out) {
				t.Fatalf("%s: %s, %v", format, out, err)
			}
			var ids []string
			switch format {
			case provider.Anthropic:
				ids = checkAnthropic(t, out)
			case provider.OpenAI:
				ids = checkOpenAI(t, out)
			case provider.OpenAIChat:
				var list []openaisdk.ChatCompletionMessageParamUnion
				read(t, out, &list)
				same(t, out, list)
				for _, m := range list {
					ids = append(ids, m.OfTool.ToolCallID)
				}
			case provider.Gemini:
				ids = checkGemini(t, out)
			default:
				continue
			}
			if !slices.Equal(ids, []string{"call_a", "call_b", "call_c"}) {
				t.Fatalf("%s answers %q: %s", format, ids, out)
			}
		}
	})
}

func read(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("the SDK does not read %s: %v", data, err)
	}
}

var imageTypes = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}

// same holds what we wrote equal, to the byte, to what the SDK writes of what it read.
func same(t *testing.T, out []byte, read any) {
	t.Helper()
	again, err := json.Marshal(read)
	if err != nil || !bytes.Equal(again, out) {
		t.Fatalf("the SDK writes (%v)\n%s\nwe wrote\n%s", err, again, out)
	}
}

func checkAnthropic(t *testing.T, out []byte) (ids []string) {
	var m anthropicsdk.MessageParam
	read(t, out, &m)
	same(t, out, m)
	for _, b := range m.Content {
		r := b.OfToolResult
		ids = append(ids, r.ToolUseID)
		if len(r.Content) == 0 {
			t.Fatalf("an answer without content: %s", out)
		}
		for _, c := range r.Content {
			switch {
			case c.OfText != nil && strings.TrimSpace(c.OfText.Text) == "", c.OfText == nil && r.IsError.Value:
				t.Fatalf("what the API refuses: %s", out)
			case c.OfImage != nil && !slices.Contains(imageTypes, string(c.OfImage.Source.OfBase64.MediaType)):
				t.Fatalf("an image of another type: %s", out)
			case c.OfText == nil && c.OfImage == nil && c.OfDocument == nil && c.OfToolReference == nil:
				t.Fatalf("a part that is nothing: %s", out)
			}
		}
	}
	return ids
}

func checkOpenAI(t *testing.T, out []byte) (ids []string) {
	var items responses.ResponseInputParam
	read(t, out, &items)
	if !bytes.Contains(out, []byte(`"caller":`)) { // which goes back as it came
		same(t, out, items)
	}
	for _, item := range items {
		switch {
		case item.OfFunctionCallOutput != nil:
			ids = append(ids, item.OfFunctionCallOutput.CallID.Value)
			for _, c := range item.OfFunctionCallOutput.Output.OfResponseFunctionCallOutputItemArray {
				if c.OfInputFile != nil && c.OfInputFile.Filename.Value == "" || c.OfInputImage != nil &&
					!strings.HasPrefix(c.OfInputImage.ImageURL.Value, "data:image/") {
					t.Fatalf("what the API refuses: %s", out)
				}
			}
		case item.OfCustomToolCallOutput != nil:
			ids = append(ids, item.OfCustomToolCallOutput.CallID)
		case item.OfToolSearchOutput != nil:
			ids = append(ids, item.OfToolSearchOutput.CallID.Value)
		}
	}
	return ids
}

func checkGemini(t *testing.T, out []byte) (ids []string) {
	var c genai.Content
	read(t, out, &c)
	for _, p := range c.Parts {
		ids = append(ids, p.FunctionResponse.ID)
		if len(p.FunctionResponse.Response) != 1 {
			t.Fatalf("an answer that is not one thing: %s", out)
		}
		for _, m := range p.FunctionResponse.Parts {
			if m.InlineData == nil || len(m.InlineData.Data) == 0 ||
				!slices.Contains(append(imageTypes, "application/pdf"), m.InlineData.MIMEType) ||
				m.InlineData.MIMEType == "image/gif" {
				t.Fatalf("media of another type: %s", out)
			}
		}
	}
	return ids
}
