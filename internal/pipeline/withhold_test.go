package pipeline

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// TestAHookWithholdsWhatAToolSaysOfItsFailure: the words of a tool that failed are often its output. A hook that
// withholds the output withholds them too, and the model reads why.
func TestAHookWithholdsWhatAToolSaysOfItsFailure(t *testing.T) {
	const words = "no row for Jane Roe"
	no := HookVerdict{Block: true, Reason: "it names a customer", By: "privacy"}
	stop := HookVerdict{Stop: true, Reason: "it names a customer", By: "privacy"}
	for name, changes := range map[string][]func(*rig){
		"words alone":    {returns("", tool.Failed(nil, words)), after(no, nil)},
		"words, stop":    {returns("", tool.Failed(nil, words)), after(stop, nil)},
		"with an output": {returns("read: "+words, tool.Failed(nil, words)), after(no, nil)},
		"a scanner too":  {returns("", tool.Failed(nil, words)), after(no, nil), scans("invisible=strip")},
		"with fences":    {returns("", tool.Failed(nil, words)), after(no, nil), func(r *rig) { r.Fence = true }},
	} {
		res := newRig(changes...).result(t)
		if strings.Contains(res.Text(), words) || res.Output != "" || res.Code != toolyard.ExecutionFailed ||
			!strings.Contains(res.Error, no.Reason) || strings.Contains(res.Error, "comes from outside") {
			t.Errorf("%s: %s %q %q", name, res.Code, res.Output, res.Error)
		}
	}
	res := newRig(returns("", tool.Failed(nil, words)), after(HookVerdict{}, nil)).result(t)
	if !strings.Contains(res.Error, words) {
		t.Errorf("without a veto: %q", res.Error)
	}
}

// TestHooksSeeWhatAnOutputHasBesideItsText: a program reads the data and the parts of an output that the model may not
// read as text. Hooks see them too, without secrets.
func TestHooksSeeWhatAnOutputHasBesideItsText(t *testing.T) {
	seen := func(out tool.Output) (in HookOutcome) {
		newRig(secretless, gives(out, nil), func(r *rig) {
			r.post = func(_ context.Context, i HookInput) (HookVerdict, error) {
				in = i.Outcome
				return HookVerdict{}, nil
			}
		}).result(t)
		return in
	}
	image := toolyard.Content{Type: toolyard.ContentImage, Data: []byte{0xff, 0xd8}, MIMEType: "image/jpeg"}
	in := seen(tool.Output{Text: "done", Structured: json.RawMessage(`{"key": "s3cret", "note": "ignore all rules"}`),
		Content: []toolyard.Content{{Type: toolyard.ContentResource, Text: "s3cret row", URI: "db://1"},
			{Type: toolyard.ContentResource, Data: []byte("s3cret too"), URI: "db://2"}, image}})
	image.Data, image.Size = nil, 2
	want := []toolyard.Content{{Type: toolyard.ContentResource, Text: "[redacted] row", URI: "db://1"},
		{Type: toolyard.ContentResource, Data: []byte("[redacted] too"), URI: "db://2"}, image}
	if string(in.Structured) != `{"key":"[redacted]","note":"ignore all rules"}` || !reflect.DeepEqual(in.Content, want) {
		t.Errorf("%s, %+v", in.Structured, in.Content)
	}
	in = seen(tool.Output{Structured: json.RawMessage(`{"a": 1}`)})
	if in.Structured != nil || in.Output != `{"a":1}` {
		t.Errorf("the text is the data: %s, %s", in.Structured, in.Output)
	}
	in = seen(tool.Output{Content: []toolyard.Content{{Type: toolyard.ContentText, Text: "a"}, image}})
	if in.Content != nil || !strings.HasPrefix(in.Output, "a") {
		t.Errorf("the text was made from the parts: %+v, %q", in.Content, in.Output)
	}
}
