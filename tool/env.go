package tool

import (
	"context"
	"errors"

	"github.com/toolyard/toolyard"
)

// Env is what a call may know of where it runs. It is frozen: a copy for each call.
type Env struct {
	Agent   toolyard.Agent
	Batch   toolyard.BatchID
	Session toolyard.Session
	Index   int
	CallID  string

	// Workspace is the batch's workspace, and WorkspaceDir its directory on this worker; empty where it has none.
	Workspace    toolyard.Workspace
	WorkspaceDir string
	// Root is that directory as the worker holds it since its start. Nil where it has none.
	Root Root

	// Hidden reports whether permission rules hide a path of the workspace from this call, by its own name or that of a
	// directory above it. The path is relative to the workspace, clean and without symbolic links. What is hidden is
	// not read, listed, named or written. Nil: nothing is hidden.
	Hidden func(path string) bool

	// Context is what earlier calls of the session have set; see [SessionChange]. It is this call's own copy.
	Context map[string]string

	// Attempt counts the executions of this call, from 1.
	Attempt int
	// IdempotencyKey is the same for every attempt of this call; pass it on to what can tell repeats by it.
	IdempotencyKey string
	// FencingToken grows with each group that holds the workspace; refuse effects that carry a smaller one than the
	// last. 0 when the call holds no ticket.
	FencingToken uint64

	// TraceParent is the W3C trace context of this attempt, for what the tool asks in turn; empty where there is none.
	TraceParent string

	// Progress tells whoever watches, and gives the call as long again as its idle timeout allows. It is lossy, never
	// blocks, and may be called often and from any goroutine: a few times a second what was reported since is told as
	// one report, of which fraction and status are the last ones and output all pieces. Secrets are taken out of whole
	// lines. Never nil inside a tool.
	Progress func(Progress)
	// CommitPoint reports an error when this worker may no longer act for this call. Ask right before an effect that
	// others can see (a rename, say). Never nil inside a tool.
	CommitPoint func() error
	// Blobs reads offloaded results of the same agent. Nil where the pool has none.
	Blobs Blobs
	// Tools are those that the call's batch sees, in their order, without what a rule has taken out. Nil where nobody
	// knows.
	Tools func(ctx context.Context) ([]Offered, error)
	// Granted finds a credential that the worker's operator has granted to this tool; see [Env.Secret]. Nil: none.
	Granted func(name string) (value string, ok bool)
}

// Root is a workspace's directory that a worker holds: what its path leads to may have been replaced since, this has
// not.
type Root interface {
	// Dir is its path, with no symbolic link in it.
	Dir() string
	// Check reports an [*Error] of code sandbox_violation when that path leads elsewhere by now, or nothing may be done
	// in it.
	Check() error
}

// Secret returns a credential that the worker's operator has granted to this tool, by its name. It is in no event: ask
// for it where it is used, and put it into no output. The error is an [*Error] for the tool to return.
func (e Env) Secret(name string) (string, error) {
	if e.Granted != nil {
		if value, ok := e.Granted(name); ok {
			return value, nil
		}
	}
	return "", SetupRequired("this tool needs the credential %q, and the worker's operator has not granted it", name)
}

// Offered is a tool as a batch sees it. It is not to be changed.
type Offered struct {
	Declaration
	// WireName is the name for providers that take letters, digits, "_" and "-", at most 64 of them.
	WireName string
	// Deferred says that the tool's schema is not in the prompt until it is loaded.
	Deferred bool
}

// Progress is one report of a running call.
type Progress struct {
	// Fraction is 0 to 1, or negative when unknown.
	Fraction float64 `json:"fraction"`
	Status   string  `json:"status,omitempty"`
	// Output is a piece of the output so far.
	Output string `json:"output,omitempty"`
}

// Blobs reads offloaded results.
type Blobs interface {
	// ReadBlob returns the whole content behind ref, or an error that wraps [ErrNoBlob] when there is none for this
	// agent.
	ReadBlob(ctx context.Context, ref string) ([]byte, error)
}

// ErrNoBlob is wrapped by [Blobs] when a reference leads nowhere.
var ErrNoBlob = errors.New("no such result")
