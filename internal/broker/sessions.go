package broker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/tool"
)

// The limits of a session's state, in addition to those of package tool.
const (
	MaxRemembered = 1_000 // rules that people have allowed
	MaxLoaded     = 1_000 // deferred tools; those loaded first are dropped first
)

// Session is the stored state of a conversation between its batches. The zero Session is a new one.
type Session struct {
	// Unattended says that nobody is there to ask, whatever a batch says.
	Unattended bool `json:"alone,omitempty"`
	// Loaded are the deferred tools whose schemas the model has seen.
	Loaded []string `json:"loaded,omitempty"`
	// Remembered are the rules that people have allowed for the rest of the session.
	Remembered []string `json:"remembered,omitempty"`
	// Context is what tools have set for later calls.
	Context map[string]string `json:"context,omitempty"`
	// Interrupted is the last interrupt of the session; nil if there was none.
	Interrupted *Interrupt `json:"interrupted,omitempty"`
	// Background are the background calls that may be under way.
	Background []BackgroundCall `json:"background,omitempty"`
	Changed    time.Time        `json:"changed"`
	// MinReader is the minimum wire version of a reader. A version sets it if it stores what older ones must not
	// ignore.
	MinReader int `json:"min_reader,omitempty"`
}

// Interrupt stops the batches of a session that were submitted before it, also those that are not planned yet.
type Interrupt struct {
	// Through is the sequence of the last submission that came before it: in shard 0, and Others in the other shards.
	Through uint64   `json:"through"`
	Others  []uint64 `json:"others,omitempty"`
	events.Interrupted
}

// through is the sequence of the last submission of a shard that came before the interrupt.
func (i *Interrupt) through(shard int) uint64 {
	switch {
	case shard == 0:
		return i.Through
	case shard <= len(i.Others):
		return i.Others[shard-1]
	}
	return 0
}

// Stops reports whether a batch with this submission in a shard came before the interrupt.
func (i *Interrupt) Stops(submission uint64, shard int) bool { return submission <= i.through(shard) }

// InterruptOf returns the interrupt that stops a batch with this submission in a shard; nil if there is none.
func (s *Session) InterruptOf(submission uint64, shard int) *Interrupt {
	if s.Interrupted == nil || !s.Interrupted.Stops(submission, shard) {
		return nil
	}
	return s.Interrupted
}

// Interrupt notes an interrupt, unless a later one is noted. What the noted one stops stays stopped: of two at once,
// each may be the later one in some shards.
func (s *Session) Interrupt(i Interrupt) {
	was := s.Interrupted
	if was == nil {
		s.Interrupted = &i
		return
	}
	later := false
	others := make([]uint64, max(len(i.Others), len(was.Others)))
	for shard := range len(others) + 1 {
		through := max(i.through(shard), was.through(shard))
		later = later || through > was.through(shard)
		if shard == 0 {
			i.Through = through
		} else {
			others[shard-1] = through
		}
	}
	if i.Others = others; later {
		s.Interrupted = &i
	}
}

// LowerInterrupt has the session's interrupt stop no batch behind the newest submission of each shard. It reports
// whether the interrupt named later ones.
func (s *Session) LowerInterrupt(newest []uint64) (lowered bool) {
	if s.Interrupted == nil {
		return false
	}
	i := *s.Interrupted
	i.Others = slices.Clone(i.Others)
	for shard, last := range newest {
		if i.through(shard) <= last {
			continue
		}
		lowered = true
		if shard == 0 {
			i.Through = last
		} else {
			i.Others[shard-1] = last
		}
	}
	if lowered {
		s.Interrupted = &i
	}
	return lowered
}

// Load adds deferred tools, each once. Past [MaxLoaded] those that were loaded first are dropped: a call of one is told
// that it is not loaded, and the model loads it again.
func (s *Session) Load(names ...string) {
	s.Loaded = addEach(s.Loaded, names)
	s.Loaded = s.Loaded[max(0, len(s.Loaded)-MaxLoaded):]
}

// Set applies a change of tools to the context. Each call's change was checked against the limits when it was made. If
// another batch has changed the session since, what exceeds them is left out and returned.
func (s *Session) Set(change map[string]string) (left []string) {
	if whole := tool.MergeContext(s.Context, change); tool.ContextProblem(whole) == "" {
		s.Context = whole
		return nil
	}
	for _, k := range slices.SortedFunc(maps.Keys(change), func(a, b string) int {
		// Removals make room.
		return cmp.Or(cmp.Compare(min(len(change[a]), 1), min(len(change[b]), 1)), cmp.Compare(a, b))
	}) {
		with := tool.MergeContext(s.Context, map[string]string{k: change[k]})
		if tool.ContextProblem(with) != "" {
			left = append(left, k)
			continue
		}
		s.Context = with
	}
	return left
}

// Remember adds rules, each once.
func (s *Session) Remember(rules ...string) {
	s.Remembered = addEach(s.Remembered, rules)
}

func addEach(have, more []string) []string {
	out := slices.Clone(have)
	for _, v := range more {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// Check returns an error if the session exceeds a limit. It wraps [ErrFull].
func (s *Session) Check() error {
	if have := len(s.Remembered); have > MaxRemembered {
		return fmt.Errorf("%w: the session would have %d remembered approvals; at most %d are kept", ErrFull, have,
			MaxRemembered)
	}
	if have := len(s.Background); have > toolyard.MaxBackgroundCalls {
		return fmt.Errorf("%w: the session would have %d background calls; at most %d are possible", ErrFull, have,
			toolyard.MaxBackgroundCalls)
	}
	if problem := tool.ContextProblem(s.Context); problem != "" {
		return fmt.Errorf("%w: %s", ErrFull, problem)
	}
	return nil
}
