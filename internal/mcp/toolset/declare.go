package toolset

import (
	"encoding/json"
	"fmt"
	"regexp"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/tool"
)

// serverName is what a server's tool may be called: the protocol's characters, and what permission rules can name.
var serverName = regexp.MustCompile(`^[A-Za-z0-9_./-]+$`)

// declaration makes one of a server's tool: the strictest one, loosened by the server's annotations where it is trusted, and by the
// operator.
func declaration(server *manifest.Server, t *mcp.Tool) (tool.Declaration, error) {
	d := tool.Declaration{
		Name: manifest.ToolName(server.Name, t.Name), Description: t.Description, Execution: tool.InService,
		Dependency: "mcp:" + server.Name, AbortsSiblings: new(bool),
	}
	if !serverName.MatchString(t.Name) || len(d.Name) > toolyard.MaxNameBytes {
		return d, fmt.Errorf("its name cannot be offered; with %q in front it has at most %d of the letters, digits and _ . / -",
			manifest.ToolName(server.Name, ""), toolyard.MaxNameBytes)
	}
	if d.Description == "" {
		d.Description = fmt.Sprintf("The tool %s of the MCP server %s, which does not describe it.", t.Name, server.Name)
	}
	d.Description = clip(d.Description, MaxDescriptionBytes)
	var err error
	if d.InputSchema, err = encodeSchema("input", t.InputSchema); err != nil {
		return d, err
	}
	if _, err := schema.CompileInput(d.InputSchema); err != nil {
		return d, fmt.Errorf("its input schema: %w", err)
	}
	if t.OutputSchema != nil {
		if d.OutputSchema, err = encodeSchema("output", t.OutputSchema); err != nil {
			return d, err
		}
		if _, err := schema.CompileOutput(d.OutputSchema); err != nil {
			return d, fmt.Errorf("its output schema: %w", err)
		}
	}
	if server.Trusted {
		annotate(&d, t.Annotations)
	}
	for _, o := range []manifest.Override{server.Defaults, server.Tools[t.Name]} {
		if err := o.Apply(&d); err != nil {
			return d, fmt.Errorf("what the manifest says of it: %w", err)
		}
	}
	return d, nil
}

// annotate takes over what a trusted server says of a tool. What it leaves out has the protocol's default.
func annotate(d *tool.Declaration, a *mcp.ToolAnnotations) {
	if a == nil {
		a = &mcp.ToolAnnotations{}
	}
	if a.ReadOnlyHint {
		d.Class.Static, d.ReadOnly = toolyard.ReadOnly, true
		return
	}
	destructive := a.DestructiveHint == nil || *a.DestructiveHint
	d.Class.Static, d.Destructive, d.Idempotent = toolyard.WriteExclusive, &destructive, &a.IdempotentHint
}

func encodeSchema(which string, v any) (json.RawMessage, error) {
	raw, err := json.Marshal(v)
	switch {
	case err != nil:
		return nil, fmt.Errorf("its %s schema: %w", which, err)
	case len(raw) > MaxSchemaBytes:
		return nil, fmt.Errorf("its %s schema has %d bytes; at most %d are taken", which, len(raw), MaxSchemaBytes)
	}
	return raw, nil
}

// clip cuts a text to a number of bytes, at a character's border.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
