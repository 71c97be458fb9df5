//go:build linux

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/failpoint"
)

// undoable is a workspace with files, and workers that keep snapshots of it.
type undoable struct {
	s         *system
	workspace string
	files     int
}

func (s *system) undoable() *undoable {
	s.t.Helper()
	u := &undoable{s: s, workspace: s.workspace(), files: 6}
	for i := range u.files {
		if err := os.WriteFile(u.file(i), []byte(fmt.Sprint("before ", i)), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	return u
}

func (u *undoable) file(i int) string { return filepath.Join(u.workspace, fmt.Sprint("file", i)) }

func (u *undoable) worker(failpoints string) *process {
	s := u.s
	s.t.Helper()
	return s.serves("files", failpoints, "--workspace", "dan="+u.workspace, "--permission-mode", "accept_edits",
		"--allow", toolyard.UndoTool, "--allow", toolyard.OverlayTool, "--snapshots", filepath.Join(s.dir, "snapshots"))
}

// writes is a batch that changes all files, each in a group of its own.
func (u *undoable) writes(id string) toolyard.Batch {
	b := toolyard.Batch{Agent: "dan", ID: toolyard.BatchID(id), Workspace: "dan",
		Options: toolyard.Options{Snapshot: true}}
	for i := range u.files {
		b.Calls = append(b.Calls, toolyard.Call{Tool: "write_file",
			Input: raw(map[string]any{"file_path": filepath.Base(u.file(i)), "content": fmt.Sprint("after ", i)})})
	}
	return b
}

func (u *undoable) undo(id, of string, force bool) toolyard.Batch {
	return toolyard.Batch{Agent: "dan", ID: toolyard.BatchID(id), Workspace: "dan",
		Options: toolyard.Options{Undo: true},
		Calls:   []toolyard.Call{{Tool: toolyard.UndoTool, Input: raw(map[string]any{"batch": of, "force": force})}}}
}

// is checks that all files are as they were before, or behind, the batch.
func (u *undoable) is(when string, unless map[int]bool) {
	u.s.t.Helper()
	for i := range u.files {
		got, err := os.ReadFile(u.file(i))
		if want := fmt.Sprint(when, " ", i); !unless[i] && (err != nil || string(got) != want) {
			u.s.t.Errorf("%s is %q, want %q (%v)", u.file(i), got, want, err)
		}
	}
	names, err := os.ReadDir(u.workspace)
	if err != nil || len(names) != u.files {
		u.s.t.Errorf("there are %v, %v", names, err)
	}
}

// TestWorkerDiesInASnapshot (W10): the call that the snapshot is for has changed nothing, and the next snapshot is
// whole.
func TestWorkerDiesInASnapshot(t *testing.T) {
	cell(t, "W10snapshot", func(s *system) rules {
		s.basic()
		u := s.undoable()
		var victim *process
		armed := fmt.Sprintf("%s=kill@%d", failpoint.SnapshotPartly, 1+s.rand.IntN(u.files))
		s.together(func() { victim = u.worker(armed) }, func() { s.worker("worker", "") })
		s.dispatcher("dispatcher", "")
		l := s.load(mix{quiet: true})
		done := make(chan []toolyard.Result, 1)
		go func() { done <- l.extra(u.writes("writes")).Results }()
		s.killedAt(victim, failpoint.SnapshotPartly)
		u.is("before", nil)
		s.faultOver()
		u.worker("")
		lost := map[int]bool{}
		for i, r := range <-done {
			if lost[i] = r.IsError; r.IsError && r.Code != toolyard.OutcomeUnknown {
				s.t.Errorf("call %d: %s %s", i, r.Code, r.Error)
			}
		}
		if len(lost) != u.files || lost[u.files-1] {
			s.t.Errorf("%v", lost)
		}
		u.is("after", lost)
		first := u.undo("undo", "writes", true)
		if lost[0] { // nobody knows that it has changed nothing, and there is no snapshot of it
			first.Calls[0].Input = raw(map[string]any{"batch": "writes", "group": 1, "force": true})
		}
		if r := l.extra(first).Results[0]; r.IsError {
			s.t.Errorf("%s %s", r.Code, r.Error)
		}
		u.is("before", nil)
		l.finish()
		return rules{harmed: []*process{victim}, codes: map[string][]toolyard.Code{
			"write_file": {toolyard.OutcomeUnknown}}}
	})
}

// TestWorkerDiesInARestore (W10): another worker sets the workspace back to the end.
func TestWorkerDiesInARestore(t *testing.T) {
	cell(t, "W10restore", func(s *system) rules {
		s.basic()
		u := s.undoable()
		var victim *process
		armed := fmt.Sprintf("%s=kill@%d", failpoint.RestorePartly, 1+s.rand.IntN(u.files))
		s.together(func() { victim = u.worker(armed) }, func() { s.worker("worker", "") })
		s.dispatcher("dispatcher", "")
		l := s.load(mix{quiet: true})
		for i, r := range l.extra(u.writes("writes")).Results {
			if r.IsError {
				s.t.Errorf("call %d: %s %s", i, r.Code, r.Error)
			}
		}
		u.is("after", nil)
		done := make(chan toolyard.Result, 1)
		go func() { done <- l.extra(u.undo("undo", "writes", false)).Results[0] }()
		s.killedAt(victim, failpoint.RestorePartly)
		s.faultOver()
		u.worker("")
		if r := <-done; r.IsError || r.Attempts != 2 {
			s.t.Errorf("attempt %d: %s %s", r.Attempts, r.Code, r.Error)
		}
		u.is("before", nil)
		l.finish()
		return rules{harmed: []*process{victim}}
	})
}
