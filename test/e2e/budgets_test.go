//go:build unix

package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestBudgetsOfProcesses: of two dispatchers one is killed with calls in flight, and the worker with it. The other
// settles what was reserved: the budget is used to its end and not beyond, which the session shows.
func TestBudgetsOfProcesses(t *testing.T) {
	flags := quotaFile(t, "budget team web-*=calls:8\ntool read_file=calls-per-second:2\n")
	url, second := twoDispatchers(t, flags...)
	dir := workspace(t, map[string]string{"a.txt": "line 1\n"})
	lost := worker(t, url, dir)
	b := connect(t, url)
	read := toolyard.Call{Tool: "read_file", Input: input(map[string]any{"file_path": "a.txt"})}
	var all []toolyard.BatchKey
	for _, id := range []toolyard.BatchID{"b1", "b2", "b3", "b4"} {
		sub := toolyard.Batch{ID: id, Agent: "web-1", Session: "s", Calls: []toolyard.Call{read, read, read}}
		sub.Normalize("")
		must.OK(t, b.Submit(t.Context(), sub))
		all = append(all, sub.Key())
	}
	codes := func() (out []toolyard.Code) {
		for _, k := range all {
			s, err := b.Fold(t.Context(), k)
			must.OK(t, err)
			for _, c := range s.Calls {
				if c.Result != nil {
					out = append(out, c.Result.Code)
				}
			}
		}
		return out
	}
	testenv.Until(t, "some calls are over", func() bool { return len(codes()) >= 5 })
	for _, p := range []*process{lost, second} {
		must.OK(t, p.cmd.Process.Kill())
	}
	worker(t, url, dir)
	testenv.Until(t, "all calls are over", func() bool { return len(codes()) == 12 })
	ran, past := 0, 0
	for _, c := range codes() {
		switch c {
		case toolyard.OK:
			ran++
		case toolyard.BudgetExceeded:
			past++
		}
	}
	// A read whose worker died may have run twice, and each run counts.
	if ran+past != 12 || ran > 8 || ran < 6 {
		t.Errorf("the results are %q", codes())
	}
	testenv.Until(t, "all is settled", func() bool {
		stdout, stderr, status := run(t, nil, "dispatcher", "session", "--nats", url, "--agent", "web-1", "s")
		if status != 0 {
			t.Fatal(stderr)
		}
		return strings.Contains(stdout, "budget of team web-*: 8 of 8 calls used\n")
	})
}

// TestExampleOfBudgets: a dispatcher takes the file of the examples, and explain says what it means for a batch.
func TestExampleOfBudgets(t *testing.T) {
	t.Parallel()
	example := must.Read(t, "../../examples/budgets.txt")
	p := newPlace(t, map[string]string{"budgets.txt": "budget agent ci-9=calls:1,per-hours:2\n" + string(example),
		"in.json": `{"agent": "ci-9", "session": "s", "calls": [{"id": "1", "tool": "glob", "input": {"pattern": "*"}},
			{"id": "2", "tool": "glob", "input": {"pattern": "*"}}]}`})
	text := p.ok(nil, "explain", "--quota-file", "budgets.txt", "in.json")
	for _, want := range []string{"budget of this batch: 200 calls\n", "budget of session s of ci-9: 10000000 bytes\n",
		"budget of agent ci-9: 1 calls, in 2 hours\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("explain does not say %q:\n%s", want, text)
		}
	}
	url := dispatcher(t, "--quota-file", filepath.Join(p.dir, "budgets.txt")).says["nats"]
	worker(t, url, p.dir)
	stdout, stderr, _ := run(t, nil, "dispatcher", "submit", "--nats", url, "--json", filepath.Join(p.dir, "in.json"))
	if strings.Count(stdout, `"budget_exceeded"`) < 1 ||
		!strings.Contains(stdout, "The budget of agent ci-9 has no calls left for the call.") {
		t.Errorf("%s%s", stdout, stderr)
	}
	stdout, stderr, _ = run(t, nil, "dispatcher", "session", "--nats", url, "--agent", "ci-9", "s")
	if !strings.Contains(stdout, "budget of agent ci-9: 1 of 1 calls used, all of it again at") {
		t.Errorf("%s%s", stdout, stderr)
	}
}
