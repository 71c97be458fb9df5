package follow

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// toolStore has the toolsets of workers that a test makes up.
type toolStore struct {
	ToolStore
	stored map[string][]byte
}

func (s toolStore) Surface(_ context.Context, hash string) ([]byte, error) {
	return s.stored[hash], nil
}

// put stores a toolset, and returns its hash.
func (s toolStore) put(t *testing.T, entries ...registry.Entry) (hash string) {
	t.Helper()
	reg, err := registry.Registry{}.Register(entries...)
	must.OK(t, err)
	set, err := registry.Assemble(reg, nil)
	must.OK(t, err)
	if s.stored[set.Hash], err = set.Encode(); err != nil {
		t.Fatal(err)
	}
	return set.Hash
}

// TestAPoolWithTooManyToolsIsNotAlone has two pools offer more tools than may be listed together, and built-in tools
// beside them.
func TestAPoolWithTooManyToolsIsNotAlone(t *testing.T) {
	declared := func(name string) registry.Entry {
		return registry.Entry{Origin: registry.Toolset, Declaration: tool.Declaration{Name: name, Description: "d",
			InputSchema: json.RawMessage(`{"type":"object"}`), Class: tool.ClassRule{Static: toolyard.ReadOnly}}}
	}
	store := toolStore{stored: map[string][]byte{}}
	o := &offered{Offers: Offers{Store: store, Base: []registry.Entry{declared("builtin")},
		Log: slog.New(slog.DiscardHandler)}, toolsets: map[string]registry.Surface{}, live: map[string]broker.Worker{}}
	for pool, n := range map[toolyard.Pool]int{"a-greedy": registry.MaxTools, "modest": 10} {
		var entries []registry.Entry
		for i := range n {
			entries = append(entries, declared(fmt.Sprintf("%s-%05d", pool, i)))
		}
		o.live[string(pool)] = broker.Worker{ID: string(pool), Pool: pool, Toolset: store.put(t, entries...)}
	}
	s, err := o.surface(t.Context())
	must.OK(t, err)
	of := map[toolyard.Pool]int{}
	for _, e := range s.Tools {
		of[e.Pool]++
	}
	if of["modest"] != 10 || of[toolyard.DefaultPool] != 1 || of["a-greedy"] != registry.MaxTools-11 {
		t.Errorf("pools have %v tools in the list", of)
	}
}

// TestToolsetsThatNobodyHasAreForgotten: a worker whose tools change again and again, as those of an MCP server may, is
// one toolset to remember, and a worker that is gone is none.
func TestToolsetsThatNobodyHasAreForgotten(t *testing.T) {
	store := toolStore{stored: map[string][]byte{}}
	o := &offered{Offers: Offers{Store: store, Log: slog.New(slog.DiscardHandler)},
		toolsets: map[string]registry.Surface{}, live: map[string]broker.Worker{}}
	for i := range 300 {
		hash := store.put(t, registry.Entry{Origin: registry.Toolset, Declaration: tool.Declaration{
			Name: "search", Description: fmt.Sprintf("searches %d documents", i),
			InputSchema: json.RawMessage(`{"type":"object"}`), Class: tool.ClassRule{Static: toolyard.ReadOnly}}})
		o.changed(broker.WorkerChange{ID: "w", Worker: &broker.Worker{ID: "w", Pool: "p", Toolset: hash}})
		if now, err := o.surface(t.Context()); err != nil || len(now.Tools) != 1 {
			t.Fatalf("the tools are %v, %v", now.Tools, err)
		}
	}
	if n := len(o.toolsets); n != 1 {
		t.Errorf("%d toolsets are remembered of one worker", n)
	}
	o.changed(broker.WorkerChange{ID: "w"})
	if _, err := o.surface(t.Context()); err != nil || len(o.toolsets) != 0 {
		t.Errorf("%d toolsets are remembered of no worker, %v", len(o.toolsets), err)
	}
}
