package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider"
	"github.com/toolyard/toolyard/internal/provider/toolname"
	"github.com/toolyard/toolyard/internal/registry"
)

// catalog is what is listed now.
type catalog struct {
	mu    sync.Mutex
	tools map[string]listed // by the name that clients get
}

// listed is one tool as clients see it.
type listed struct {
	// name is the one that the pool knows it by, and sent the one that clients do.
	name, sent string
	aliases    []string
	deferred   bool
	definition string
}

// is reports whether nothing has changed that a client sees, or that a call does.
func (t *listed) is(other listed) bool {
	return t.name == other.name && t.deferred == other.deferred && t.definition == other.definition &&
		slices.Equal(t.aliases, other.aliases)
}

// show takes out of a page of the list what an agent does not see.
func (s *Server) show(page *mcp.ListToolsResult, agent toolyard.Agent) {
	if s.cfg.Hide == nil {
		return
	}
	s.tools.mu.Lock()
	defer s.tools.mu.Unlock()
	page.Tools = slices.DeleteFunc(page.Tools, func(d *mcp.Tool) bool {
		t, ok := s.tools.tools[d.Name]
		return ok && s.cfg.Hide(agent, t.name, t.aliases)
	})
}

// SetSurface lists the tools of a surface in place of those that are listed. Clients that listen are told when
// something has changed. Calls under way go on: their batches see the surface of their beginning.
//
// Deferred tools are listed as all others are, since a list must not depend on what was called before; a client that
// wants to see fewer of them defers them itself.
func (s *Server) SetSurface(surface registry.Surface) error {
	next, err := s.list(&surface)
	if err != nil {
		return err
	}
	s.tools.mu.Lock()
	defer s.tools.mu.Unlock()
	var gone []string
	for sent := range s.tools.tools {
		if _, ok := next[sent]; !ok {
			gone = append(gone, sent)
		}
	}
	if len(gone) > 0 {
		s.mcp.RemoveTools(gone...)
	}
	for sent, t := range next {
		if have, ok := s.tools.tools[sent]; ok && have.is(t) {
			continue
		}
		if err := s.add(t); err != nil {
			s.cfg.Log.Warn("a tool is not listed over MCP", "tool", t.name, "error", err)
			s.mcp.RemoveTools(sent)
		}
	}
	s.tools.tools = next
	return nil
}

// list makes the definitions of a surface's tools, by the names that clients get.
func (s *Server) list(surface *registry.Surface) (map[string]listed, error) {
	entries := map[string]*registry.Entry{}
	for i := range surface.Tools {
		entries[surface.Tools[i].Name] = &surface.Tools[i]
	}
	names := surface.Names(toolname.MCP)
	data, notes, err := provider.Tools(provider.MCP, surface.Declarations(), provider.ToolOptions{Names: names})
	if err != nil {
		return nil, fmt.Errorf("list the tools for MCP: %w", err)
	}
	for _, n := range notes {
		if provider.IsLeftOut(n) {
			s.cfg.Log.Warn("a tool is not listed over MCP", "tool", n.Tool, "why", n.Why)
		}
	}
	var definitions []json.RawMessage
	if err := json.Unmarshal(data, &definitions); err != nil {
		return nil, fmt.Errorf("list the tools for MCP: %w", err)
	}
	out := map[string]listed{}
	for _, d := range definitions {
		var named struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(d, &named); err != nil {
			return nil, fmt.Errorf("list the tools for MCP: %w", err)
		}
		t := listed{name: named.Name, sent: named.Name, definition: string(d)}
		if original, ok := names.Original(named.Name); ok {
			t.name = original
		}
		if e := entries[t.name]; e != nil {
			t.deferred, t.aliases = e.Deferred(), e.Aliases
		}
		out[t.sent] = t
	}
	for _, sent := range sortedKeys(out)[min(len(out), MaxTools):] {
		s.cfg.Log.Warn("a tool is not listed over MCP: there are too many", "tool", out[sent].name, "most", MaxTools)
		delete(out, sent)
	}
	return out, nil
}

func sortedKeys(m map[string]listed) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// add lists one tool. The library panics where a schema says what it does not take, and schemas are written by others.
func (s *Server) add(t listed) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%v", v)
		}
	}()
	// The schemas stay as they are written, to the byte: the order of their fields is what a model reads.
	var d struct {
		Name         string              `json:"name"`
		Description  string              `json:"description"`
		InputSchema  json.RawMessage     `json:"inputSchema"`
		OutputSchema json.RawMessage     `json:"outputSchema"`
		Annotations  mcp.ToolAnnotations `json:"annotations"`
	}
	if err := json.Unmarshal([]byte(t.definition), &d); err != nil {
		return err
	}
	def := &mcp.Tool{Name: d.Name, Description: d.Description, InputSchema: d.InputSchema, Annotations: &d.Annotations}
	if len(d.OutputSchema) > 0 {
		def.OutputSchema = d.OutputSchema
	}
	s.mcp.AddTool(def, s.callTool(t))
	return nil
}
