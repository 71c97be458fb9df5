package provider

import (
	"fmt"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/anthropic"
	"github.com/toolyard/toolyard/internal/provider/definition"
	"github.com/toolyard/toolyard/internal/provider/gemini"
	"github.com/toolyard/toolyard/internal/provider/lower"
	"github.com/toolyard/toolyard/internal/provider/mcp"
	"github.com/toolyard/toolyard/internal/provider/openai"
	"github.com/toolyard/toolyard/internal/provider/openaichat"
	"github.com/toolyard/toolyard/internal/provider/toolname"
	"github.com/toolyard/toolyard/tool"
)

// MCP names the form of tools of the Model Context Protocol. It has no document of calls: [Decode] and [Render] do not
// support it.
const MCP Format = "mcp"

// ToolFormats lists the formats for tools.
var ToolFormats = []Format{Anthropic, OpenAI, OpenAIChat, Gemini, MCP}

// outlet describes how one format gets its tools.
type outlet struct {
	names          toolname.Rule
	loose, strict  lower.Target // strict is empty if there is none
	max            int          // tools in a request; 0: no known limit
	defers, output bool         // can express deferral, has output schemas
	write          func([]definition.Tool) ([]byte, error)
}

var outlets = map[Format]outlet{
	Anthropic: {names: toolname.Anthropic, loose: lower.Anthropic, strict: lower.AnthropicStrict, defers: true,
		write: anthropic.Tools},
	OpenAI: {names: toolname.OpenAI, loose: lower.OpenAI, strict: lower.OpenAIStrict, max: openai.MaxTools,
		defers: true, write: openai.Tools},
	OpenAIChat: {names: toolname.OpenAI, loose: lower.OpenAI, strict: lower.OpenAIStrict, max: openaichat.MaxTools,
		write: openaichat.Tools},
	Gemini: {names: toolname.Gemini, loose: lower.Gemini, max: gemini.MaxTools, write: gemini.Tools},
	MCP:    {names: toolname.MCP, loose: lower.MCP, defers: true, output: true, write: mcp.Tools},
}

// ToolNames is the rule for names of tools in a format; the error is a [*toolyard.InputError] that lists the formats.
func ToolNames(format Format) (toolname.Rule, error) {
	o, ok := outlets[format]
	if !ok {
		list := make([]string, len(ToolFormats))
		for i, f := range ToolFormats {
			list[i] = string(f)
		}
		return toolname.Rule{}, &toolyard.InputError{Problem: fmt.Sprintf("%q is not a format of tools; use one of %s",
			format, strings.Join(list, ", "))}
	}
	return o.names, nil
}

// TellsLoaded reports whether a format's tools depend on what a session has loaded, because it cannot express deferral.
func TellsLoaded(format Format) bool {
	o, ok := outlets[format]
	return ok && !o.defers
}

// ToolOptions are options for the tools of a request.
type ToolOptions struct {
	// Strict asks the provider to enforce the schema, for every tool whose schema has such a form. Optional fields of
	// OpenAI's form come back as null, which [lower.DropNulls] removes.
	Strict bool
	// Loaded are the deferred tools that the session has loaded, by declared name. A form that cannot express deferral
	// includes these. In the other forms the search's own output has told the model about them, and the bytes do not
	// change, so that a provider keeps its prompt cache.
	Loaded map[string]bool
	// Names are the names for the tools; see [ToolNames].
	Names toolname.Table
}

// Tools writes exactly the array tools of a request in the format, without a newline at the end, and a note for each
// change or omission. The same tools in the same order give the same bytes.
//
// A tool that the provider would refuse is left out, with a note whose Sent is empty, because one such tool fails the
// whole request. Too many tools are a [*toolyard.InputError], because we cannot choose which to leave out.
func Tools(format Format, tools []tool.Declaration, opts ToolOptions) ([]byte, []definition.Note, error) {
	if _, err := ToolNames(format); err != nil {
		return nil, nil, err
	}
	o := outlets[format]
	budget := budget{tools: anthropic.MaxStrictTools, optionals: anthropic.MaxStrictOptionals,
		unions: anthropic.MaxStrictUnions, bounded: format == Anthropic}
	var list []definition.Tool
	var notes []definition.Note
	for i := range tools {
		d, of, ok := o.define(&tools[i], opts, &budget)
		notes = append(notes, of...)
		if ok {
			list = append(list, d)
		}
	}
	if o.max > 0 && len(list) > o.max {
		return nil, notes, &toolyard.InputError{Field: "tools", TooLarge: true, Problem: fmt.Sprintf(
			"are %d; %s takes at most %d in a request: deny some of them", len(list), format, o.max)}
	}
	data, err := o.write(list)
	return data, notes, err
}

