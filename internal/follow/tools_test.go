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
		reg, err := registry.Registry{}.Register(entries...)
		if err != nil {
			t.Fatal(err)
		}
		s, err := registry.Assemble(reg, nil)
		if err != nil {
			t.Fatal(err)
		}
		if store.stored[s.Hash], err = s.Encode(); err != nil {
			t.Fatal(err)
		}
		o.live[string(pool)] = broker.Worker{ID: string(pool), Pool: pool, Toolset: s.Hash}
	}
	s, err := o.surface(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	of := map[toolyard.Pool]int{}
	for _, e := range s.Tools {
		of[e.Pool]++
	}
	if of["modest"] != 10 || of[toolyard.DefaultPool] != 1 || of["a-greedy"] != registry.MaxTools-11 {
		t.Errorf("pools have %v tools in the list", of)
	}
}
