package toolyard

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// The tools of background calls. Workers offer them where their operator wants that; see docs/background.md.
const (
	BackgroundStart = "background_start" // starts a call that goes on behind its batch
	BackgroundCheck = "background_check" // says how it stands
	BackgroundWait  = "background_wait"  // waits for its end
	BackgroundStop  = "background_stop"  // stops it
	// BackgroundPrefix begins the names of all of them.
	BackgroundPrefix = "background_"
)

// The limits of background calls.
const (
	// MaxBackgroundCalls is how many background calls one session may have at a time at most, whatever the operator
	// says, and DefaultBackgroundCalls how many if the operator says nothing.
	MaxBackgroundCalls     = 64
	DefaultBackgroundCalls = 8
	// DefaultBackgroundTime is how long a background call may run if neither the operator nor the call says anything.
	DefaultBackgroundTime = time.Hour
	// MaxBackgroundWait is how long one call of a tool waits for the end of a background call.
	MaxBackgroundWait = 5 * time.Minute
)

// BackgroundStartInput is the input of [BackgroundStart].
type BackgroundStartInput struct {
	Tool  string          `json:"tool"`
	Input json.RawMessage `json:"input,omitempty"`
	// Workspace has the call act on its batch's workspace: it holds the workspace as long as it runs.
	Workspace bool `json:"workspace,omitempty"`
	// TimeoutMS is how long the call may run, in milliseconds; 0: as long as the operator allows.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// WaitMS is how long the start waits for the call's end, in milliseconds. AsResult has a call that is over by then
	// give its result as that of the start.
	WaitMS   int64 `json:"wait_ms,omitempty"`
	AsResult bool  `json:"as_result,omitempty"`
}

// BackgroundInput is the input of the other tools of background calls.
type BackgroundInput struct {
	Handle BatchID `json:"handle"`
	// WaitMS is how long [BackgroundWait] waits, in milliseconds; nil: its default.
	WaitMS *int64 `json:"wait_ms,omitempty"`
}

// The beginnings of the ids of background calls.
const (
	prefixBackground          = "bg-"
	prefixBackgroundWorkspace = "bgw-"
)

// BackgroundID is the id of the batch that one call of [BackgroundStart] starts, which is its handle. It is the same
// whenever that call runs again.
func BackgroundID(k BatchKey, index int, workspace bool) BatchID {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", index, k.ID))
	prefix := prefixBackground
	if workspace {
		prefix = prefixBackgroundWorkspace
	}
	const bytes = 10 // enough to be unique among the batches of one agent
	return BatchID(prefix + hex.EncodeToString(sum[:bytes]))
}

// Background reports whether a batch of this id is a background call, and whether it acts on its workspace. Such ids
// are refused for all other batches.
func (id BatchID) Background() (background, workspace bool) {
	workspace = strings.HasPrefix(string(id), prefixBackgroundWorkspace)
	return workspace || strings.HasPrefix(string(id), prefixBackground), workspace
}
