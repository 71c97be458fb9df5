package pipeline

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/clip"
	"github.com/toolyard/toolyard/internal/provider/lower"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/schema"
)

// Preflight runs the first phases, resolve_tool and parse_schema, against a surface and without any tool's code: the
// dispatcher's part at plan. loaded are the deferred tools that the session has loaded; nil means none. patterns is the
// time that the patterns of all calls of a batch may take together; nil means that only the limit per check applies. If
// a phase fails, failed is terminal, and complete except for what the call does not know (index, worker); otherwise it
// is nil. input is the input to judge: the call's, without what parse_schema has removed. The caller must not change
// the entry.
func (p *Pipeline) Preflight(
	call toolyard.Call, surface *registry.Surface, loaded map[string]bool, patterns *schema.Allowance,
) (e *registry.Entry, input Input, failed *toolyard.Result) {
	c := p.beginPreflight(&Job{Call: call})
	c.patterns = patterns
	c.find = func(name string) (*registry.Entry, *failure) { return findInSurface(surface, name, loaded) }
	err := rescue(func() error {
		for i := range c.rows {
			switch r := &c.rows[i]; r.phase {
			case toolyard.PhaseResolveTool, toolyard.PhaseParseSchema:
				if c.fail == nil {
					c.step(context.Background(), r)
				}
			case toolyard.PhaseEmitTerminal:
				if c.fail != nil {
					c.step(context.Background(), r)
				}
			}
		}
		return nil
	})
	if err != nil {
		c.broken(err)
	}
	if c.fail != nil {
		return c.entry, Input{Hash: c.givenHash}, &c.res
	}
	e, input = c.entry, Input{Value: c.value, Raw: c.job.Call.Input, Hash: c.givenHash}
	preflights.Put(c)
	return e, input, nil
}

func (p *Pipeline) beginPreflight(job *Job) *call {
	c := preflights.Get().(*call)
	p.reset(c, job)
	return c
}

// preflights are calls that were looked at and have no result. They are large, and no code of a tool has seen them.
var preflights = sync.Pool{New: func() any { return &call{} }}

// Input is the input of a call that Preflight has looked at.
type Input struct {
	// Value and Raw are what is judged; empty if the call failed.
	schema.Value
	Raw json.RawMessage
	// Hash names the input as it was handed in, by its canonical form; "" if that was not parsed.
	Hash string
}

// Rehearse runs the phases up to permission, without the hooks, which ran before a person was asked. problem says why
// the call could not run with its input; it is empty if it could. The tool does not run.
func (p *Pipeline) Rehearse(ctx context.Context, job Job) (problem string) {
	c := p.begin(&job)
	switch err := c.rehearse(ctx); {
	case err != nil:
		return "it could not be checked: " + c.withhold(err.Error())
	case c.fail != nil:
		return shorten(c.withhold(strings.TrimSpace(c.fail.message)), MaxErrorChars)
	}
	return ""
}

// rehearse runs the phases up to permission, without hooks. The error is a bug of ours.
func (c *call) rehearse(ctx context.Context) error {
	c.find = c.findInTools
	return rescue(func() error {
		for i := range c.rows {
			switch r := &c.rows[i]; r.phase {
			case toolyard.PhaseResolveTool, toolyard.PhaseParseSchema, toolyard.PhaseValidateValues,
				toolyard.PhaseObservableInput, toolyard.PhasePermission:
				if c.fail == nil {
					c.step(ctx, r)
				}
			}
		}
		return nil
	})
}

// resolveTool finds the tool that the call names.
func (c *call) resolveTool(context.Context) finding {
	entry, fail := c.find(c.job.Call.Tool)
	c.entry = entry
	if entry.Name != "" {
		c.res.Tool = entry.Name
	}
	if fail != nil {
		return finding{fail: fail}
	}
	if c.job.Rules != nil && c.job.Rules.Blocks(entry.Name, entry.Aliases) {
		return failed(toolyard.BlockedTool, fmt.Sprintf("The tool %q is blocked for this batch.", entry.Name),
			"a deny rule of the batch")
	}
	if pinned := c.job.Declaration; pinned != "" && pinned != entry.Hash {
		return failed(toolyard.InternalError, "Internal error: the call reached a worker that has another version "+
			"of the tool.",
			fmt.Sprintf("pinned the declaration %.12s, the worker has %.12s and should have handed the call back",
				pinned, entry.Hash))
	}
	used := cmp.Or(c.job.As, c.job.Call.Tool)
	switch {
	case used == entry.Name:
		return finding{}
	case c.job.As != "" && !slices.Contains(entry.Aliases, used):
		return noted(fmt.Sprintf("%q is the name that a provider got for %q", clip.Bytes(used, toolyard.MaxNameBytes),
			entry.Name))
	}
	return noted(fmt.Sprintf("%q is an alias of %q", clip.Bytes(used, toolyard.MaxNameBytes), entry.Name))
}

