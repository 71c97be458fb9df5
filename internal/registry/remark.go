package registry

import (
	"fmt"

	"github.com/toolyard/toolyard/internal/clip"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/tool"
)

// The limits of remarks.
const (
	MaxRemarks     = 64  // of one worker's entry
	MaxRemarkBytes = 300 // of one remark's reason
)

// Remark says that a tool is not offered, or is not offered as its author declared it.
type Remark struct {
	// Tool is the name under which it is offered, or would be.
	Tool string `json:"tool"`
	// LeftOut says that it is not offered; otherwise it is offered with a change.
	LeftOut bool   `json:"left_out,omitempty"`
	Why     string `json:"why"`
}

// String returns one line.
func (r Remark) String() string {
	if r.LeftOut {
		return r.Tool + ": left out: " + r.Why
	}
	return r.Tool + ": altered: " + r.Why
}

// Unchecked remarks on the parts of a tool's schemas that are not checked. The error says that a schema does not
// compile.
func Unchecked(d *tool.Declaration) ([]Remark, error) {
	in, err := schema.CompileInput(d.InputSchema)
	if err != nil {
		return nil, fmt.Errorf("tool %q: input schema: %w", d.Name, err)
	}
	var out []Remark
	add := func(which string, lines []string) {
		for _, line := range lines {
			out = append(out, Remark{Tool: d.Name, Why: which + " schema: " + line}.Shorten())
		}
	}
	add("input", in.Unchecked())
	if d.OutputSchema != nil {
		of, err := schema.CompileOutput(d.OutputSchema)
		if err != nil {
			return nil, fmt.Errorf("tool %q: output schema: %w", d.Name, err)
		}
		add("output", of.Unchecked())
	}
	return out, nil
}

// Shorten cuts the reason to [MaxRemarkBytes].
func (r Remark) Shorten() Remark {
	r.Why = clip.Mark(r.Why, MaxRemarkBytes)
	return r
}

// Bounded returns at most [MaxRemarks] of the remarks, shortened, those about omitted tools first. If there are more,
// the last one says how many.
func Bounded(all []Remark) []Remark {
	var out []Remark
	for _, leftOut := range []bool{true, false} {
		for _, r := range all {
			if r.LeftOut == leftOut {
				out = append(out, r.Shorten())
			}
		}
	}
	if len(out) <= MaxRemarks {
		return out
	}
	rest := out[MaxRemarks-1:]
	why := fmt.Sprintf("%d more remarks; worker check has all", len(rest))
	return append(out[:MaxRemarks-1:MaxRemarks-1], Remark{Tool: "(others)", LeftOut: rest[0].LeftOut, Why: why})
}
