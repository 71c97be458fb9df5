package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/redact"
	"github.com/toolyard/toolyard/tool"
)

// TestALongOutputComesWhole: only the tool's own limit turns an output into a preview, not its transport.
func TestALongOutputComesWhole(t *testing.T) {
	long := strings.Repeat("line ä\n", 100_000)
	for _, limit := range []int{-1, 1_000_000} {
		r := newRig(returns(long, nil), maxChars(limit))
		if res := r.result(t); res.IsError || res.Truncated || res.Output != long || len(r.stored) != 0 {
			t.Errorf("limit %d: %q, truncated %t, %d of %d bytes", limit, res.Code, res.Truncated, len(res.Output),
				len(long))
		}
	}
	data := []byte(`["` + strings.Repeat("x", 2*MaxStructuredBytes) + `"]`)
	for limit, whole := range map[int]bool{-1: true, 3 * MaxStructuredBytes: true, 1000: false} {
		r := newRig(gives(tool.Output{Text: "t", Structured: data}, nil), maxChars(limit))
		if res := r.result(t); res.IsError || (string(res.Structured) == string(data)) != whole {
			t.Errorf("limit %d: %q, %d of %d bytes of data", limit, res.Code, len(res.Structured), len(data))
		}
	}
}

// TestWhatWasDoneToAFailedCallsOutputIsAFact: the same as for a successful call.
func TestWhatWasDoneToAFailedCallsOutputIsAFact(t *testing.T) {
	const secret = "sk-ant-api03-0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefg-AAAAAAAA"
	r := newRig(returns(strings.Repeat("line\n", 2_000)+secret, errors.New("exit status 1")), maxChars(1_000),
		func(r *rig) { r.Redact = redact.New(nil).Redact })
	res := r.result(t)
	fact := res.Phases[len(res.Phases)-1]
	if !res.IsError || !res.Truncated || strings.Contains(res.Output, "sk-ant") ||
		fact.Phase != toolyard.PhaseEmitTerminal ||
		!strings.Contains(fact.Detail, "bytes stored as "+res.Blob) ||
		!strings.Contains(fact.Detail, "secrets were taken out") {
		t.Errorf("%q, truncated %t, the last fact is %+v", res.Code, res.Truncated, fact)
	}
}

// TestAnOutputThatNoEventCanCarryIsStored: escaped as JSON it would be several times longer.
func TestAnOutputThatNoEventCanCarryIsStored(t *testing.T) {
	odd := strings.Repeat("\x01", MaxOutputBytes)
	r := newRig(returns(odd, nil), maxChars(-1))
	if res := r.result(t); res.IsError || !res.Truncated || res.Blob == "" || len(res.Output) > MaxInlineResultBytes ||
		r.stored[0] != odd {
		t.Errorf("%q, truncated %t, %d bytes", res.Code, res.Truncated, len(res.Output))
	}
}

// TestAPreviewIsNeverLongerThanTheLimit: its note counts too. What hooks add has a limit of its own.
func TestAPreviewIsNeverLongerThanTheLimit(t *testing.T) {
	for _, limit := range []int{1, 2, 10, 40, 75, 100, 149, 150, 151, 200, 400, 999, 5_000, 5_001, 5_200, 20_000} {
		text := strings.Repeat("ä", limit+1)
		for _, ref := range []string{"result." + strings.Repeat("0123456789abcdef", 4), ""} {
			r := newRig(returns(text, nil), maxChars(limit), after(HookVerdict{Context: "mind it"}, nil), func(r *rig) {
				if r.put = func(context.Context, string) (string, error) { return ref, nil }; ref == "" {
					r.Blobs = nil
				}
			})
			res := r.result(t)
			shown, added := strings.CutSuffix(res.Output, "\n\n[added by a hook] mind it")
			if n := utf8.RuneCountInString(shown); n > limit || n < limit-5 && limit < 5_000 || !res.Truncated ||
				res.Blob != ref || added != (ref != "") {
				t.Errorf("limit %d: %d characters, truncated %t: %.300q", limit, n, res.Truncated, res.Output)
			}
			if limit >= 150 && !strings.Contains(shown, ref) {
				t.Errorf("limit %d: the preview does not name %s: %.300q", limit, ref, shown)
			}
		}
	}
}

// TestHookContextIsNoOutput: it reaches the model also after a failure with output, and later hooks do not see it as
// the tool's output.
func TestHookContextIsNoOutput(t *testing.T) {
	for name, err := range map[string]error{"success": nil, "failure": errBoom} {
		var seen string
		r := newRig(secretless, returns("the output", err), before(HookVerdict{Context: "before s3cret"}, nil),
			func(r *rig) {
				r.post = func(_ context.Context, in HookInput) (HookVerdict, error) {
					seen = in.Outcome.Output
					return HookVerdict{Context: "after"}, nil
				}
			})
		res := r.result(t)
		text := res.Output
		if err != nil {
			text = res.Error
		}
		if !strings.Contains(text, "[added by a hook] before [redacted]\n\n[added by a hook] after") || err != nil &&
			res.Output != "the output" || seen != "the output" {
			t.Errorf("%s: output %q, error %q, hooks see %q", name, res.Output, res.Error, seen)
		}
		if err == nil && res.Code != toolyard.ResultRedacted {
			t.Errorf("a secret in a hook's context: %q", res.Code)
		}
	}
	long := strings.Repeat("x", 60_000)
	r := newRig(returns(long, nil), before(HookVerdict{Context: "mind it"}, nil))
	if res := r.result(t); len(r.stored) != 1 || r.stored[0] != long ||
		!strings.HasSuffix(res.Output, "[added by a hook] mind it") {
		t.Errorf("what is stored of a long output: %d texts, %s", len(r.stored),
			fmt.Sprint(res.Output[len(res.Output)-100:]))
	}
}

// TestAnErrorIsASentence: what to do next begins another one.
func TestAnErrorIsASentence(t *testing.T) {
	for message, want := range map[string]string{
		"it was killed by signal 9 (killed)": "it was killed by signal 9 (killed). Read the error",
		"it failed (as it should.)":          "it failed (as it should.) Read the error",
		"it failed":                          "it failed. Read the error",
		"why?":                               "why? Read the error",
	} {
		r := newRig(returns("", &tool.Error{Code: toolyard.ExecutionFailed, Message: message}))
		if res := r.result(t); !strings.HasPrefix(res.Error, want) {
			t.Errorf("%q: %s", message, res.Error)
		}
	}
}
