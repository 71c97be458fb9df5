package tool

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
)

// Env describes the environment of one call. Each call gets its own copy.
type Env struct {
	Agent   toolyard.Agent
	Batch   toolyard.BatchID
	Session toolyard.Session
	Index   int
	CallID  string

	// Workspace is the batch's workspace. WorkspaceDir is its directory on this worker, or empty if it has none.
	Workspace    toolyard.Workspace
	WorkspaceDir string
	// Root is that directory as it was opened when the worker started. Nil if there is none.
	Root Root

	// Background is how long a background call may run; 0: the call is none. Such a call has no WorkspaceDir and no
	// Root unless it asked for its workspace.
	Background time.Duration

	// Hidden reports whether permission rules hide a path of the workspace, or a directory above it, from this call.
	// The path is relative to the workspace, clean and without symbolic links. A tool must not read, list, name or
	// write what is hidden. Nil: nothing is hidden.
	Hidden func(path string) bool

	// Context has the values that earlier calls of the session set; see [SessionChange]. It is a copy, which the
	// tool may change. Never nil inside a tool.
	Context map[string]string

	// Attempt is the number of this attempt in the log, from 1. One before it need not have run the tool: its worker
	// may have gone between taking the call and running it.
	Attempt int
	// IdempotencyKey is the same for every attempt of this call. Pass it to services that recognise repeats by a key.
	IdempotencyKey string
	// FencingToken grows with each group that holds the workspace, or a name in it. A store that checks it refuses a
	// smaller token than the last one for the same name. 0 if the call holds no ticket.
	FencingToken uint64
	// Locks are the names in the workspace that the call's group has in place of the whole; see [Declaration].Locks.
	// Calls of other names run beside this one. Empty: nothing else runs in the workspace that could disturb the call.
	Locks []Lock

	// TraceParent is the W3C trace context of this attempt, for requests that the tool makes. Empty if there is none.
	TraceParent string
	// TraceState is the "tracestate" that goes beside it, of 512 bytes at most, and Baggage the agent's W3C "baggage",
	// of 2,048 bytes at most. Empty if there is none. Send baggage only to whom the agent may tell what is in it.
	TraceState, Baggage string

	// Progress reports progress, and restarts the idle timeout. It never blocks, may lose reports, and may be called
	// often and from any goroutine: reports are merged and sent a few times a second, with the last fraction and status
	// and all pieces of output. Secrets are removed from whole lines. Never nil inside a tool.
	Progress func(Progress)
	// Redact removes secrets from a text, as is done to outputs; see [Env.Cut]. Nil: nothing is removed.
	Redact func(text string) string
	// CommitPoint returns an error if this worker may no longer act for this call. Call it right before an effect that
	// others can see, such as a rename. Never nil inside a tool.
	CommitPoint func() error
	// Blobs reads offloaded results of the same agent. Nil if the pool stores none.
	Blobs Blobs
	// Tools returns the tools that the batch sees, in their order, without those that rules remove. Nil if they are not
	// known.
	Tools func(ctx context.Context) ([]Offered, error)
	// Call calls another tool that the batch is offered, as a batch of its own, and returns its result: an error is
	// about the call itself, and the tool's failure is a result. Dispatchers allow it to [toolyard.RunCodeTool] alone,
	// so many times for each call. Nil: this worker cannot.
	Call func(ctx context.Context, name string, input json.RawMessage) (toolyard.Result, error)
	// Granted looks up a credential that the worker's operator granted to this tool; see [Env.Secret]. Nil: there are
	// none.
	Granted func(name string) (value string, ok bool)
}

// Root is a workspace's directory, opened when the worker started. Its path may have been replaced since.
type Root interface {
	// Dir returns its path, without symbolic links.
	Dir() string
	// Check returns an [*Error] with the code sandbox_violation if the path leads to another directory now, or the
	// directory may not be used.
	Check() error
}

// Secret returns a credential that the worker's operator granted to this tool, by its name. Events never contain it. Do
// not put it into an output. The error is an [*Error] that the tool can return.
func (e Env) Secret(name string) (string, error) {
	if e.Granted != nil {
		if value, ok := e.Granted(name); ok {
			return value, nil
		}
	}
	return "", SetupRequired("this tool needs the credential %q, and the worker's operator has not granted it", name)
}

// SecretRoom is how many bytes around a cut are looked at for a secret that stands across it.
const SecretRoom = 4 << 10

// Cut returns the first n characters of a text, and whether there were more. A text that is cut has no secrets: half a
// secret is not recognised, so nothing behind the tool could remove it. A whole text is returned as it is.
func (e Env) Cut(text string, n int) (shown string, more bool) {
	shown, more = firstChars(text, n)
	if !more || e.Redact == nil {
		return shown, more
	}
	// A text without its secrets is shorter, so that more of it may be shown. What is looked at must end so far behind
	// that no secret which is cut there can be shown.
	for end := len(shown) + SecretRoom; end < len(text); end *= 2 {
		clean := e.Redact(text[:end])
		if safe, _ := firstChars(withoutHalf(text[:end], clean), n); utf8.RuneCountInString(safe) == n {
			return safe, true
		}
	}
	shown, _ = firstChars(e.Redact(text), n)
	return shown, true
}

// CutOff returns what may be shown of a text whose end is missing, because a program was stopped while it wrote: a text
// without secrets, and without the end where half a secret may be, of [SecretRoom] at most. Without Redact, only half a
// character is taken away.
func (e Env) CutOff(text string) string {
	for i := len(text) - 1; i >= 0 && i >= len(text)-utf8.UTFMax; i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRuneInString(text[i:]) {
				text = text[:i]
			}
			break
		}
	}
	if e.Redact == nil {
		return text
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	return withoutHalf(text, e.Redact(text))
}

// withoutHalf is the beginning of a text that was cut and has no secrets any more (clean) in which no half of one can
// be: it stands at the end, behind all that was taken out.
func withoutHalf(text, clean string) string {
	same := 0
	for same < min(len(text), len(clean), SecretRoom) && text[len(text)-1-same] == clean[len(clean)-1-same] {
		same++
	}
	end := len(clean) - same
	for end > 0 && end < len(clean) && !utf8.RuneStart(clean[end]) {
		end--
	}
	return clean[:end]
}

// firstChars returns the first n characters of s, and whether there were more.
func firstChars(s string, n int) (string, bool) {
	if len(s) <= n {
		return s, false
	}
	for i := range s {
		if n == 0 {
			return s[:i], true
		}
		n--
	}
	return s, false
}

// Offered is a tool as a batch sees it. Do not modify it.
type Offered struct {
	Declaration
	// WireName is the name for providers that accept at most 64 letters, digits, "_" and "-".
	WireName string
	// Deferred says that the tool's schema is not in the prompt until it is loaded.
	Deferred bool
}

// Progress is one report of a running call.
type Progress struct {
	// Fraction is 0 to 1, or negative if it is not known.
	Fraction float64 `json:"fraction"`
	Status   string  `json:"status,omitempty"`
	// Output is a piece of the output so far.
	Output string `json:"output,omitempty"`
}

// Blobs reads offloaded results.
type Blobs interface {
	// ReadBlob returns the whole content of ref. The error wraps [ErrNoBlob] if this agent has no such result.
	ReadBlob(ctx context.Context, ref string) ([]byte, error)
}

// ErrNoBlob is wrapped by the errors of [Blobs] for a reference that does not exist.
var ErrNoBlob = errors.New("no such result")
