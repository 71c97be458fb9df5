package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/display"
	"github.com/toolyard/toolyard/tool"
)

// gives is a tool with the given output.
func gives(out tool.Output, err error) func(*rig) {
	return with(func(t *tool.Tool) {
		t.Run = func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) { return out, err }
	})
}

func text(s string) toolyard.Content { return toolyard.Content{Type: toolyard.ContentText, Text: s} }

func picture(bytes int) toolyard.Content {
	return toolyard.Content{Type: toolyard.ContentImage, MIMEType: "image/png",
		Data: []byte("\x89" + strings.Repeat("p", bytes-1))}
}

func TestPartsAndTheirText(t *testing.T) {
	link := toolyard.Content{Type: toolyard.ContentLink, URI: "https://x.test/a", Name: "a", Description: "the a"}
	doc := toolyard.Content{Type: toolyard.ContentResource, URI: "file:///a", MIMEType: "text/plain", Text: "inside"}
	for _, tt := range []struct {
		name   string
		out    tool.Output
		output string
		parts  []toolyard.Content
	}{
		{"text alone stays text", tool.Output{Content: []toolyard.Content{text("a"), text("b")}}, "a\nb", nil},
		{"the same text twice is text", tool.Output{Text: "a\nb", Content: []toolyard.Content{text("a"), text("b")}},
			"a\nb", nil},
		{"another text stands beside its parts", tool.Output{Text: "c", Content: []toolyard.Content{text("a")}}, "c",
			[]toolyard.Content{text("a")}},
		{"a line for what is no text", tool.Output{Content: []toolyard.Content{text("see"), picture(9), link, doc}},
			"see\n[image: image/png, 9 bytes]\n[link: a, https://x.test/a: the a]\n[resource: file:///a, " +
				"text/plain]\ninside",
			[]toolyard.Content{text("see"), picture(9), link, doc}},
		{"bytes that are no text", tool.Output{Content: []toolyard.Content{text("a\xff"), picture(9)}},
			"a\uFFFD\n[image: image/png, 9 bytes]",
			[]toolyard.Content{text("a\uFFFD"), picture(9)}},
		{"no reference of the tool's own", tool.Output{Content: []toolyard.Content{{Type: toolyard.ContentImage,
			Blob: "result-other", Size: 4}}}, "[image]",
			[]toolyard.Content{{Type: toolyard.ContentImage}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res := newRig(gives(tt.out, nil)).result(t)
			if res.IsError || res.Output != tt.output || !reflect.DeepEqual(res.Content, tt.parts) || res.Truncated {
				t.Errorf("%q %q\n%+v", res.Code, res.Output, res.Content)
			}
		})
	}
	if res := newRig(gives(tool.Output{Content: []toolyard.Content{{Type: "hologram"}}},
		nil)).result(t); res.Code != toolyard.ResultMappingFailed {
		t.Errorf("an unknown kind: %q", res.Code)
	}
}

func TestLargeDataIsStored(t *testing.T) {
	first, second := picture(MaxInlineDataBytes), picture(2)
	r := newRig(gives(tool.Output{Content: []toolyard.Content{first, second}}, nil))
	res := r.result(t)
	want := []toolyard.Content{first, {Type: toolyard.ContentImage, MIMEType: "image/png", Blob: "ref-1", Size: 2}}
	if res.IsError || !reflect.DeepEqual(res.Content, want) || len(r.stored) != 1 ||
		r.stored[0] != string(second.Data) || !strings.Contains(res.Output, "stored as ref-1") {
		t.Errorf("%q %q, %d parts, stored %d", res.Code, res.Output, len(res.Content), len(r.stored))
	}
}

func TestLongTextsOfPartsAreStored(t *testing.T) {
	long := strings.Repeat("ä", 600)
	out := tool.Output{Content: []toolyard.Content{text(long), picture(3), text(long),
		{Type: toolyard.ContentResource, URI: "u", Text: "inside"}}}
	whole := toolyard.TextOf(out.Content)
	r := newRig(gives(out, nil), maxChars(1000))
	res := r.result(t)
	if res.IsError || !res.Truncated || res.Blob != "ref-1" || len(r.stored) != 1 || r.stored[0] != whole ||
		len(res.Output) > 3000 {
		t.Fatalf("%q, truncated %t, blob %q, stored %d", res.Code, res.Truncated, res.Blob, len(r.stored))
	}
	if p := res.Content; len(p) != 3 || p[0].Text != res.Output || p[0].Blob != "ref-1" ||
		p[0].Size != int64(len(whole)) || !reflect.DeepEqual(p[1], picture(3)) || p[2].Text != "" || p[2].URI != "u" {
		t.Errorf("%+v", p)
	}
	out.Text = "short"
	r = newRig(gives(out, nil), maxChars(1000))
	if res := r.result(t); res.Output != "short" || res.Truncated || len(res.Content) != 3 ||
		res.Content[0].Blob != "ref-1" || r.stored[0] != whole {
		t.Errorf("beside a text of its own: %q, %t, %d parts", res.Output, res.Truncated, len(res.Content))
	}
}

