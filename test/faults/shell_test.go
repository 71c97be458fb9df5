//go:build linux

package faults

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/failpoint"
)

// TestWorkerDiesInAShell (W13): the command has run, and what its shell remembers is not stored. Another worker goes on
// with the shell as it was before the command, and tells the model. Where nothing can isolate a command, none runs and
// nobody dies.
func TestWorkerDiesInAShell(t *testing.T) {
	cell(t, "W13", func(s *system) rules {
		s.basic()
		workspace := s.workspace()
		start := func(failpoints string) *process {
			return s.serves("shells", failpoints, "--workspace", "dan="+workspace, "--allow", "bash", "--shells",
				filepath.Join(s.dir, "shells"))
		}
		var victim *process
		s.together(func() { victim = start(string(failpoint.ShellRan) + "=kill@2") }, func() { s.worker("worker", "") })
		s.dispatcher("dispatcher", "")
		l := s.load(mix{quiet: true})
		bash := func(id, command string) toolyard.Result {
			return l.extra(toolyard.Batch{Agent: "dan", ID: toolyard.BatchID(id), Workspace: "dan",
				Calls: []toolyard.Call{{ID: "call_" + id, Tool: "bash",
					Input: raw(map[string]any{"command": command})}}}).Results[0]
		}
		begun := bash("begun", "mkdir a; cd a; export V=1; echo one > /tmp/f")
		if s.isolation() == "none" {
			if begun.Code != toolyard.SetupRequired {
				s.t.Errorf("%s %s", begun.Code, begun.Error)
			}
			l.finish()
			return rules{codes: map[string][]toolyard.Code{"bash": {toolyard.SetupRequired}}}
		}
		done := make(chan toolyard.Result, 1)
		go func() { done <- bash("lost", "cd ..; export V=2; echo two > /tmp/f; touch ran") }()
		s.killedAt(victim, failpoint.ShellRan)
		s.faultOver()
		start("")
		if r := <-done; r.Code != toolyard.OutcomeUnknown {
			s.t.Errorf("%s %s", r.Code, r.Error)
		}
		r := bash("next", "pwd; echo $V; cat /tmp/f; ls ..")
		want := filepath.Join(workspace, "a") + "\n1\none\na\nran\n" +
			"[shell: call call_lost of batch lost was stopped or lost while it ran"
		if r.IsError || !strings.HasPrefix(r.Output, want) {
			s.t.Errorf("%s %q, want %q", r.Code, r.Text(), want)
		}
		if r := bash("last", "pwd; true $V"); r.IsError || strings.Contains(r.Output, "[shell: ") {
			s.t.Errorf("it is told again: %q", r.Text())
		}
		l.finish()
		return rules{harmed: []*process{victim}, codes: map[string][]toolyard.Code{"bash": {toolyard.OutcomeUnknown}}}
	})
}
