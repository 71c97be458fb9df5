package pipeline

import (
	"encoding/json"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// Job is one execution of one call: what was pinned at plan, and where it runs.
type Job struct {
	Key   toolyard.BatchKey
	Index int
	// Call is the call; its Tool may be an alias, or the name that plan has resolved already.
	Call    toolyard.Call
	Session toolyard.Session
	// Workspace is the batch's, and WorkspaceDir its directory on this worker; empty where it has none.
	Workspace    toolyard.Workspace
	WorkspaceDir string
	// Interactive says that a person can be asked.
	Interactive bool

	// Declaration is the hash of the declaration that was pinned at plan. A worker hands a call back whose hash is
	// not its own before it gets here; one that comes through all the same ends as internal_error. Empty: not pinned.
	Declaration string
	// Judgement is pinned at plan. The zero judgement means the strictest.
	Judgement tool.Judgement
	// WasConcurrent says that other calls run beside this one.
	WasConcurrent bool
	// Attempt counts the executions of the call, this one included, from 1.
	Attempt int
	// FencingToken is the number of the ticket that the call's group holds; 0 for none.
	FencingToken uint64
	// QueueMS is the time from being queued to being taken, in milliseconds.
	QueueMS float64
	// CallTimeout caps the execution under the tool's own timeout. 0: no further cap.
	CallTimeout time.Duration
	// Rules are the batch's own. Nil: none.
	Rules Rules

	// Progress gets what the tool reports while it runs; it must not block. Nil: dropped.
	Progress func(tool.Progress)
	// CommitPoint says whether this worker may still act for the call; see [tool.Env]. Nil: as long as the context lasts.
	CommitPoint func() error
	// Blobs reads offloaded results of the same agent, for the tool. Nil: the pool has none.
	Blobs tool.Blobs
	// Observe gets the observable copy of the input and the hash of what will run, again after a hook has changed it. It
	// must not block. Nil: nobody asks.
	Observe func(observable json.RawMessage, inputHash string)
}
