package worker

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
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
	if err := b.w.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	if !<-stays.running || !<-goes.running {
		t.Fatal("the toolsets do not run")
	}
	b.hand(look)
	<-began
	kept := b.w.pipe.Load().Cache
	deny, err := policy.ParseRules([]string{"do"})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Rules, cfg.Toolsets = policy.Rules{Deny: deny}, []Toolset{stays, comes}
	if err := b.w.Reload(cfg); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
