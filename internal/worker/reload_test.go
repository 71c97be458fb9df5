package worker

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// set is a toolset without tools that says when it runs.
type set struct {
	name    string
	running chan bool
}

func newSet(name string) *set { return &set{name, make(chan bool, 2)} }

func (s *set) Name() string               { return s.name }
func (s *set) Origin() registry.Origin    { return registry.MCP }
func (s *set) Slots() int                 { return 1 }
func (s *set) Settled() <-chan struct{}   { return nil }
func (s *set) Tools() []tool.Tool         { return nil }
func (s *set) Remarks() []registry.Remark { return nil }
func (s *set) Changed() <-chan struct{}   { return nil }
func (s *set) Run(ctx context.Context) {
	s.running <- true
	<-ctx.Done()
	s.running <- false
}

// TestReload: other rules decide about the next call and not about the one that runs, a toolset that stays goes on, one
// that is gone ends, and a new one begins.
func TestReload(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	b := newBench(t, toolyard.ReadOnly, func(context.Context, tool.Env) (string, error) {
		close(began)
		<-goOn
		return "done", nil
	})
	b.w.asked = b.w.cfg.Classes // or it would take UNSAFE calls of the toolsets
	stays, goes, comes := newSet("stays"), newSet("goes"), newSet("comes")
	cfg := b.w.cfg
	cfg.Toolsets = []Toolset{stays, goes}
	must.OK(t, b.w.Reload(cfg))
	if !<-stays.running || !<-goes.running {
		t.Fatal("the toolsets do not run")
	}
	b.hand(look)
	<-began
	kept := b.w.pipe.Load().Cache
	deny, err := policy.ParseRules([]string{"do"})
	must.OK(t, err)
	cfg.Rules, cfg.Toolsets = policy.Rules{Deny: deny}, []Toolset{stays, comes}
	must.OK(t, b.w.Reload(cfg))
	if b.w.pipe.Load().Cache == kept {
		t.Error("what is kept was made under the former rules")
	}
	if !<-comes.running || <-goes.running {
		t.Error("the new toolset does not run, or the one that is gone does")
	}
	select {
	case <-stays.running:
		t.Error("a toolset that stays was ended")
	default:
	}
	if got := b.w.toolsets.list(); !slices.Equal(got, cfg.Toolsets) {
		t.Errorf("the toolsets are %v", got)
	}
	close(goOn)
	if f, ok := b.end().(events.Finished); !ok || f.Result.IsError {
		t.Errorf("the call that ran ended with %+v", f)
	}
	b.key.ID = "next"
	b.hand(look)
	if f, ok := b.end().(events.Finished); !ok || f.Result.Code != toolyard.PermissionDenied {
		t.Errorf("the next call ended with %+v", f)
	}
}

// TestReloadRefuses what does not hold together, and all stays as it was.
func TestReloadRefuses(t *testing.T) {
	b := newBench(t, toolyard.ReadOnly, func(context.Context, tool.Env) (string, error) { return "done", nil })
	deny, err := policy.ParseRules([]string{"do"})
	must.OK(t, err)
	cfg := b.w.cfg
	cfg.Rules = policy.Rules{Deny: deny}
	for name, change := range map[string]func(*Config){
		"two tools": func(c *Config) { c.Declared = c.Tools },
		"credential": func(c *Config) {
			c.Credentials = map[string]map[string]string{"missing": {"A": "b"}}
		},
		"class UNSAFE": func(c *Config) { c.Toolsets = []Toolset{newSet("s")} },
	} {
		bad := cfg
		change(&bad)
		if err := b.w.Reload(bad); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.hand(look)
	if f, ok := b.end().(events.Finished); !ok || f.Result.IsError {
		t.Errorf("the call ended with %+v", f)
	}
}

// TestReloadKeepsCountOfWhatWasLeftBehind: a tool that returns after a reload counts no longer, or the worker would
// refuse all calls in the end.
func TestReloadKeepsCountOfWhatWasLeftBehind(t *testing.T) {
	inYard(t, 1, func(y *yard) {
		goOn := make(chan struct{})
		y.run = func(context.Context, string) error { <-goOn; return nil }
		y.queue("read")
		y.Eventually("the tool has begun", func() bool { return y.ran.Load() == 1 })
		y.w.mu.Lock()
		for _, r := range y.w.running {
			r.cancel(pipeline.ErrCanceled)
		}
		y.w.mu.Unlock()
		y.Eventually("the tool is left behind", func() bool { return y.w.pipe.Load().Leaked() == 1 })
		must.OK(t, y.w.Reload(y.w.cfg))
		if n := y.w.pipe.Load().Leaked(); n != 1 {
			t.Errorf("%d were left behind after the reload", n)
		}
		close(goOn)
		time.Sleep(time.Second)
		if n := y.w.pipe.Load().Leaked(); n != 0 {
			t.Errorf("%d are left behind after all have returned", n)
		}
	})
}

// TestReloadBesideCalls: calls read the cache of schemas meanwhile. The race detector judges.
func TestReloadBesideCalls(t *testing.T) {
	b := newBench(t, toolyard.ReadOnly, func(context.Context, tool.Env) (string, error) { return "done", nil })
	stop, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			select {
			case <-stop:
				return
			default:
			}
			res := b.w.pipe.Load().DryRun(t.Context(), pipeline.Job{Call: toolyard.Call{ID: "c", Tool: "do",
				Input: []byte("{}")}, Judgement: look})
			if res.IsError {
				t.Errorf("the call would end with %+v", res)
				return
			}
		}
	}()
	for range 50 {
		if err := b.w.Reload(b.w.cfg); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	<-over
}
