//go:build unix

package e2e

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/submission"
)

// someLines is a number of lines, and no word of a failure.
var someLines = regexp.MustCompile(`^[1-9][0-9]*\n$`)

// TestTheExampleOfAScript: its script calls tools, and its log says where their logs are.
func TestTheExampleOfAScript(t *testing.T) {
	t.Parallel()
	p := newPlace(t, exampleFiles(t))
	path := filepath.Join(t.TempDir(), "events.jsonl")
	v := p.view("--events", path, "--run-code", "--allow", toolyard.RunCodeTool, "examples/script.json")
	r := v.Results[0]
	if want := commandCode(t); r.Code != want || want == toolyard.OK && !someLines.MatchString(r.Output) {
		t.Errorf("%q %s %s %q", r.Code, r.Error, r.Detail, r.Output)
	}
	if r.IsError {
		return
	}
	first := submission.ChildID(toolyard.Parent{Batch: v.ID, Attempt: 1, N: 1})
	if text := p.ok(nil, "replay", path); !strings.Contains(text, string(first)) {
		t.Errorf("the log does not name %s:\n%s", first, text)
	}
}
