package dispatcher

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/catalog"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// toolsOf are n tools.
func toolsOf(n int) (entries []registry.Entry) {
	for i := range n {
		entries = append(entries, registry.Entry{Origin: registry.Toolset, Pool: toolyard.DefaultPool,
			Declaration: tool.Declaration{Name: fmt.Sprintf("tool_%d", i), Description: "A tool of a test.",
				Class:       tool.ClassRule{Static: toolyard.ReadOnly},
				InputSchema: []byte(`{"type": "object", "properties": {"text": {"type": "string"}}}`)}})
	}
	return entries
}

// offered is a registry of n tools.
func offered(t testing.TB, n int) registry.Registry {
	t.Helper()
	reg, err := registry.Registry{}.Register(toolsOf(n)...)
	must.OK(t, err)
	return reg
}

func surfaces(views registry.Views) *Dispatcher {
	return New(answers{}, Config{ID: "d", Log: slog.New(slog.DiscardHandler),
		Planner: Planner{Pipeline: &pipeline.Pipeline{}, Views: views}})
}

// TestASurfaceIsAssembledOnce for each registry, view, rules and planner; and it is what the planner would assemble.
func TestASurfaceIsAssembledOnce(t *testing.T) {
	views, err := registry.ParseViews([]string{"ann=tool_1", "bob*=tool_2,tool_3"})
	must.OK(t, err)
	d := surfaces(views)
	reg := offered(t, 5)
	built := 0
	for _, step := range []struct {
		what    string
		agent   toolyard.Agent
		options toolyard.Options
		reg     registry.Registry
		tools   int
		again   bool
		change  func()
	}{
		{what: "the first", agent: "ada", reg: reg, tools: 5},
		{what: "another agent that sees everything", agent: "carl", reg: reg, tools: 5, again: true},
		{what: "a view", agent: "ann", reg: reg, tools: 1},
		{what: "an agent of another view", agent: "bob-1", reg: reg, tools: 2},
		{what: "another agent of the same view", agent: "bob-2", reg: reg, tools: 2, again: true},
		{what: "rules of the batch", agent: "ada", options: toolyard.Options{Deny: []string{"tool_4"}}, reg: reg,
			tools: 4},
		{what: "the same as an ask rule", agent: "ada", options: toolyard.Options{Ask: []string{"tool_4"}}, reg: reg,
			tools: 5},
		{what: "blocked by the provider", agent: "ada", reg: reg.Block("tool_x"), tools: 5},
		{what: "another registry", agent: "ada", reg: offered(t, 6), tools: 6},
		{what: "reloaded rules", agent: "ada", reg: reg, tools: 5, change: func() {
			p := *d.planner.Load()
			d.planner.Store(&p)
			built = 0 // nobody asks for what followed from the former ones
		}},
	} {
		if step.change != nil {
			step.change()
		}
		s, err := d.surface(d.planner.Load(), step.reg, step.agent, step.options)
		if err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if !step.again {
			built++
		}
		if len(s.Tools) != step.tools || len(d.built) != built {
			t.Errorf("%s: %d tools, and %d surfaces are known, want %d and %d", step.what, len(s.Tools), len(d.built),
				step.tools, built)
		}
		want, err := d.planner.Load().Surface(step.reg, step.agent, step.options)
		if err != nil || s.Hash != want.Hash {
			t.Errorf("%s: it is %.8s, want %.8s, %v", step.what, s.Hash, want.Hash, err)
		}
	}
	wrong := toolyard.Options{Deny: []string{"no_such_tool"}}
	for range 2 {
		if _, err := d.surface(d.planner.Load(), reg, "ada", wrong); err == nil || len(d.built) != built {
			t.Errorf("a rule that names no tool: %v, and %d surfaces are known", err, len(d.built))
		}
	}
	if _, err := d.surface(d.planner.Load(), registry.Registry{}, "ada", toolyard.Options{}); err != nil ||
		len(d.built) != built {
		t.Errorf("no tools: %v, and %d surfaces are known", err, len(d.built))
	}
}

// TestSurfacesOfFormerToolsAreForgotten: when what workers offer has changed, or the rules, nobody asks any more for
// what was assembled before. Each has all of the tools that there were.
func TestSurfacesOfFormerToolsAreForgotten(t *testing.T) {
	d := surfaces(registry.Views{})
	for n := range 100 {
		d.workers.mu.Lock()
		d.workers.catalog.Put("w", catalog.Worker{Pool: toolyard.DefaultPool, Toolset: fmt.Sprint(n)},
			toolsOf(n%5+1), nil)
		d.workers.catalogChanged()
		d.workers.mu.Unlock()
		for range 2 {
			if s, err := d.Surface("ada", "w", toolyard.Options{}); err != nil || len(s.Tools) != n%5+1 {
				t.Fatalf("%d tools, %v", len(s.Tools), err)
			}
		}
	}
	if n := len(d.built); n != 1 {
		t.Errorf("%d surfaces are known of one worker's tools", n)
	}
	for range 100 {
		d.Reload(*d.planner.Load())
		if _, err := d.Surface("ada", "w", toolyard.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(d.built); n != 1 {
		t.Errorf("%d surfaces are known of one set of rules", n)
	}
}

// TestASurfaceLastsAsLongAsItsBatch: what a batch sees can be read until its lifetime is over, also where the
// dispatcher had stored it before, for another batch.
func TestASurfaceLastsAsLongAsItsBatch(t *testing.T) {
	inYard(t, func(y *yard) {
		y.still()
		d := New(y.b, Config{ID: "d", Log: y.Log(), Planner: planner()})
		surface, err := d.Surface("a", "w", toolyard.Options{})
		must.OK(y.T, err)
		lifetime := y.b.Settings().Lifetime
		for _, later := range []time.Duration{0, lifetime / 100, lifetime / 10, lifetime / 10} {
			time.Sleep(later) // a batch is planned
			must.OK(y.T, d.keepSurface(y.Context(), &surface))
		}
		time.Sleep(lifetime)
		if _, err := y.b.Surface(y.Context(), surface.Hash); err != nil {
			y.Errorf("at the end of the last batch: %v", err)
		}
	})
}

// BenchmarkPlan plans a batch of ten calls where 10, or 1,000 tools are offered.
func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{10, 1_000} {
		b.Run(fmt.Sprintf("tools=%d", n), func(b *testing.B) {
			d, reg := surfaces(nil), offered(b, n)
			var sub toolyard.Batch
			for i := range 10 {
				sub.Calls = append(sub.Calls, toolyard.Call{Tool: fmt.Sprintf("tool_%d", i*n/10),
					Input: []byte(`{"text": "x"}`)})
			}
			sub.Normalize("b")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.planOn(reg, &sub, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
