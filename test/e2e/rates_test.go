//go:build unix

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// quotaFile writes a file of quotas and returns the flags of a dispatcher that reads it.
func quotaFile(t *testing.T, lines string) []string {
	t.Helper()
	file := must.File(t, "quotas", lines)
	return []string{"--quota-file", file}
}

// twoDispatchers starts a dispatcher with a NATS server, and another one at that.
func twoDispatchers(t *testing.T, flags ...string) (url string, second *process) {
	t.Helper()
	url = dispatcher(t, flags...).says["nats"]
	return url, start(t, 3, "dispatcher",
		append([]string{"serve", "--nats", url, "--listen", "127.0.0.1:0"}, flags...)...)
}

// TestRatesOfProcesses: two dispatchers with a worker begin two calls of a tool in a second, of a batch in each. When
// the owner of one is killed, and when a worker is, the calls go on and every call has its result.
func TestRatesOfProcesses(t *testing.T) {
	flags := quotaFile(t, "tool read_file=calls-per-second:2,calls:2,wait-ms:600000\n")
	url, second := twoDispatchers(t, flags...)
	dir := workspace(t, map[string]string{"a.txt": "line 1\n"})
	lost := worker(t, url, dir)
	b := connect(t, url)
	var all []toolyard.BatchKey
	began := time.Now()
	for n := range 6 {
		sub := toolyard.Batch{ID: toolyard.BatchID(fmt.Sprint("b", n)), Agent: toolyard.Agent(fmt.Sprint("a", n))}
		for range 4 {
			sub.Calls = append(sub.Calls, toolyard.Call{Tool: "read_file",
				Input: input(map[string]any{"file_path": "a.txt"})})
		}
		sub.Normalize("")
		must.OK(t, b.Submit(t.Context(), sub))
		all = append(all, sub.Key())
	}
	over := func() (n int) {
		for _, k := range all {
			s, err := b.Fold(t.Context(), k)
			must.OK(t, err)
			for _, c := range s.Calls {
				if c.Result != nil {
					n++
				}
			}
		}
		return n
	}
	testenv.Until(t, "some calls are over", func() bool { return over() >= 6 })
	if n, most := over(), 2*(1+int(time.Since(began)/time.Second)); n > most {
		t.Errorf("%d calls are over after %s, at two a second", n, time.Since(began))
	}
	for _, p := range []*process{lost, second} {
		must.OK(t, p.cmd.Process.Kill())
	}
	worker(t, url, dir)
	testenv.Until(t, "all calls are over", func() bool { return over() == 24 })
	for _, k := range all {
		s, err := b.Fold(t.Context(), k)
		must.OK(t, err)
		for i, c := range s.Calls {
			if c.Result.IsError {
				t.Errorf("%s, call %d: %s", k, i, c.Result.Error)
			}
		}
	}
}

// TestExampleOfRates: a dispatcher takes the file of the examples, explain says what it means for calls, and one that
// has no turn within its wait is told so.
func TestExampleOfRates(t *testing.T) {
	t.Parallel()
	example := must.Read(t, "../../examples/quotas.txt")
	p := newPlace(t, map[string]string{"quotas.txt": string(example) + "tool glob=calls-per-second:1,wait-ms:100\n",
		"in.json": `{"calls": [{"id": "1", "tool": "web_fetch", "input": {"url": "https://api.example.com/v1"}},
			{"id": "2", "tool": "glob", "input": {"pattern": "*"}}, {"id": "3", "tool": "glob", "input": {"pattern": "*"}},
			{"id": "4", "tool": "read_file", "input": {"file_path": "in.json"}}]}`})
	text := p.ok(nil, "explain", "--quota-file", "quotas.txt", "in.json")
	for _, want := range []string{"rate of tool web_fetch: 2 calls in flight, 5 a second",
		"rate of dependency api.example.com:443: 60 a minute", "rate of tool glob: 1 a second"} {
		if !strings.Contains(text, want) {
			t.Errorf("explain does not say %q:\n%s", want, text)
		}
	}
	if strings.Count(text, "rate of") != 4 {
		t.Errorf("explain says:\n%s", text)
	}
	url := dispatcher(t, "--quota-file", filepath.Join(p.dir, "quotas.txt")).says["nats"]
	worker(t, url, p.dir)
	file := batchFile(t, toolyard.Batch{ID: "limited", Calls: []toolyard.Call{
		{Tool: "glob", Input: input(map[string]any{"pattern": "*"})},
		{Tool: "glob", Input: input(map[string]any{"pattern": "*"})}}})
	stdout, stderr, _ := run(t, nil, "dispatcher", "submit", "--nats", url, "--json", file)
	if strings.Count(stdout, `"rate_limited"`) < 1 || !strings.Contains(stdout, "tool glob: at most 1 a second") {
		t.Errorf("%s%s", stdout, stderr)
	}
}