// budget is what remains for the strict tools of one request.
type budget struct {
	tools, optionals, unions int
	bounded                  bool
}

// spend uses the budget for one tool, or says which limit is exceeded.
func (b *budget) spend(l *lower.Lowered) (short string) {
	switch {
	case !b.bounded:
		return ""
	case b.tools == 0:
		return fmt.Sprintf("%d tools before it are strict, which is the limit", anthropic.MaxStrictTools)
	case l.Optionals > b.optionals:
		return fmt.Sprintf("with it, strict tools would have more than %d optional fields",
			anthropic.MaxStrictOptionals)
	case l.Unions > b.unions:
		return fmt.Sprintf("with it, strict tools would have more than %d fields of several types",
			anthropic.MaxStrictUnions)
	}
	b.tools, b.optionals, b.unions = b.tools-1, b.optionals-l.Optionals, b.unions-l.Unions
	return ""
}

// define makes the definition of one tool; ok is false if it is left out.
func (o *outlet) define(d *tool.Declaration, opts ToolOptions, b *budget) (def definition.Tool, notes []definition.Note,
	ok bool) {
	sent := opts.Names.Sent(d.Name)
	note := func(change lower.Change) {
		notes = append(notes, definition.Note{Tool: d.Name, Sent: sent, Change: change})
	}
	leave := func(why string) (definition.Tool, []definition.Note, bool) {
		return def, append(notes, definition.Note{Tool: d.Name, Change: lower.Change{What: "left out", Why: why}}),
			false
	}
	if !o.names.Takes(sent) {
		return leave(fmt.Sprintf("the provider takes no tool of the name %q", sent))
	}
	deferred := d.ShouldDefer && !d.AlwaysLoad
	if deferred && !o.defers && !opts.Loaded[d.Name] {
		def, notes, ok = leave("it is deferred and not loaded, and the provider has no place for that")
		notes[len(notes)-1].Deferred = true
		return def, notes, ok
	}
	def = definition.Tool{Name: sent, Description: d.Description, Deferred: deferred, Hints: definition.HintsOf(d)}
	if sent != d.Name {
		note(lower.Change{Keyword: "name", What: lower.Changed, Why: fmt.Sprintf("the provider gets it as %q", sent)})
	}
	lowered, err := lower.Lower(o.loose, d.InputSchema)
	if err != nil {
		return leave(err.Error())
	}
	if opts.Strict {
		strict, why := o.strictForm(d, b)
		if def.Strict = why == ""; def.Strict {
			lowered = strict
		} else {
			note(lower.Change{Keyword: "strict", What: lower.Dropped, Why: why})
		}
	}
	def.Schema = lowered.Schema
	for _, c := range lowered.Changes {
		note(c)
	}
	if len(d.OutputSchema) > 0 && o.output {
		if definition.IsObject(d.OutputSchema) {
			def.OutputSchema = d.OutputSchema
		} else {
			note(lower.Change{Keyword: "outputSchema", What: lower.Dropped,
				Why: "clients of older revisions take that of an object alone"})
		}
	}
	return def, notes, true
}

// strictForm is a tool's strict schema, or why it has none.
func (o *outlet) strictForm(d *tool.Declaration, b *budget) (l lower.Lowered, why string) {
	if o.strict == "" {
		return l, "the provider has no strict tools"
	}
	l, err := lower.Lower(o.strict, d.InputSchema)
	if err != nil {
		return l, strings.TrimPrefix(err.Error(), lower.ErrNotStrict.Error()+": ")
	}
	return l, b.spend(&l)
}

// IsLeftOut reports whether a note is about a tool that the provider does not get.
func IsLeftOut(n definition.Note) bool { return n.Sent == "" }
