package toolyard

import "fmt"

// Origin says that an output comes from outside: its tool reads what anybody may have written. A model should take it
// as data, and not as instructions.
type Origin struct {
	// Source is where the output comes from, as far as the call says it: a host and port, an MCP server ("mcp:NAME"),
	// what else the tool depends on, or the tool's name.
	Source string `json:"source"`
	// Fence is the nonce in the delimiters around the text. Empty: there are none.
	Fence string `json:"fence,omitempty"`
	// Found is what scanners found in the output. Nil: nothing, or none looked.
	Found []Finding `json:"found,omitempty"`
}

// String is the origin for a person who debugs.
func (o *Origin) String() string {
	if o == nil {
		return "here"
	}
	return fmt.Sprintf("{%q fence %q found %+v}", o.Source, o.Fence, o.Found)
}

// Finding is what a scanner found of one kind.
type Finding struct {
	// Scanner is the scanner's name: invisible, secrets.
	Scanner string `json:"scanner"`
	// Kind is what was found, such as "tag" or "zero width". Empty: the scanner broke.
	Kind string `json:"kind"`
	// Count is how often. An output that is there in several forms (text, parts, data) counts with the form that has
	// most.
	Count int `json:"count"`
	// Action is what was done about it.
	Action ScanAction `json:"action"`
}

// ScanAction is what a scanner does with what it finds.
type ScanAction string

// The actions of scanners.
const (
	Mark     ScanAction = "mark"     // its name stands in its place, so that it can be seen
	Strip    ScanAction = "strip"    // it is taken out
	Withhold ScanAction = "withhold" // the whole output is withheld
)

// ScanActions lists the actions.
var ScanActions = []ScanAction{Mark, Strip, Withhold}
