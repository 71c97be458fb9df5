package toolset

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/clip"
	"github.com/toolyard/toolyard/internal/manifest"
	wire "github.com/toolyard/toolyard/internal/mcp"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/tool"
)

// serverName matches the tool names that are accepted: the protocol's characters that permission rules can name.
var serverName = regexp.MustCompile(`^[A-Za-z0-9_./-]+$`)

// declaration makes the declaration of a server's tool: the strictest one, loosened by the server's annotations if the
// server is trusted, and by the operator. altered has a line for each difference from what the server declares.
func declaration(server *manifest.Server, t *mcp.Tool) (d tool.Declaration, altered []string, err error) {
	d = tool.Declaration{
		Name: manifest.ToolName(server.Name, t.Name), Description: t.Description, Execution: tool.InService,
		Dependency: "mcp:" + server.Name, AbortsSiblings: new(bool),
	}
	if !serverName.MatchString(t.Name) || len(d.Name) > toolyard.MaxNameBytes {
		const text = "its name cannot be offered; with %q in front it has at most %d of the letters, digits and _ . / -"
		return d, nil, fmt.Errorf(text,
			manifest.ToolName(server.Name, ""), toolyard.MaxNameBytes)
	}
	if d.Description == "" {
		d.Description = fmt.Sprintf("The tool %s of the MCP server %s, which does not describe it.", t.Name,
			server.Name)
	}
	if len(d.Description) > MaxDescriptionBytes {
		const text = "its description has %d bytes; what is past %d is cut off"
		altered = append(altered, fmt.Sprintf(text, len(d.Description), MaxDescriptionBytes))
		// The rest need not stay in memory.
		d.Description = strings.Clone(clip.Bytes(d.Description, MaxDescriptionBytes))
	}
	var lines []string
	if d.InputSchema, lines, err = inputSchema(asListed(t, wire.MetaInput, t.InputSchema)); err != nil {
		return d, nil, fmt.Errorf("its input schema: %w", err)
	}
	for _, line := range lines {
		altered = append(altered, "input schema: "+line)
	}
	if t.OutputSchema != nil {
		out := asListed(t, wire.MetaOutput, t.OutputSchema)
		if d.OutputSchema, lines, err = outputSchema(out); err != nil { // the tool works without it
			d.OutputSchema, lines = nil, []string{fmt.Sprintf("it is left out, and no output is checked: %v", err)}
		}
		for _, line := range lines {
			altered = append(altered, "output schema: "+line)
		}
	}
	if server.Trusted {
		annotate(&d, t.Annotations)
	}
	for _, o := range []manifest.Override{server.Defaults, server.Tools[t.Name]} {
		if err := o.Apply(&d); err != nil {
			return d, nil, fmt.Errorf("what the manifest says of it: %w", err)
		}
	}
	if err := registry.CheckLocks(&d); err != nil {
		return d, nil, fmt.Errorf("what the manifest says of it: %w", err)
	}
	if server.Trusted {
		keepReads(&d)
	}
	return d, altered, nil
}

// keepReads lets a trusted server's read run without permission even if the operator says that it does not use the
// workspace, because that setting is about tickets. The operator's own setting for permission has priority.
func keepReads(d *tool.Declaration) {
	reads := d.Class.Static == toolyard.ReadOnly && d.ReadOnly && (d.Destructive == nil || !*d.Destructive)
	if reads && !d.NeedsWorkspace() && d.RequiresPermission == nil {
		no := false
		d.RequiresPermission = &no
	}
}

// annotate applies a trusted server's annotations. A missing one has the protocol's default.
func annotate(d *tool.Declaration, a *mcp.ToolAnnotations) {
	if a == nil {
		a = &mcp.ToolAnnotations{}
	}
	open := a.OpenWorldHint == nil || *a.OpenWorldHint
	d.OpenWorld = &open
	if a.ReadOnlyHint {
		d.Class.Static, d.ReadOnly = toolyard.ReadOnly, true
		return
	}
	destructive := a.DestructiveHint == nil || *a.DestructiveHint
	d.Class.Static, d.Destructive, d.Idempotent = toolyard.WriteExclusive, &destructive, &a.IdempotentHint
}

// asListed is a schema of a listed tool as the server wrote it. The library has read v, and rounded its numbers.
func asListed(t *mcp.Tool, meta string, v any) any {
	if text, ok := t.Meta[meta].(string); ok {
		return json.RawMessage(text)
	}
	return v
}

// inputSchema returns a server's schema as it is offered, and a line for each part that was changed or is not checked.
func inputSchema(v any) (raw json.RawMessage, lines []string, err error) {
	return mended(v, true, schema.CompileInput)
}

// outputSchema is [inputSchema] for a tool's output.
func outputSchema(v any) (raw json.RawMessage, lines []string, err error) {
	return mended(v, false, schema.CompileOutput)
}

func mended(
	v any, input bool, compile func(json.RawMessage) (*schema.Schema, error),
) (json.RawMessage, []string, error) {
	raw, err := json.Marshal(v)
	if _, own := v.(json.RawMessage); own && err == nil { // as the library would have it: servers may change the order
		var doc schema.Value
		if doc, err = schema.Parse(raw); err == nil {
			raw = doc.Canonical()
		}
	}
	switch {
	case err != nil:
		return nil, nil, err
	case len(raw) > MaxSchemaBytes:
		return nil, nil, fmt.Errorf("it has %d bytes; at most %d are taken", len(raw), MaxSchemaBytes)
	}
	raw, lines, err := schema.Mend(raw, input)
	if err != nil {
		return nil, nil, err
	}
	compiled, err := compile(raw)
	if err != nil {
		return nil, nil, err
	}
	return raw, append(lines, compiled.Unchecked()...), nil
}
