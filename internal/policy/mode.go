package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Mode decides the calls of a session that no rule decides. A mode that is neither empty nor one of [Modes] counts as
// plan and dont_ask together, the strictest.
type Mode string

// The modes.
const (
	Default     Mode = "default"      // ask; the empty Mode means this
	AcceptEdits Mode = "accept_edits" // allow tools that only edit files of the workspace
	Plan        Mode = "plan"         // deny whatever is not read-only, also what an allow rule allows
	DontAsk     Mode = "dont_ask"     // deny where Default would ask
	Bypass      Mode = "bypass"       // allow; deny and ask rules still hold
)

// Modes lists the modes.
var Modes = []Mode{Default, AcceptEdits, Plan, DontAsk, Bypass}

// ParseMode reads a mode; empty means [Default]. The error lists the modes.
func ParseMode(s string) (Mode, error) {
	if s == "" {
		return Default, nil
	}
	if m := Mode(s); slices.Contains(Modes, m) {
		return m, nil
	}
	names := make([]string, len(Modes))
	for i, m := range Modes {
		names[i] = string(m)
	}
	return "", fmt.Errorf("%q is not a permission mode; use one of %s", s, strings.Join(names, ", "))
}

// known is false for an undefined mode.
func (m Mode) known() bool { return m == "" || slices.Contains(Modes, m) }

// plans reports whether only read-only calls are allowed.
func (m Mode) plans() bool { return m == Plan || !m.known() }

// silent reports whether an ask becomes a denial.
func (m Mode) silent() bool { return m == DontAsk || !m.known() }