func TestManyPartsBecomeOneDocument(t *testing.T) {
	var parts []toolyard.Content
	for i := range MaxContentParts + 5 {
		parts = append(parts, toolyard.Content{Type: toolyard.ContentLink, Name: fmt.Sprint(i)})
	}
	r := newRig(gives(tool.Output{Content: parts}, nil))
	res := r.result(t)
	last := res.Content[len(res.Content)-1]
	var rest []toolyard.Content
	if len(res.Content) != MaxContentParts || last.Blob == "" || json.Unmarshal([]byte(r.stored[0]), &rest) != nil ||
		!reflect.DeepEqual(append(res.Content[:MaxContentParts-1], rest...), parts) {
		t.Errorf("%d parts, the last %+v, %d stored", len(res.Content), last, len(rest))
	}
	if !strings.HasSuffix(res.Output, "stored as ref-1: 6 more parts of this output]") {
		t.Errorf("%.200q", res.Output[len(res.Output)-200:])
	}
}

func TestTooMuchOfParts(t *testing.T) {
	for name, out := range map[string]tool.Output{
		"data":  {Content: []toolyard.Content{picture(MaxOutputBytes), picture(1)}},
		"parts": {Content: make([]toolyard.Content, MaxOutputBytes/64+1)},
		"texts": {Text: "x", Content: []toolyard.Content{text(strings.Repeat("x", MaxOutputBytes))}},
	} {
		for i := range out.Content {
			if out.Content[i].Type == "" {
				out.Content[i].Type = toolyard.ContentLink
			}
		}
		r := newRig(gives(out, nil))
		if res := r.result(t); res.Code != toolyard.ResultTooLarge || res.Content != nil || len(r.stored) != 0 ||
			len(res.Output) > 2*MaxInlineResultBytes {
			t.Errorf("%s: %q, %d parts, %d bytes", name, res.Code, len(res.Content), len(res.Output))
		}
	}
	r := newRig(gives(tool.Output{Content: []toolyard.Content{text("see"), picture(MaxInlineDataBytes + 1)}}, nil),
		func(r *rig) {
			r.put = func(context.Context, string) (string, error) { return "", errBoom }
		})
	if res := r.result(t); res.Code != toolyard.ResultTooLarge || !res.Retryable || res.Content != nil ||
		!strings.HasPrefix(res.Output, "see\n[image") {
		t.Errorf("a store that is full: %q %q %d parts", res.Code, res.Output, len(res.Content))
	}
}

func TestPartsAreRedacted(t *testing.T) {
	s := "a s3cret"
	out := tool.Output{Structured: json.RawMessage(`{"s3cret":["s3cret"]}`), Content: []toolyard.Content{
		{Type: toolyard.ContentLink, URI: s, Name: s, Title: s, Description: s, MIMEType: s, WireName: s}, text(s),
		{Type: toolyard.ContentResource, Text: s}, {Type: toolyard.ContentResource, Data: []byte(s)},
		{Type: toolyard.ContentTool, Name: "t", Schema: json.RawMessage(`"s3cret"`)},
	}}
	res := newRig(secretless, gives(out, nil)).result(t)
	raw, err := json.Marshal(res)
	if err != nil || res.Code != toolyard.ResultRedacted || len(res.Content) != 5 || res.Structured == nil {
		t.Fatalf("%v %q %d", err, res.Code, len(res.Content))
	}
	if strings.Contains(string(raw), "s3cret") || strings.Contains(string(res.Content[3].Data), "s3cret") {
		t.Errorf("%s", raw)
	}
	res = newRig(gives(out, nil), func(r *rig) {
		r.Redact = func(s string) string {
			if strings.Contains(s, "s3cret") {
				panic("boom")
			}
			return s
		}
	}).result(t)
	if res.Code != toolyard.InternalError || res.Output != "" || res.Content != nil || res.Structured != nil {
		t.Errorf("a redactor that breaks: %q %q", res.Code, res.Output)
	}
}

// TestWhatDescribesAPartIsCut: a very long description from a server does not fill the log.
func TestWhatDescribesAPartIsCut(t *testing.T) {
	long := strings.Repeat("x", 2*MaxPartFieldBytes)
	var parts []toolyard.Content
	for range MaxContentParts {
		parts = append(parts, toolyard.Content{Type: toolyard.ContentLink, URI: long, Name: long, Title: long,
			Description: long, MIMEType: long, WireName: long})
	}
	res := newRig(gives(tool.Output{Text: "t", Content: parts}, nil)).result(t)
	for _, s := range texts(&res.Content[0]) {
		if len(*s) > MaxPartFieldBytes+100 || *s != "" && !display.Cut(*s) {
			t.Errorf("%d bytes, marked %t", len(*s), display.Cut(*s))
		}
	}
	if len(res.Content) != MaxContentParts || res.IsError {
		t.Errorf("%d parts, %q", len(res.Content), res.Code)
	}
}

