package pipeline

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/toolyard/toolyard/internal/clip"
	"github.com/toolyard/toolyard/tool"
)

// takeChange decides which parts of the tool's change of its session are accepted, and what the model and the facts are
// told about the rest. A refused part does not affect the call, since the tool has run.
func (c *call) takeChange(ctx context.Context) (detail string) {
	c.change, c.told = tool.SessionChange{}, nil
	asked := c.out.Session
	if asked == nil {
		return ""
	}
	refuse := func(told, why string) {
		c.told = append(c.told, told)
		detail = join(detail, why)
	}
	switch problem := tool.ContextProblem(tool.MergeContext(c.job.Context, asked.Context)); {
	case len(asked.Context) == 0:
	case c.judgement.Class.Safe():
		refuse("What this call sets for later calls was not kept: only a call that runs alone may set it.",
			"what the tool sets for later calls was rejected: only an exclusive call may set it")
	case problem != "":
		refuse(fmt.Sprintf("What this call sets for later calls was not kept: %s. What was set before stands.",
			problem),
			"what the tool sets for later calls was rejected: "+problem)
	default:
		c.change.Context = maps.Clone(asked.Context)
	}
	loads, unknown, err := c.offeredOf(ctx, asked.Loads)
	c.change.Loads = loads
	switch {
	case err != nil:
		refuse("No tools were loaded: it could not be read which tools there are.",
			"which tools there are could not be read: "+err.Error())
	case len(unknown) > 0:
		names := nameFew(unknown)
		refuse("Not loaded, since there are no such tools here: "+names+".",
			"loads tools that the batch does not see: "+names)
	}
	return detail
}

// offeredOf splits names into those of tools that the batch sees, each once, and the others.
func (c *call) offeredOf(ctx context.Context, names []string) (known, unknown []string, err error) {
	if len(names) == 0 {
		return nil, nil, nil
	}
	if c.job.Tools == nil {
		return nil, nil, fmt.Errorf("this worker does not know")
	}
	var offered []tool.Offered
	if err := rescue(func() (err error) { offered, err = c.job.Tools(ctx); return err }); err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		list := &unknown
		if slices.ContainsFunc(offered, func(o tool.Offered) bool { return o.Name == name }) {
			list = &known
		}
		if !slices.Contains(*list, name) {
			*list = append(*list, name)
		}
	}
	return known, unknown, nil
}

// nameFew lists some of the names from a tool, within bounds.
func nameFew(names []string) string {
	const most, letters = 8, 64
	var out []string
	for _, n := range names[:min(most, len(names))] {
		out = append(out, fmt.Sprintf("%q", clip.Bytes(n, letters)))
	}
	if rest := len(names) - len(out); rest > 0 {
		out = append(out, fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(out, ", ")
}

// sessionChange is the call's change of its session: nothing unless it succeeded. Only an exclusive call sets anything,
// because the result of concurrent calls would depend on which is faster.
func (c *call) sessionChange() (tool.SessionChange, bool) {
	if c.fail != nil || c.job.SessionChange == nil {
		return tool.SessionChange{}, false
	}
	return c.change, len(c.change.Loads)+len(c.change.Context) > 0
}
