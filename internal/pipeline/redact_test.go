package pipeline

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

// TestSecretsAcrossACut: a secret at the end of a preview is removed completely, also from an output that is too long
// to be kept.
func TestSecretsAcrossACut(t *testing.T) {
	for name, size := range map[string]int{"stored": 300_000, "too long": MaxOutputBytes + 1} {
		for cut := range len("s3cret") + 1 {
			text := strings.Repeat("a", PreviewHeadChars-cut) + "s3cret" +
				strings.Repeat("b", size-PreviewHeadChars-PreviewTailChars) + "s3cret" +
				strings.Repeat("c", PreviewTailChars-cut)
			r := newRig(secretless, returns(text, nil))
			res, err := r.Run(t.Context(), r.job)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range []string{"s3cret", "as3", "as3c", "as3cr", "as3cre", "cretc", "retc", "etc"} {
				if strings.Contains(res.Output, part) {
					t.Errorf("%s, %d: the result shows %q", name, cut, part)
				}
			}
			if !strings.Contains(res.Output, "aaa") || !strings.Contains(res.Output, "ccc") {
				t.Errorf("%s, %d: the ends are missing: %.40s", name, cut, res.Output)
			}
		}
	}
}

// TestNamesOfFieldsAreRedacted: the copies of an input have no secrets in field names either; the input that runs does.
func TestNamesOfFieldsAreRedacted(t *testing.T) {
	var seen string
	r := newRig(secretless, input(`{"text":"hi","n":1}`), func(r *rig) {
		e := r.tools["echo"]
		e.InputSchema = json.RawMessage(`{"type":"object","additionalProperties":true}`)
		r.setTool(e)
		r.job.Call.Input = json.RawMessage(`{"text":"hi","list":[{"the s3cret":"a","the s3cret!":"b"}]}`)
		r.job.Observe = func(raw json.RawMessage, _ string) { seen = string(raw) }
	})
	res, err := r.Run(t.Context(), r.job)
	if err != nil || res.IsError || res.Code != toolyard.OK {
		t.Fatalf("%+v, %v", res, err)
	}
	if seen != `{"list":[{"the [redacted]":"a","the [redacted]!":"b"}],"text":"hi"}` {
		t.Errorf("others see %s", seen)
	}
}
