//go:build linux

package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/submission"
	"github.com/toolyard/toolyard/test/verdict"
)

// TestWorkerDiesInAScript (W12): nobody knows how far the script came, and the call that it was waiting for does not go
// on without it. Where nothing can isolate a script, none starts.
func TestWorkerDiesInAScript(t *testing.T) {
	cell(t, "W12", func(s *system) rules {
		s.basic()
		workspace := s.workspace()
		const calls = 3
		dies := 1 + s.rand.IntN(calls) // which of the script's calls its worker does not survive
		start := func(failpoints string) *process {
			return s.serves("scripts", failpoints, "--workspace", "dan="+workspace, "--permission-mode", "bypass",
				"--run-code")
		}
		var victim *process
		s.together(func() { victim = start(fmt.Sprintf("%s=kill@%d", failpoint.ChildStarted, dies)) },
			func() { s.worker("worker", "") })
		s.dispatcher("dispatcher", "", "--run-code")
		l := s.load(mix{quiet: true})
		var code strings.Builder
		for n := range calls {
			seconds := "0"
			if n+1 == dies {
				seconds = "300"
			}
			fmt.Fprintf(&code, "tool bash '{\"command\": \"echo %d >> all; sleep %s\", \"timeout_ms\": 400000}'\n", n,
				seconds)
		}
		parent := toolyard.Batch{Agent: "dan", ID: "script", Workspace: "dan", Calls: []toolyard.Call{{
			Tool: toolyard.RunCodeTool, Input: raw(map[string]any{"language": "bash", "code": code.String()})}}}
		parent.Normalize(parent.ID)
		done := make(chan *verdict.Submission, 1)
		go func() { done <- l.extra(parent) }()
		if s.isolation() == "none" {
			if r := (<-done).Results[0]; r.Code != toolyard.SetupRequired {
				s.t.Errorf("without a sandbox a script ended as %q: %s", r.Code, r.Error)
			}
			l.finish()
			return rules{codes: map[string][]toolyard.Code{toolyard.RunCodeTool: {toolyard.SetupRequired}}}
		}
		s.killedAt(victim, failpoint.ChildStarted)
		s.faultOver()
		start("")
		if r := (<-done).Results[0]; r.Code != toolyard.OutcomeUnknown {
			s.t.Errorf("the script ended as %q: %s", r.Code, r.Error)
		}
		for n := range dies {
			// Who hands in the same batch again gets the results of the one that there is.
			child, err := submission.Child(&parent, toolyard.Parent{Batch: parent.ID, Attempt: 1, N: n + 1}, "bash",
				raw(map[string]any{"command": fmt.Sprintf("echo %d >> all; sleep %s", n, map[bool]string{true: "300",
					false: "0"}[n+1 == dies]), "timeout_ms": 400000}))
			if err != nil {
				s.t.Fatal(err)
			}
			r := l.extra(child).Results[0]
			want := []toolyard.Code{toolyard.OK}
			if n+1 == dies {
				want = []toolyard.Code{toolyard.Canceled, toolyard.OutcomeUnknown}
			}
			if !slices.Contains(want, r.Code) {
				s.t.Errorf("call %d of the script ended as %q, want one of %q: %s %s", n, r.Code, want, r.Error,
					r.Detail)
			}
		}
		l.finish()
		return rules{harmed: []*process{victim}, codes: map[string][]toolyard.Code{
			toolyard.RunCodeTool: {toolyard.OutcomeUnknown},
			"bash":               {toolyard.Canceled, toolyard.OutcomeUnknown}}}
	})
}
