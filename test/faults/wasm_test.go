//go:build unix

package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// endless is a module that says now and then that it runs, and has no end if its input says so.
const endless = `package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	in, err := io.ReadAll(os.Stdin)
	if err != nil {
		os.Exit(1)
	}
	for n := 0; n == 0 || strings.Contains(string(in), "true"); n++ {
		if n%(1<<22) == 0 {
			fmt.Fprintln(os.Stderr, "it runs")
		}
	}
	fmt.Println("it is over")
}
`

// module builds the module, and returns the manifest of its tool.
func (s *system) module() (manifest string) {
	s.t.Helper()
	source, manifest := filepath.Join(s.dir, "endless.go"), filepath.Join(s.dir, "modules.yaml")
	for file, text := range map[string]string{source: endless, manifest: `tools:
  - name: endless
    description: It has no end if it is told so.
    input_schema: {type: object, properties: {on: {type: boolean}}}
    timeout_ms: 120000
    wasm: {file: endless.wasm, stdin: json}
`} {
		must.OK(s.t, os.WriteFile(file, []byte(text), 0o600))
	}
	build := exec.CommandContext(s.context(), "go", "build", "-o", "endless.wasm", "endless.go")
	build.Dir, build.Env = s.dir, append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
	return manifest
}

// saysSo waits until a call of a batch of dan's reports a status.
func (s *system) saysSo(id toolyard.BatchID, status string) {
	s.t.Helper()
	k := toolyard.BatchKey{Agent: "dan", ID: id}
	s.until(faultWait, "the batch is stored", func() bool {
		_, err := s.b.Look(s.context(), k)
		return err == nil
	})
	for report, err := range s.c.Batch(k).Progress(s.context()) {
		must.OK(s.t, err)
		if report.Status == status {
			return
		}
	}
	s.t.Fatalf("the batch is over, and has not said %q", status)
}

// TestWorkerDiesInAModule (W16): a WebAssembly module runs, and its worker dies. The machine that runs the module is in
// the worker, so nothing of it is left. Nobody knows how far it came, and its workspace is free.
func TestWorkerDiesInAModule(t *testing.T) {
	cell(t, "W16", func(s *system) rules {
		s.basic()
		workspace, manifest := s.workspace(), s.module()
		start := func() *process {
			return s.serves("modules", "", "--tools", manifest, "--workspace", "dan="+workspace, "--allow", "endless")
		}
		var victim *process
		s.together(func() { victim = start() }, func() { s.worker("worker", "") })
		s.dispatcher("dispatcher", "")
		l := s.load(mix{quiet: true})
		call := func(id string, on bool) toolyard.Batch {
			return toolyard.Batch{Agent: "dan", ID: toolyard.BatchID(id), Workspace: "dan", Calls: []toolyard.Call{{
				ID: "call_" + id, Tool: "endless", Input: raw(map[string]any{"on": on})}}}
		}
		done := make(chan toolyard.Result, 1)
		go func() { done <- l.extra(call("lost", true)).Results[0] }()
		s.saysSo("lost", "it runs")
		victim.kill()
		s.faultOver()
		start()
		if r := <-done; r.Code != toolyard.OutcomeUnknown || r.Attempts != 1 {
			s.t.Errorf("attempt %d: %s %s", r.Attempts, r.Code, r.Error)
		}
		if r := l.extra(call("next", false)).Results[0]; r.IsError || !strings.Contains(r.Output, "it is over") {
			s.t.Errorf("the next one: %s %s", r.Code, r.Text())
		}
		l.finish()
		return rules{harmed: []*process{victim},
			codes: map[string][]toolyard.Code{"endless": {toolyard.OutcomeUnknown}}}
	})
}
