package dispatchercmd

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestTheEventFileIsItsOwnersAlone: it has the inputs as they were handed in.
func TestTheEventFileIsItsOwnersAlone(t *testing.T) {
	dir := t.TempDir()
	file, events := filepath.Join(dir, "batch.json"), filepath.Join(dir, "events")
	must.OK(t, os.WriteFile(file, []byte(`{"calls":[{"tool":"read_file","input":{"file_path":"batch.json"}}]}`), 0o600))
	var out, errs bytes.Buffer
	s := &std{in: strings.NewReader(""), out: &out, err: &errs, log: cli.Log{Level: "warn", Format: "text"},
		terminal: func() bool { return false }}
	cmd := s.runCommand()
	cmd.SetArgs([]string{"--workspace", dir, "--events", events, file})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
	}
	if info, err := os.Stat(events); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the event file: %v, %v", info, err)
	}
	if !strings.Contains(out.String(), "with the inputs as they were handed in, unredacted") {
		t.Errorf("it does not say what is in the file:\n%s", out.String())
	}
}

// TestRunAsksAtATerminal answers for the person at the terminal: no, something that is no answer, yes, and silence.
func TestRunAsksAtATerminal(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "batch.json")
	write := func(name string) string {
		return `{"tool":"write_file","input":{"file_path":"` + name + `","content":"x"}}`
	}
	must.OK(t, os.WriteFile(file, []byte(`{"calls":[`+write("a")+`,`+write("b")+`,`+write("c")+`]}`), 0o600))
	var out, errs bytes.Buffer
	s := &std{in: strings.NewReader("n\nwhat?\ny\n"), out: &out, err: &errs,
		log:      cli.Log{Level: "warn", Format: "text"},
		terminal: func() bool { return true }}
	cmd := s.runCommand()
	cmd.SetArgs([]string{"--workspace", dir, file})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
	}
	for name, want := range map[string]bool{"a": false, "b": true, "c": false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("file %s is there: %t, want %t", name, err == nil, want)
		}
	}
	if n := strings.Count(errs.String(), "May this call run?"); n != 3 {
		t.Errorf("it asked %d times, want 3:\n%s", n, errs.String())
	}
	if got := out.String(); strings.Count(got, "  approval_rejected\n") != 2 ||
		!strings.Contains(got, "The user said no: the terminal was closed.") {
		t.Errorf("the results do not say who said no:\n%s", got)
	}
}
