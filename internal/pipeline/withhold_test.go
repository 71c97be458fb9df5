package pipeline

import (
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
