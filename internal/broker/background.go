package broker

import (
	"slices"
	"time"

	"github.com/toolyard/toolyard"
)

// BackgroundCall is a background call in the list of its session.
type BackgroundCall struct {
	ID toolyard.BatchID `json:"id"`
	At time.Time        `json:"at"` // when it was started
}

// HasBackground reports whether a session lists a background call.
func (s *Session) HasBackground(id toolyard.BatchID) bool {
	return slices.ContainsFunc(s.Background, func(c BackgroundCall) bool { return c.ID == id })
}

// AddBackground lists a background call, once. It reports whether the list has room for it.
func (s *Session) AddBackground(c BackgroundCall, most int) bool {
	switch {
	case s.HasBackground(c.ID):
		return true
	case len(s.Background) >= most:
		return false
	}
	s.Background = append(slices.Clone(s.Background), c)
	return true
}

// DropBackground takes background calls off the list.
func (s *Session) DropBackground(ids []toolyard.BatchID) {
	s.Background = slices.DeleteFunc(slices.Clone(s.Background), func(c BackgroundCall) bool {
		return slices.Contains(ids, c.ID)
	})
}

// BackgroundAsk is what a worker asks a dispatcher for a call of a tool of background calls. The dispatcher does what
// the call's input in the log says.
type BackgroundAsk struct {
	Call AskedCall `json:"call"`
	// InputSHA256 is the hash of the input that the worker is about to run.
	InputSHA256 string `json:"input_sha256"`
}

// BackgroundState is how a background call stands.
type BackgroundState string

// The states of a background call.
const (
	BackgroundQueued  BackgroundState = "queued"  // it has not begun
	BackgroundRunning BackgroundState = "running" // a worker has it
	BackgroundWaiting BackgroundState = "waiting" // a person has to decide
	BackgroundOver    BackgroundState = "over"    // it has its result
	BackgroundRefused BackgroundState = "refused" // it never began and never will
)

// BackgroundAnswer is a dispatcher's answer to a [BackgroundAsk].
type BackgroundAnswer struct {
	Handle toolyard.BatchID `json:"handle,omitempty"`
	State  BackgroundState  `json:"state,omitempty"`
	// Result is that of the call, when it is over.
	Result *toolyard.Result `json:"result,omitempty"`
	// Tail is the end of the call's output so far, while it runs.
	Tail OutputTail `json:"tail,omitzero"`
	// Code and Problem say why nothing was done, or why the call was refused, for the model.
	Code    toolyard.Code `json:"code,omitempty"`
	Problem string        `json:"problem,omitempty"`
}

// MaxTailBytes is how much of the output of a running background call its worker keeps.
const MaxTailBytes = 16 << 10

// OutputTail is the end of the output of a running call: whole lines without secrets, as they were told as progress.
type OutputTail struct {
	Text string `json:"text,omitempty"`
	// LostBytes is how much came before it.
	LostBytes int64 `json:"lost_bytes,omitempty"`
}
