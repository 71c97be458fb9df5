package pipeline

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// TestNullsOfStrictForms: a model that was given a strict form writes null for optional fields. An input that fits is
// unchanged, and so is one that does not fit without its nulls either.
func TestNullsOfStrictForms(t *testing.T) {
	const declared = `{"type":"object","required":["text"],"properties":{"text":{"type":"string"},"n":{"type":"integer"},
		"any":{"type":["string","null"]},"in":{"type":"object","properties":{"x":{"type":"string"}}}}}`
	var ran string
	takes := with(func(t *tool.Tool) {
		t.InputSchema = json.RawMessage(declared)
		t.Run = func(_ context.Context, _ tool.Env, in json.RawMessage) (tool.Output, error) {
			ran = string(in)
			return tool.Output{Text: "ok"}, nil
		}
	})
	for _, tt := range []struct{ in, runs string }{
		{`{"text":"a","n":null}`, `{"text":"a"}`},
		{`{"text":"a","n":null,"any":null,"in":{"x":null}}`, `{"any":null,"in":{},"text":"a"}`},
		{`{"text":"a","any":null}`, `{"any":null,"text":"a"}`},
		{`{"text":null,"n":null}`, ``}, {`{"text":"a","n":null,"other":null}`, ``},
		{`{"text":"a","n":"1","in":null}`, ``}, {`null`, ``},
	} {
		ran = ""
		r := newRig(takes, input(tt.in))
		res := r.result(t)
		if ran != tt.runs || res.IsError != (tt.runs == "") || res.IsError &&
			res.Code != toolyard.SchemaValidationFailed {
			t.Errorf("%s: ran %s, %q %s", tt.in, ran, res.Code, res.Error)
		}
		base, err := registry.Registry{}.Register(registry.Entry{Declaration: r.tools["echo"].Declaration,
			Origin: registry.Builtin})
		must.OK(t, err)
		surface, err := registry.Assemble(base, nil)
		must.OK(t, err)
		_, judged, failed := (&Pipeline{}).Preflight(toolyard.Call{ID: "c", Tool: "echo",
			Input: json.RawMessage(tt.in)}, &surface, nil, nil)
		if failed == nil != (tt.runs != "") || failed == nil && canonical(t, judged.Raw) != tt.runs {
			t.Errorf("%s: judged %s, %+v", tt.in, judged.Raw, failed)
		}
	}
}

func canonical(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var v any
	must.OK(t, json.Unmarshal(raw, &v))
	out := must.JSON(t, v)
	return string(out)
}
