package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/toolyard/toolyard"
)

// DryRunOutput is the structured output of a call that would run, in a dry run.
type DryRunOutput struct {
	// Would is run; ask: a person would be asked first; or deny: the call would not be permitted.
	Would string `json:"would"`
	// Reason says what allows or denies the call, or why a person would be asked.
	Reason      string         `json:"reason,omitempty"`
	Class       toolyard.Class `json:"concurrency_class"`
	ReadOnly    bool           `json:"read_only"`
	Destructive bool           `json:"destructive"`
	// Origin is where the output would come from, if that is outside.
	Origin string `json:"origin,omitempty"`
	// Command is the command line that would run.
	Command string `json:"command,omitempty"`
	// Diff is what would change, as things stand now.
	Diff string `json:"diff,omitempty"`
	// Input is what may be shown of the input.
	Input json.RawMessage `json:"input"`
}

// DryRun runs the phases up to permission and says what would happen. Neither the tool nor a hook runs. A call that
// would fail in these phases has the same result as if it had been run.
func (p *Pipeline) DryRun(ctx context.Context, job Job) toolyard.Result {
	c := p.begin(&job)
	if err := c.rehearse(ctx); err != nil {
		c.broken(err)
	}
	c.res.Attempts = 0
	if n := len(c.res.Phases); c.fail == nil || n > 0 && c.res.Phases[n-1].Phase == toolyard.PhasePermission {
		c.sayWould(ctx)
	}
	for i := range c.rows {
		if r := &c.rows[i]; r.phase == toolyard.PhaseEmitTerminal {
			c.step(ctx, r)
		}
	}
	last := &c.res.Phases[len(c.res.Phases)-1]
	last.Detail = join("dry run: no hook and no tool was run", last.Detail)
	return c.res
}

// sayWould makes the output of a call about which permission has decided.
func (c *call) sayWould(ctx context.Context) {
	out := DryRunOutput{Would: "run", Class: c.judgement.Class, ReadOnly: c.judgement.ReadOnly,
		Destructive: c.judgement.Destructive, Input: c.observable}
	out.Reason = c.res.Phases[len(c.res.Phases)-1].Detail
	if from := c.origin(); from != nil {
		out.Origin = from.Source
	}
	switch w := c.waiting; {
	case w != nil:
		out.Would, out.Reason, out.Diff = "ask", w.Reason, w.Diff
	case c.fail != nil:
		out.Would = "deny"
		fallthrough
	default:
		out.Diff = c.diff(ctx)
	}
	if field := c.entry.Specifier.Command; field != "" {
		var fields map[string]json.RawMessage
		if json.Unmarshal(c.observable, &fields) == nil {
			_ = json.Unmarshal(fields[field], &out.Command) // another type is no command
		}
	}
	c.text, c.kept, c.fitted = out.text(c.entry.Name), true, true // it is short
	structured, err := json.Marshal(out)
	if err != nil {
		c.broken(fmt.Errorf("encode a dry run: %w", err))
		return
	}
	c.structured = structured
}

// text says it for a model, and for people.
func (o *DryRunOutput) text(name string) string {
	var b strings.Builder
	b.WriteString("Dry run: nothing was done. ")
	switch o.Would {
	case "ask":
		b.WriteString("A person would be asked")
	case "deny":
		fmt.Fprintf(&b, "%q would not be permitted", name)
	default:
		fmt.Fprintf(&b, "%q would run", name)
	}
	if o.Reason != "" {
		b.WriteString(" (" + strings.TrimSuffix(o.Reason, ".") + ")")
	}
	fmt.Fprintf(&b, ". Its class is %s", o.Class)
	if o.Destructive {
		b.WriteString(", and it may do what cannot be undone")
	}
	b.WriteString(".")
	if o.Origin != "" {
		b.WriteString(" Its output would come from outside (" + o.Origin + ").")
	}
	if o.Command != "" {
		b.WriteString("\n\n$ " + o.Command)
	}
	if o.Diff != "" {
		b.WriteString("\n\n" + o.Diff)
	}
	return b.String()
}
