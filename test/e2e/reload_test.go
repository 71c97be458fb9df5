//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestSIGHUPReadsRulesAndToolsAgain, in a worker and in a dispatcher that has one. What is wrong with a file is logged,
// and what was read before holds.
func TestSIGHUPReadsRulesAndToolsAgain(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"worker", "dispatcher"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			dir := workspace(t, map[string]string{"a.txt": "one\n"})
			files := t.TempDir()
			rules, tools := filepath.Join(files, "rules.yaml"), filepath.Join(files, "tools.yaml")
			write := func(path, text string) {
				t.Helper()
				must.OK(t, os.WriteFile(path, []byte(text), 0o600))
			}
			declare := func(name string) {
				t.Helper()
				write(tools, fmt.Sprintf(`{"tools": [{"name": %q, "description": "Tells the time of a machine.",
					"concurrency_class": "READ_ONLY", "is_read_only": true, "input_schema": {"type": "object"},
					"http": {"method": "GET", "url": "https://example.com/"}}]}`, name))
			}
			write(rules, "allow: [{rule: write_file}]\n")
			declare("first")
			flags := []string{"--rules", rules, "--tools", tools, "--log-level", "info"}
			var d, p *process
			if where == "worker" {
				d = dispatcher(t)
				p = worker(t, d.says["nats"], dir, flags...)
			} else {
				d = dispatcher(t, append(flags, "--with-worker", "--workspace", "default="+dir)...)
				p = d
			}
			n := 0
			code := func() toolyard.Code {
				t.Helper()
				n++
				file := batchFile(t, toolyard.Batch{ID: toolyard.BatchID(fmt.Sprint("b", n)), Calls: []toolyard.Call{
					{ID: "c", Tool: "write_file", Input: input(map[string]any{"file_path": fmt.Sprint(n, ".txt"),
						"content": "two\n"})}}})
				var v toolyard.BatchView
				text := said(t, "submit", "--nats", d.says["nats"], "--json", file)
				if err := json.Unmarshal([]byte(text), &v); err != nil || len(v.Results) != 1 {
					t.Fatalf("%+v, %v", v, err)
				}
				return v.Results[0].Code
			}
			offered := func(name string) bool {
				return strings.Contains(said(t, "tools", "--nats", d.says["nats"]), name)
			}
			if c := code(); c != toolyard.OK || !offered("first") {
				t.Fatalf("at the start: %q, first is offered: %t", c, offered("first"))
			}

			write(rules, "deny: [{rule: write_file}]\n")
			declare("second")
			must.OK(t, p.cmd.Process.Signal(syscall.SIGHUP))
			testenv.Until(t, "the tools are those of the file as it is now", func() bool {
				return offered("second") && !offered("first")
			})
			if c := code(); c != toolyard.BlockedTool && c != toolyard.PermissionDenied && c != toolyard.UnknownTool {
				t.Errorf("a denied call ended as %q", c)
			}

			write(tools, "tools: [{name: third}]\n")
			write(rules, "allow: [{rule: write_file}]\n")
			must.OK(t, p.cmd.Process.Signal(syscall.SIGHUP))
			if c := code(); c == toolyard.OK || !offered("second") { // also when the signal comes later
				t.Errorf("with a broken file: %q, second is offered: %t", c, offered("second"))
			}

			declare("fourth")
			must.OK(t, p.cmd.Process.Signal(syscall.SIGHUP))
			testenv.Until(t, "the mended files hold", func() bool { return offered("fourth") && !offered("second") })
			if c := code(); c != toolyard.OK {
				t.Errorf("a call that is allowed again ended as %q", c)
			}
		})
	}
}
