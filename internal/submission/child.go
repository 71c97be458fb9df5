package submission

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
)

// The limits of the batches that a script of [toolyard.RunCodeTool] makes, each a call of one tool.
const (
	// MaxChildren is how many calls one script makes.
	MaxChildren = 200
	// MaxChildrenAtOnce is how many of them are under way at a time; more wait in the worker.
	MaxChildrenAtOnce = 8
	// MaxChildDepth is how deep scripts nest: a script calls no tool that runs a script.
	MaxChildDepth = 1
	// MaxChildTime bounds each call with its waits. The time of the script that makes it bounds it too.
	MaxChildTime = 10 * time.Minute
	// MaxChildInput is how many bytes the input of such a call has.
	MaxChildInput = 256 << 10
)

// childPrefix begins the ids of such batches.
const childPrefix = "code-"

// ChildID is the id of the batch of a parent. All of one attempt have consecutive numbers, so that who knows the
// attempt finds them.
func ChildID(p toolyard.Parent) toolyard.BatchID {
	return toolyard.BatchID(childrenOf(p) + strconv.Itoa(p.N))
}

// childrenOf is what the ids of an attempt's batches begin with.
func childrenOf(p toolyard.Parent) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %d", p.Batch, p.Call, p.Attempt))
	const bytes = 12 // enough to be unique among the batches of an agent
	return childPrefix + hex.EncodeToString(sum[:bytes]) + "-"
}

// IsChild reports whether an id is that of a batch which an attempt may have made. The parent's N does not matter.
func IsChild(id toolyard.BatchID, p toolyard.Parent) bool {
	number, ok := strings.CutPrefix(string(id), childrenOf(p))
	if !ok {
		return false
	}
	var err error
	p.N, err = strconv.Atoi(number)
	return err == nil && p.N >= 1 && p.N <= MaxChildren && ChildID(p) == id
}

// Child makes the batch of a call that a script makes. It acts as the parent's agent, in its session and workspace, and
// under its options. What is wrong with the call is a [*toolyard.InputError].
func Child(of *toolyard.Batch, p toolyard.Parent, tool string, input json.RawMessage) (toolyard.Batch, error) {
	if len(input) > MaxChildInput {
		return toolyard.Batch{}, &toolyard.InputError{Field: "input", TooLarge: true,
			Problem: fmt.Sprintf("has %d bytes; a script's call has at most %d", len(input), MaxChildInput)}
	}
	o := of.Options
	b := toolyard.Batch{
		ID: ChildID(p), Agent: of.Agent, Session: of.Session, Workspace: of.Workspace, Interactive: of.Interactive,
		Calls: []toolyard.Call{{Tool: tool, Input: input}},
		Options: toolyard.Options{
			TimeoutMS: MaxChildTime.Milliseconds(), CallTimeoutMS: o.CallTimeoutMS, Deny: o.Deny, Ask: o.Ask,
			Snapshot: o.Snapshot, Tags: o.Tags, Priority: o.Priority, Fence: o.Fence, Parent: &p,
		},
	}
	b.Normalize(b.ID)
	return b, b.Validate()
}

// CheckChild says what is wrong with the place of a batch among those of its parent, as a [*toolyard.InputError].
// tool is the parent's call's, and depth how deep that call is nested itself.
func CheckChild(b *toolyard.Batch, tool string, depth int) error {
	p := b.Options.Parent
	problem := ""
	switch {
	case b.ID != ChildID(*p):
		problem = fmt.Sprintf("is not that of the batch %q; it makes %q", b.ID, ChildID(*p))
	case tool != toolyard.RunCodeTool:
		problem = fmt.Sprintf("is a call of %s, and only %s calls tools", tool, toolyard.RunCodeTool)
	case p.N > MaxChildren:
		problem = fmt.Sprintf("makes its call %d; a script makes at most %d", p.N, MaxChildren)
	case depth >= MaxChildDepth:
		problem = "runs for a script already; a script that a script runs calls no tools"
	case strings.EqualFold(b.Calls[0].Tool, toolyard.RunCodeTool) && depth+1 >= MaxChildDepth:
		problem = "is a script; a script runs no other"
	}
	if problem == "" {
		return nil
	}
	return &toolyard.InputError{Field: "options.parent", Problem: problem}
}

// ByProgram reports whether a provider's program has made one of the calls, and not the model itself. The provider
// stops waiting for its answer after some minutes.
func ByProgram(calls []toolyard.Call) bool {
	for _, c := range calls {
		var echo struct {
			Caller struct {
				Type string `json:"type"`
			} `json:"caller"`
		}
		if len(c.Echo) > 0 && json.Unmarshal(c.Echo, &echo) == nil && echo.Caller.Type != "" &&
			echo.Caller.Type != "direct" {
			return true
		}
	}
	return false
}

// ProgramLimit is how long a batch may last from its submission on because of who made its calls; 0: any time.
func ProgramLimit(b *toolyard.Batch) time.Duration {
	switch {
	case !ByProgram(b.Calls):
		return 0
	case b.Options.ProgramTimeoutMS > 0:
		return Milliseconds(b.Options.ProgramTimeoutMS)
	}
	return toolyard.DefaultProgramTimeout
}

// Milliseconds is a time limit that somebody wrote: one past the longest time there is is that time.
func Milliseconds(ms int64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}