func TestOutputAsData(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","required":["n"],"properties":{"n":{"enum":[1,"s3cret"]}}}`)
	declared := with(func(t *tool.Tool) { t.OutputSchema = schema })
	res := newRig(declared, gives(tool.Output{Structured: json.RawMessage(` {"n": 1}`)}, nil)).result(t)
	if string(res.Structured) != `{"n":1}` || res.Output != `{"n":1}` {
		t.Errorf("%s %q", res.Structured, res.Output)
	}
	res = newRig(declared, secretless, gives(tool.Output{Text: "t", Structured: json.RawMessage(`{"n":"s3cret"}`)},
		nil)).result(t)
	if res.Structured != nil || res.Output != "t" || !strings.Contains(detail(&res, toolyard.PhasePersistResult),
		"no longer fits its schema") {
		t.Errorf("what no longer fits: %s %q %+v", res.Structured, res.Output, res.Phases)
	}
	large := json.RawMessage(`"` + strings.Repeat("x", MaxStructuredBytes) + `"`)
	res = newRig(gives(tool.Output{Text: "t", Structured: large}, nil)).result(t)
	if res.Structured != nil || res.Output != "t" || res.IsError ||
		!strings.Contains(detail(&res, toolyard.PhasePersistResult), "262146 bytes") {
		t.Errorf("too large: %d bytes, %q, %+v", len(res.Structured), res.Output, res.Phases)
	}
}

func detail(res *toolyard.Result, phase toolyard.Phase) string {
	for _, f := range res.Phases {
		if f.Phase == phase {
			return f.Detail
		}
	}
	return ""
}

// TestHooksAndParts: an addition of a hook is a part too, and what a hook replaces or withholds is removed from all
// forms.
func TestHooksAndParts(t *testing.T) {
	out := gives(tool.Output{Structured: json.RawMessage(`[1]`), Content: []toolyard.Content{picture(3)}}, nil)
	res := newRig(out, after(HookVerdict{Context: "mind it"}, nil)).result(t)
	if len(res.Content) != 2 || res.Content[1].Text != "[added by a hook] mind it" ||
		res.Output != "[image: image/png, 3 bytes]\n\n[added by a hook] mind it" {
		t.Errorf("context: %+v %q", res.Content, res.Output)
	}
	other := "other"
	if res = newRig(out, after(HookVerdict{Output: &other}, nil)).result(t); res.Output != "other" ||
		res.Content != nil || res.Structured != nil {
		t.Errorf("replaced: %+v", res)
	}
	if res = newRig(out, after(HookVerdict{Block: true}, nil)).result(t); res.Output != "" || res.Content != nil ||
		res.Structured != nil {
		t.Errorf("withheld: %+v", res)
	}
	if res = newRig(out, after(HookVerdict{}, errBoom)).result(t); res.Code != toolyard.PostHookFailed ||
		len(res.Content) != 1 {
		t.Errorf("kept: %+v", res)
	}
}

// TestPartsOfAFailure: evidence, redacted and bounded like any other output.
func TestPartsOfAFailure(t *testing.T) {
	out := tool.Output{Content: []toolyard.Content{text("so far s3cret"), picture(MaxInlineDataBytes + 1)}}
	r := newRig(secretless, gives(out, errBoom))
	res := r.result(t)
	if res.Code != toolyard.ExecutionFailed || len(res.Content) != 2 ||
		strings.Contains(res.Content[0].Text+res.Output, "s3cret") || res.Content[1].Blob == "" {
		t.Errorf("%q %q %+v", res.Code, res.Output, res.Content)
	}
}

func TestEchoIsInEveryResult(t *testing.T) {
	echo := toolyard.Echo(`{"namespace":"n"}`)
	for name, change := range map[string]func(*rig){
		"success": func(*rig) {}, "unknown": func(r *rig) { r.job.Call.Tool = "no" },
		"panic": with(func(t *tool.Tool) { t.Run = nil }),
	} {
		r := newRig(change)
		r.job.Call.Echo = echo
		if res := r.result(t); string(res.Echo) != string(echo) {
			t.Errorf("%s: %q, echo %s", name, res.Code, res.Echo)
		}
	}
	if _, _, res := (&Pipeline{}).Preflight(toolyard.Call{ID: "1", Tool: "no", Echo: echo}, nil, nil,
		nil); string(res.Echo) != string(echo) {
		t.Errorf("preflight: %s", res.Echo)
	}
}
