//go:build unix

package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestUnknownFailpoints: a process that is told of a failpoint it does not know does not start, and one that was not
// built for the fault tests takes no notice.
func TestUnknownFailpoints(t *testing.T) {
	t.Parallel()
	dir, err := bin()
	must.OK(t, err)
	for _, name := range []string{"dispatcher", "worker", "ledgerworker"} {
		for _, value := range []string{"dispatcher.batch-recieved=kill", "worker.call-taken=die"} {
			cmd := exec.Command(filepath.Join(dir, name), "--help")
			cmd.Env = append(os.Environ(), failpoint.Env+"="+value)
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 2 ||
				!strings.Contains(string(out), failpoint.Env) {
				t.Errorf("%s with %s: %v\n%s", name, value, err, out)
			}
		}
		cmd := exec.Command(filepath.Join(dir, name), "--help")
		cmd.Env = append(os.Environ(), failpoint.Env+"=worker.call-taken=kill@7")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s with a failpoint that it knows: %v\n%s", name, err, out)
		}
	}
	if failpoint.Enabled {
		t.Error("the tests themselves are built with failpoints")
	}
}

// TestEveryFailpointHasACell: what nobody arms is a place that nobody tests, and what the table does not name nobody
// finds.
func TestEveryFailpointHasACell(t *testing.T) {
	table := must.Read(t, filepath.Join("..", "..", "docs", "faults.md"))
	var cells strings.Builder
	for _, file := range []string{"dispatcher_test.go", "worker_test.go", "raise_test.go", "snapshot_test.go",
		"overlay_test.go", "shell_test.go", "runcode_test.go", "question_test.go"} {
		text := must.Read(t, file)
		cells.Write(text)
	}
	names := must.Read(t, filepath.Join("..", "..", "internal", "failpoint", "doc.go"))
	for _, n := range failpoint.Names {
		m := regexp.MustCompile(`(\w+)\s+Name = "` + regexp.QuoteMeta(string(n)) + `"`).FindSubmatch(names)
		if m == nil {
			t.Errorf("%s is no constant", n)
			continue
		}
		if !strings.Contains(cells.String(), "failpoint."+string(m[1])) {
			t.Errorf("no cell arms %s", m[1])
		}
		if !strings.Contains(string(table), "`"+string(n)+"`") {
			t.Errorf("docs/faults.md does not name `%s`", n)
		}
	}
}