// findInTools resolves in the worker's own tools.
func (c *call) findInTools(name string) (*registry.Entry, *failure) {
	if c.p.Tools != nil {
		if t, e, ok := c.p.Tools.Lookup(name); ok {
			c.code = t
			return e, nil
		}
	}
	return noEntry, &failure{code: toolyard.UnknownTool, message: fmt.Sprintf("There is no tool %q.",
		clip.Bytes(name, toolyard.MaxNameBytes)),
		detail: "the worker has no tool of this name"}
}

// findInSurface resolves in the pinned surface.
func findInSurface(s *registry.Surface, name string, loaded map[string]bool) (*registry.Entry, *failure) {
	if s == nil {
		s = &registry.Surface{}
	}
	entry, code := s.Find(name, loaded)
	shown := clip.Bytes(name, toolyard.MaxNameBytes)
	switch code {
	case toolyard.OK:
		return entry, nil
	case toolyard.BlockedTool:
		return entry, &failure{code: code, message: fmt.Sprintf("The tool %q is blocked here.", shown),
			detail: "a deny rule took it out of the surface"}
	case toolyard.SchemaNotLoaded:
		f := &failure{code: code, message: fmt.Sprintf("The tool %q is deferred and its schema has not been "+
			"loaded, so its input is a guess.", entry.Name)}
		if !s.Searches() {
			f.next = "No tool_search is offered here; go on without this tool, unless another tool loads it."
		}
		return entry, f
	}
	message := fmt.Sprintf("There is no tool %q.", shown)
	if name == "" {
		message = "The call names no tool."
	}
	if near := s.Near(name); len(near) > 0 {
		message += ` Did you mean "` + strings.Join(near, `" or "`) + `"?`
	}
	return entry, &failure{code: code, message: message}
}

// parseSchema checks the input against the tool's schema. All later phases read the canonical form.
func (c *call) parseSchema(context.Context) finding {
	s, err := c.p.schemas().Input(c.entry.InputSchema)
	if err != nil {
		return failed(toolyard.InternalError, "Internal error: the tool's input schema is broken, so that no input "+
			"can be checked.", err.Error())
	}
	if !c.again { // again: the value is the hook's, already parsed
		if c.value, err = schema.ParseInput(c.job.Call.Input); err != nil {
			return c.misfit(err)
		}
		c.value = c.value.Hashed()
		c.givenHash = c.value.Hash()
	}
	err = s.CheckWithin(c.value, c.patterns)
	if err != nil && c.again {
		return c.misfit(err)
	}
	if err == nil {
		return c.mended("")
	}
	bare, dropped := c.withoutNulls()
	if !dropped {
		return c.misfit(err)
	}
	if err := s.CheckWithin(bare, c.patterns); err != nil {
		return c.misfit(err)
	}
	c.value, c.job.Call.Input = bare, bare.Canonical()
	return c.mended("fields that were null, and may be left out but not be null, were left out")
}

// mended tells the log what the plan has mended in the input, and what else was done to it.
func (c *call) mended(detail string) finding {
	if c.job.Mended != "" && !c.again {
		detail = join("the input was mended: "+c.job.Mended, detail)
	}
	if detail == "" {
		return finding{}
	}
	return noted(detail)
}

// withoutNulls removes nulls from an input that does not fit. A provider's strict form makes its model write null for a
// field that it leaves out. Only nulls that the tool's own schema refuses, in optional fields, are removed: an input
// that fits is never changed, and a changed one must still fit.
func (c *call) withoutNulls() (schema.Value, bool) {
	raw, err := lower.DropNulls(c.entry.InputSchema, c.value.Canonical())
	if err != nil || bytes.Equal(raw, c.value.Canonical()) {
		return schema.Value{}, false
	}
	bare, err := schema.Parse(raw)
	return bare, err == nil
}

func (c *call) misfit(err error) finding {
	if err == nil {
		return finding{}
	}
	return failed(toolyard.SchemaValidationFailed, err.Error()+c.notYours(), "")
}

// notYours tells the model, behind what is wrong with an input, if that is not the input that it wrote.
func (c *call) notYours() string {
	if !c.again {
		return ""
	}
	return "\n(A hook of this installation changed the input; the fault is not in what you sent.)"
}
