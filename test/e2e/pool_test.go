//go:build unix

package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// mixed makes a batch of reads and writes in no order, with a mistake here and there.
func mixed(r *rand.Rand, n int) toolyard.Batch {
	var b toolyard.Batch
	for i := range n {
		c := toolyard.Call{ID: fmt.Sprintf("toolu_%03d", i)}
		switch k := r.IntN(20); {
		case k < 9:
			c.Tool, c.Input = "read_file", input(map[string]any{"file_path": "a.txt"})
		case k < 12:
			c.Tool, c.Input = "grep", input(map[string]any{"pattern": "line"})
		case k < 14:
			c.Tool, c.Input = "glob", input(map[string]any{"pattern": "**/*.txt"})
		case k < 18:
			c.Tool, c.Input = "write_file", input(map[string]any{"file_path": fmt.Sprintf("out/%d.txt", r.IntN(5)),
				"content": fmt.Sprintf("call %d\n", i)})
		case k == 18:
			c.Tool, c.Input = "no_such_tool", input(map[string]any{})
		default:
			c.Tool, c.Input = "read_file", input(map[string]any{"file_path": 5})
		}
		b.Calls = append(b.Calls, c)
	}
	return b
}

// TestManyProcesses runs a batch of 200 mixed calls, beside smaller ones of other agents in the same workspace, over
// two dispatchers and three workers. It reads the log and checks what must always hold.
func TestManyProcesses(t *testing.T) {
	first := dispatcher(t)
	url := first.says["nats"]
	start(t, 3, "dispatcher", "serve", "--nats", url, "--listen", "127.0.0.1:0")
	dir := workspace(t, map[string]string{"a.txt": "line 1\nline 2\n", "sub/b.txt": "line 3\n"})
	for range 3 {
		worker(t, url, dir, "--permission-mode", "accept_edits", "--read-slots", "4")
	}
	batches := map[string]toolyard.Batch{}
	r := rand.New(rand.NewPCG(1, 2))
	for agent, n := range map[string]int{"big": 200, "second": 40, "third": 40, "fourth": 30} {
		b := mixed(r, n)
		b.Agent, b.ID = toolyard.Agent(agent), toolyard.BatchID("of "+agent)
		batches[agent] = b
	}
	var wg sync.WaitGroup
	views := map[string]toolyard.BatchView{}
	var mu sync.Mutex
	for agent, b := range batches {
		file := batchFile(t, b)
		wg.Go(func() {
			stdout, stderr, status := run(t, nil, "dispatcher", "submit", "--nats", url, "--json", file)
			if status != 0 {
				t.Errorf("agent %s: exit status %d: %s", agent, status, stderr)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			views[agent] = viewOf(t, stdout)
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	workers := map[string]int{}
	for agent, b := range batches {
		checkResults(t, b, views[agent])
		for _, res := range views[agent].Results {
			if res.Worker != "" {
				workers[res.Worker]++
			}
		}
	}
	if len(workers) != 3 {
		t.Errorf("the load was not shared: calls by worker %v", workers)
	}
	b := connect(t, url)
	var spans []span
	owners := map[string]bool{}
	for agent := range batches {
		log, err := b.Log(t.Context(), toolyard.BatchKey{Agent: toolyard.Agent(agent), ID: toolyard.BatchID("of " +
			agent)})
		must.OK(t, err)
		spans = append(spans, spansOf(t, agent, log, owners)...)
	}
	if len(owners) != 2 {
		t.Errorf("the batches had the owners %v, want both dispatchers", slices.Collect(maps.Keys(owners)))
	}
	checkExclusive(t, spans)
}

// checkResults checks that each call has its result, in its place, with the class and code that it must have.
func checkResults(t *testing.T, b toolyard.Batch, v toolyard.BatchView) {
	t.Helper()
	if v.Status != toolyard.StatusCompleted || len(v.Results) != len(b.Calls) {
		t.Fatalf("agent %s: status %s with %d results of %d", b.Agent, v.Status, len(v.Results), len(b.Calls))
	}
	var flat []int
	for _, g := range v.Groups {
		flat = append(flat, g...)
	}
	for i, res := range v.Results {
		c := b.Calls[i]
		if flat[i] != i {
			t.Errorf("agent %s: the groups %v are not in emission order", b.Agent, v.Groups)
		}
		if res.Index != i || res.CallID != c.ID {
			t.Errorf("agent %s: in place %d is the result of call %d (%s)", b.Agent, i, res.Index, res.CallID)
		}
		want := toolyard.OK
		switch {
		case c.Tool == "no_such_tool":
			want = toolyard.UnknownTool
		case strings.Contains(string(c.Input), ":5"):
			want = toolyard.SchemaValidationFailed
		}
		if res.Code != want || res.IsError != (want != "") {
			t.Errorf("agent %s: call %d (%s %s) ended as %q: %s", b.Agent, i, c.Tool, c.Input, res.Code, res.Error)
		}
		if want == "" && len(res.Phases) != len(toolyard.Phases) {
			t.Errorf("agent %s: call %d has the facts %v", b.Agent, i, res.Phases)
		}
	}
}

// span is the time of a group in the event stream: from its start to its last result, in stream sequences, which are
// the same clock for all batches.
type span struct {
	agent       string
	group       int
	from, to    uint64
	ticket      uint64
	needs, safe bool
}

// spansOf folds a log in the order of the stream and checks the barrier: a group starts after all results before it,
// and every event of its calls comes after that.
func spansOf(t *testing.T, agent string, log []broker.Logged, owners map[string]bool) []span {
	t.Helper()
	var plan *events.Planned
	groupOf := map[int]int{}
	spans := map[int]*span{}
	finished := map[int]int{}
	for _, l := range log {
		switch body := l.Body.(type) {
		case events.Planned:
			plan = &body
			owners[body.Owner] = true
			for g, group := range body.Groups {
				for _, i := range group.Calls {
					groupOf[i] = g
				}
			}
			for _, r := range body.Results {
				finished[r.Index]++
			}
		case events.Claimed, events.Finished:
			for _, i := range l.Calls() {
				s := spans[groupOf[i]]
				if s == nil {
					t.Errorf("agent %s: call %d has an event before its group %d started", agent, i, groupOf[i])
					continue
				}
				s.to = max(s.to, l.Seq)
				if _, ok := body.(events.Finished); ok {
					finished[i]++
				}
			}
		}
		if start := events.StartOf(l.Body); start != nil {
			g := plan.Groups[start.Group]
			spans[start.Group] = &span{agent: agent, group: start.Group, from: l.Seq, ticket: start.Ticket,
				needs: g.Ticket, safe: g.Safe}
			for i := range plan.Calls {
				if groupOf[i] < start.Group && finished[i] == 0 {
					t.Errorf("agent %s: group %d started before call %d of group %d had its result", agent, start.Group,
						i, groupOf[i])
				}
			}
		}
	}
	for i := range plan.Calls {
		if finished[i] != 1 {
			t.Errorf("agent %s: call %d has %d results in the log", agent, i, finished[i])
		}
	}
	var out []span
	for _, s := range spans {
		out = append(out, *s)
	}
	return out
}

// checkExclusive checks that in the workspace an exclusive group overlaps no other, of any batch, and that tickets
// grow.
func checkExclusive(t *testing.T, spans []span) {
	t.Helper()
	spans = slices.DeleteFunc(spans, func(s span) bool { return !s.needs })
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	seen := map[uint64]string{}
	together := 0
	for i, a := range spans {
		if a.ticket == 0 || seen[a.ticket] != "" {
			t.Errorf("group %d of %s has ticket %d, which %q had", a.group, a.agent, a.ticket, seen[a.ticket])
		}
		seen[a.ticket] = a.agent
		for _, b := range spans[i+1:] {
			if b.from >= a.to {
				break
			}
			together++
			if !a.safe || !b.safe {
				t.Errorf("group %d of %s (%d to %d) overlaps group %d of %s (%d to %d)", a.group, a.agent, a.from, a.to,
					b.group, b.agent, b.from, b.to)
			}
		}
	}
	t.Logf("%d groups held the workspace, %d pairs of safe ones together", len(spans), together)
}

func TestNoWorker(t *testing.T) {
	d := dispatcher(t, "--worker-wait", "700ms")
	file := batchFile(t, toolyard.Batch{Calls: []toolyard.Call{
		{Tool: "read_file", Input: input(map[string]any{"file_path": "a"})},
		{Tool: "unknown", Input: input(map[string]any{})},
	}})
	began := time.Now()
	stdout, stderr, status := run(t, nil, "dispatcher", "submit", "--nats", d.says["nats"], "--json", file)
	if status != 0 {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	v := viewOf(t, stdout)
	if len(v.Results) != 2 || v.Results[0].Code != toolyard.DependencyUnavailable || !v.Results[0].Retryable ||
		v.Results[1].Code != toolyard.UnknownTool {
		t.Errorf("results %+v", v.Results)
	}
	if waited := time.Since(began); waited < 700*time.Millisecond {
		t.Errorf("it ended after %s, before the wait was over", waited)
	}
}

// TestSubmittingAgainShowsTheSameResults also tells what happens to an id with other content.
func TestSubmittingAgainShowsTheSameResults(t *testing.T) {
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	d := dispatcher(t, "--with-worker", "--workspace", "default="+dir, "--permission-mode", "accept_edits")
	write := func(text string) string {
		return batchFile(t, toolyard.Batch{ID: "again", Calls: []toolyard.Call{
			{Tool: "edit_file", Input: input(map[string]any{"file_path": "a.txt", "old_string": "one",
				"new_string": text})},
		}})
	}
	var first string
	for n := range 3 {
		stdout, stderr, status := run(t, nil, "dispatcher", "submit", "--nats", d.says["nats"], "--json", write("two"))
		if status != 0 {
			t.Fatalf("time %d: exit status %d: %s", n, status, stderr)
		}
		if first == "" {
			first = stdout
		}
		if stdout != first {
			t.Errorf("time %d: the answer changed from\n%s\nto\n%s", n, first, stdout)
		}
	}
	if v := viewOf(t, first); v.Results[0].IsError {
		t.Errorf("the edit failed: %s", v.Results[0].Error)
	}
	_, stderr, status := run(t, nil, "dispatcher", "submit", "--nats", d.says["nats"], write("three"))
	if status != 2 || !strings.Contains(stderr, "other content") {
		t.Errorf("other content under the same id: status %d, %q", status, stderr)
	}
}

// TestTakeover kills dispatchers with batches under way, until only one is left, which finishes them all.
func TestTakeover(t *testing.T) {
	url := dispatcher(t).says["nats"] // the one that lives
	var others []*process
	for range 2 {
		others = append(others, start(t, 3, "dispatcher", "serve", "--nats", url, "--listen", "127.0.0.1:0"))
	}
	b := connect(t, url)
	var keys []toolyard.BatchKey
	for n := range 12 { // nobody can run these yet, so that they are under way when their owners die
		sub := toolyard.Batch{Calls: []toolyard.Call{
			{Tool: "read_file", Input: input(map[string]any{"file_path": "a.txt"})},
			{Tool: "write_file", Input: input(map[string]any{"file_path": fmt.Sprintf("%d.txt", n), "content": "x"})},
			{Tool: "read_file", Input: input(map[string]any{"file_path": fmt.Sprintf("%d.txt", n)})},
		}}
		sub.Normalize(toolyard.BatchID(fmt.Sprint("b", n)))
		must.OK(t, b.Submit(t.Context(), sub))
		keys = append(keys, sub.Key())
	}
	fold := func(k toolyard.BatchKey) batch.State {
		s, err := b.Fold(t.Context(), k)
		must.OK(t, err)
		return s
	}
	testenv.Until(t, "some batches are owned by dispatchers that will die", func() bool {
		owners := map[string]int{}
		for _, k := range keys {
			owners[fold(k).Owner]++
		}
		return len(owners) == 3 && owners[""] == 0
	})
	for _, p := range others {
		p.stop(syscall.SIGKILL)
	}
	worker(t, url, workspace(t, map[string]string{"a.txt": "line\n"}), "--permission-mode", "accept_edits")
	took := 0
	for _, k := range keys {
		testenv.Until(t, fmt.Sprintf("batch %s is complete", k), func() bool { return fold(k).Completed })
		s := fold(k)
		took += s.Takeovers
		for i, c := range s.Calls {
			if c.Result.IsError {
				t.Errorf("batch %s: call %d ended as %s: %s", k, i, c.Result.Code, c.Result.Error)
			}
		}
	}
	if took == 0 {
		t.Error("no batch was taken over, so nothing was tested")
	}
}
