package registry

import (
	"encoding/json"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// TestAProviderBlocksNoAliasOfAnother has a worker's rules take a tool out of its pool, with its alias, that another
// pool offers. The rules of whoever assembles the surface take the alias out for everybody.
func TestAProviderBlocksNoAliasOfAnother(t *testing.T) {
	reg, err := Registry{}.Register(Entry{Origin: Toolset, Pool: "b", Declaration: tool.Declaration{
		Name: "reader", Aliases: []string{"read"}, InputSchema: json.RawMessage(`{"type":"object"}`),
		Class: tool.ClassRule{Static: toolyard.ReadOnly},
	}})
	must.OK(t, err)
	reg = reg.Block("reader", "read", "other") // by the rules of pool a
	s, err := Assemble(reg, nil)
	must.OK(t, err)
	for name, want := range map[string]toolyard.Code{
		"reader": toolyard.OK, "read": toolyard.OK, "other": toolyard.BlockedTool,
	} {
		if e, code := s.Resolve(name, nil); code != want || code == toolyard.OK && e.Pool != "b" {
			t.Errorf("a call of %q is of pool %q, %q; want %q", name, e.Pool, code, want)
		}
	}
	s, err = Assemble(reg, func(name string, _ []string) bool { return name == "reader" })
	must.OK(t, err)
	for _, name := range []string{"reader", "read", "other"} {
		if _, code := s.Resolve(name, nil); code != toolyard.BlockedTool {
			t.Errorf("a call of %q that is denied everywhere is %q", name, code)
		}
	}
}
