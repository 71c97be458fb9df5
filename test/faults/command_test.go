//go:build unix

package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/test/verdict"
)

// isolation is what the worker can put around commands on this machine.
func (s *system) isolation() string {
	s.t.Helper()
	dir, err := bin()
	must.OK(s.t, err)
	out, err := exec.CommandContext(s.context(), filepath.Join(dir, "worker"), "check").Output()
	if err != nil && len(out) == 0 {
		s.t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimPrefix(first, "isolation: ")
}

// asleep counts the processes of this machine that sleep for so many seconds.
func (s *system) asleep(seconds string) (n int) {
	s.t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must.OK(s.t, err)
	for _, name := range lines {
		text, err := os.ReadFile(name)
		if err == nil && strings.Contains(string(text), "sleep\x00"+seconds) { // others come and go
			n++
		}
	}
	return n
}

// TestCommandsIgnoreTheirEnd (W7): commands ignore signals, leave processes behind, fork without end and use up
// memory. Each call has its result at its limit. No process of a command outlives its call, or its worker when that is
// killed. Where nothing can isolate a command, no command starts.
func TestCommandsIgnoreTheirEnd(t *testing.T) {
	cell(t, "W7commands", func(s *system) rules {
		s.basic()
		workspace := s.workspace()
		start := func() *process {
			return s.serves("commands", "", "--workspace", "dan="+workspace, "--permission-mode", "bypass",
				"--sandbox-memory", "64")
		}
		var victim *process
		s.together(func() { victim = start() }, func() { s.worker("worker", "") })
		s.dispatcher("dispatcher", "")
		l := s.load(mix{quiet: true})
		bash := func(id string, limit time.Duration, commands ...string) toolyard.Batch {
			b := toolyard.Batch{Agent: "dan", ID: toolyard.BatchID(id), Workspace: "dan",
				Options: toolyard.Options{CallTimeoutMS: limit.Milliseconds()}}
			for _, c := range commands {
				b.Calls = append(b.Calls, toolyard.Call{Tool: "bash", Input: raw(map[string]any{"command": c})})
			}
			return b
		}
		// Seconds that nobody else sleeps.
		first, second := fmt.Sprintf("9%d.1", os.Getpid()), fmt.Sprintf("9%d.%d2", os.Getpid(), s.seed)
		const limit = 3 * time.Second
		commands := []string{
			"trap '' TERM INT HUP; (setsid sleep " + first + " &); sleep " + first + " & sleep " + first,
			"f() { f | f & }; f; sleep " + first,
			"echo done",
		}
		want := [][]toolyard.Code{
			{toolyard.Timeout},
			// it may take the sandbox's own init with it
			{toolyard.Timeout, toolyard.ExecutionFailed, toolyard.OutcomeUnknown},
			{toolyard.OK},
		}
		isolated := s.isolation() != "none"
		began := time.Now()
		sub := l.extra(bash("commands", limit, commands...))
		if took := time.Since(began); took > time.Duration(len(commands)+2)*limit {
			s.t.Errorf("Q12: %d commands with a limit of %s took %s", len(commands), limit, took)
		}
		// A busy machine takes more than the limit of the others until the memory is used up.
		const hungry = "head -c 500000000 /dev/zero | tail -c 499999999 | wc -c"
		commands, want = append(commands, hungry), append(want, []toolyard.Code{toolyard.ExecutionFailed})
		results := append(sub.Results, l.extra(bash("memory", faultWait, hungry)).Results...)
		for i, r := range results {
			if !isolated {
				want[i] = []toolyard.Code{toolyard.SetupRequired}
			}
			if !slices.Contains(want[i], r.Code) {
				s.t.Errorf("%q ended as %q, want %q: %s %s", commands[i], r.Code, want[i], r.Error, r.Detail)
			}
		}
		s.until(faultWait, "nothing of the commands lives on", func() bool { return s.asleep(first) == 0 })

		// The worker dies with a command: so does the command.
		done := make(chan *verdict.Submission, 1)
		go func() { done <- l.extra(bash("left", time.Hour, "sleep "+second+"; echo > woken")) }()
		if isolated {
			s.until(faultWait, "the command runs", func() bool { return s.asleep(second) > 0 })
			victim.kill()
			start()
			s.until(faultWait, "the command has died with its worker", func() bool { return s.asleep(second) == 0 })
		}
		left := <-done
		if r := left.Results[0]; isolated && r.Code != toolyard.OutcomeUnknown {
			s.t.Errorf("a command whose worker died ended as %q: %s", r.Code, r.Error)
		}
		if _, err := os.Stat(filepath.Join(workspace, "woken")); err == nil {
			s.t.Error("the command went on without its worker")
		}
		s.faultOver()
		l.finish()
		return rules{harmed: []*process{victim}, codes: map[string][]toolyard.Code{
			"bash": {toolyard.Timeout, toolyard.ExecutionFailed, toolyard.OutcomeUnknown, toolyard.SetupRequired},
		}}
	})
}
