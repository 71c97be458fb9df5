package dispatcher

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/ticket"
	"github.com/toolyard/toolyard/tool"
)

// files are tools that declare the lock of one file.
func files() (out []registry.Entry) {
	for name, class := range map[string]toolyard.Class{"view": toolyard.ReadOnly, "edit": toolyard.WriteExclusive,
		"run": toolyard.Unsafe} {
		out = append(out, registry.Entry{Origin: registry.Toolset, Pool: toolyard.DefaultPool,
			Declaration: tool.Declaration{Name: name, Description: "A tool of a test.",
				Class: tool.ClassRule{Static: class}, ReadOnly: class.Safe(), Locks: []string{"file:{path}"},
				InputSchema: json.RawMessage(`{"type": "object", "required": ["path"], "properties": {"path": {}}}`)}})
	}
	return out
}

func withFiles(cfg *Config) { cfg.Base = append(cfg.Base, files()...) }

// fileCalls are calls of tools on files, each written "tool path".
func fileCalls(texts ...string) (out []toolyard.Call) {
	for _, text := range texts {
		name, path, _ := strings.Cut(text, " ")
		input, err := json.Marshal(map[string]string{"path": path})
		if err != nil {
			panic(err)
		}
		c := toolyard.Call{Tool: name, Input: input}
		if path == "" {
			c.Input = nil
		}
		out = append(out, c)
	}
	return out
}

func named(calls ...string) toolyard.Batch {
	return toolyard.Batch{Calls: fileCalls(calls...), Options: toolyard.Options{NamedLocks: true}}
}

// TestGroupsWithNames: a group has names when its batch asks for that and all of its calls that need the workspace have
// some; otherwise it has the whole workspace.
func TestGroupsWithNames(t *testing.T) {
	p := planner()
	many := make([]string, 0, ticket.MaxLocks+1)
	for i := range cap(many) {
		many = append(many, "view "+strings.Repeat("x", i+1))
	}
	for name, c := range map[string]struct {
		sub  toolyard.Batch
		want string
	}{
		"edits":           {named("edit a", "edit ./b", "edit A"), "file:a | file:b | file:a"},
		"reads and edits": {named("view b", "view a", "edit a"), "file:a (shared), file:b (shared) | file:a"},
		"one read is of all": {named("view a", "read"),
			""},
		"an unsafe call":    {named("run a", "edit a"), " | file:a"},
		"an uncertain path": {named("edit /a", "edit ../a"), " | "},
		"a bad call":        {named("view a", "view"), "file:a (shared) | "},
		"too many":          {named(many...), ""},
		"not asked for":     {toolyard.Batch{Calls: fileCalls("edit a")}, ""},
		"with snapshots": {toolyard.Batch{Calls: fileCalls("edit a"),
			Options: toolyard.Options{NamedLocks: true, Snapshot: true}}, ""},
		"an open batch": {toolyard.Batch{Calls: fileCalls("view a", "edit a"), Open: true,
			Options: toolyard.Options{NamedLocks: true}}, " | file:a"},
	} {
		inYard(t, func(y *yard) {
			reg, err := registry.Registry{}.Register(append(y.entries(), files()...)...)
			must.OK(t, err)
			c.sub.Normalize("b")
			plan, err := p.Plan(reg, &c.sub, nil)
			must.OK(t, err)
			var got []string
			for _, g := range plan.Finish("d", 1, time.Time{}).Groups {
				got = append(got, registry.LockText(g.Locks))
			}
			if text := strings.Join(got, " | "); text != c.want {
				t.Errorf("%s: the groups have %q, want %q", name, text, c.want)
			}
		})
	}
}

// TestEditsOfTwoFilesRunBesideEachOther: two batches hold the same workspace while each has its own file. A third one
// of the same file waits, and so does one that needs the whole.
func TestEditsOfTwoFilesRunBesideEachOther(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", withFiles)
		a, b := y.submitBatch(named("edit a")), y.submitBatch(named("edit b"))
		for _, k := range []toolyard.BatchKey{a, b} {
			y.Eventually("both run", func() bool { return len(y.fold(k).Started) == 1 })
		}
		same := y.submitBatch(named("edit ./A"))
		y.Eventually("a third one waits", func() bool { n, _ := y.queue(); return n == 3 })
		whole := y.submitBatch(toolyard.Batch{Calls: fileCalls("view a")})
		y.Eventually("a fourth one waits", func() bool { n, _ := y.queue(); return n == 4 })
		time.Sleep(20 * time.Second) // of the bubble: the sweeper has looked at all tickets
		for _, k := range []toolyard.BatchKey{same, whole} {
			if s := y.fold(k); s.Plan == nil || len(s.Started) > 0 {
				y.Errorf("batch %s has begun: %v", k.ID, s.Started)
			}
		}
		first, second := y.take(toolyard.WriteExclusive), y.take(toolyard.WriteExclusive)
		if got := registry.LockText(first.Locks) + " " + registry.LockText(second.Locks); got != "file:a file:b" &&
			got != "file:b file:a" {
			y.Errorf("the calls hold %s", got)
		}
		y.run(first)
		y.run(second)
		y.work()
		for _, k := range []toolyard.BatchKey{a, b, same, whole} {
			if got := y.codes(k); got != "ok" {
				y.Errorf("batch %s ends as %s", k.ID, got)
			}
		}
		y.Eventually("the workspace is free", func() bool { n, _ := y.queue(); return n == 0 })
	})
}

// TestALockOutlivesItsDispatcher: while a call runs with a file, its dispatcher stops, and the next one takes over. The
// ticket stays with its number, and nobody else gets the file.
func TestALockOutlivesItsDispatcher(t *testing.T) {
	inYard(t, func(y *yard) {
		d := y.dispatcher("d", withFiles)
		k := y.submitBatch(named("edit a", "edit a"))
		running := y.take(toolyard.WriteExclusive)
		seq := y.claim(running, "w")
		waits := y.submitBatch(named("edit a"))
		y.Eventually("another one waits", func() bool { n, _ := y.queue(); return n == 2 })
		d.End()
		end, err := y.b.OnHolds("w", func(toolyard.BatchKey, int) bool { return true },
			func(toolyard.BatchKey, int) broker.OutputTail { return broker.OutputTail{} },
			func(err error) { y.Error(err) })
		must.OK(y.T, err)
		y.dispatcher("next", withFiles)
		var s batch.State
		y.Eventually("another owner", func() bool { s = y.fold(k); return s.Takeovers == 1 })
		time.Sleep(20 * time.Second)
		q, err := y.b.Tickets(y.Context(), toolyard.DefaultWorkspace)
		if err != nil || len(q.Tickets) != 2 || q.Tickets[0].N != running.Ticket || q.Tickets[0].Batch != k.ID {
			y.Errorf("the queue is %+v, %v; the call has the token %d", q.Tickets, err, running.Ticket)
		}
		if now := y.fold(waits); len(now.Started) > 0 {
			y.Error("another batch has begun with the same file")
		}
		must.OK(y.T, y.finish(running, seq))
		if err := end(); err != nil {
			y.Error(err)
		}
		y.work()
		if got := y.codes(k) + " " + y.codes(waits); got != "ok ok ok" {
			y.Errorf("the results are %s", got)
		}
	})
}
