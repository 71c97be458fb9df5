package broker

import (
	"encoding/json"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/tool"
)

// JudgeTimeout is how long a tool may take to judge a call: a second, and longer in a system that was created for long
// round trips. No answer means UNSAFE.
func (s Settings) JudgeTimeout() time.Duration { return max(time.Second, s.CallAckWait/4) }

// JudgeWait is how long a dispatcher waits for a worker's answer about all calls of a request.
func (s Settings) JudgeWait() time.Duration { return s.JudgeTimeout() * 3 / 2 }

// The limits of checks, and of dry runs, which are checks of another kind.
const (
	CheckWait = 10 * time.Second // how long a worker may take to check an input that a person has changed
	MaxChecks = 16               // checks that run in a worker at a time
)

// The limits of repairs. Requests for repairs share the places of checks.
const (
	RepairTimeout   = 10 * time.Second            // how long a program's own repair may take for the calls of a request
	RepairWait      = RepairTimeout + time.Second // how long a dispatcher waits for it
	MaxProblemBytes = 2_000                       // bytes of what it is told is wrong with an input
	MaxMendedBytes  = 256 << 10                   // bytes of the mended inputs of a plan, and of those in one answer
)

// JudgeCall is one call whose class only the tool's code can determine.
type JudgeCall struct {
	Index       int             `json:"index"`
	Tool        string          `json:"tool"`
	Declaration string          `json:"declaration"`
	Input       json.RawMessage `json:"input"`
	// Check asks whether the call could run with an input that a person has changed, and is the request that would be
	// sent. The list then has only this call.
	Check *events.Requested `json:"check,omitempty"`
	// DryRun, with Check, asks for the result of a dry run instead.
	DryRun bool `json:"dry_run,omitempty"`
	// Repair asks for an input in place of this one, which does not fit the tool's schema, and says what is wrong with
	// it. All calls of the list then do.
	Repair string `json:"repair,omitempty"`
}

// Judged is a worker's answer for one call.
type Judged struct {
	Index     int            `json:"index"`
	Judgement tool.Judgement `json:"judgement"`
	// Failed says why the call could not be judged; empty if it was.
	Failed string `json:"failed,omitempty"`
	// Checked says that the worker has checked whether the call could run. Problem says why it could not; empty if it
	// could.
	Checked bool   `json:"checked,omitempty"`
	Problem string `json:"problem,omitempty"`
	// DryRun is the result of a dry run; nil if none was asked for.
	DryRun *toolyard.Result `json:"dry_run,omitempty"`
	// Repaired is the input that the program's own repair has made, and Note what it says of it. Nil: it made none.
	Repaired json.RawMessage `json:"repaired,omitempty"`
	Note     string          `json:"note,omitempty"`
}
