package broker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
)

// The limits of what a session keeps.
const (
	MaxRemembered   = 1_000    // rules that people have allowed
	MaxLoaded       = 1_000    // deferred tools
	MaxContextKeys  = 100      // settings of tools
	MaxContextBytes = 64 << 10 // of all keys and values of those settings
)

// Session is what is kept of a conversation between its batches. The zero Session is a new one.
type Session struct {
	// Alone says that nobody is there to ask, whatever a batch says.
	Alone bool `json:"alone,omitempty"`
	// Loaded are the deferred tools whose schemas the model has seen.
	Loaded []string `json:"loaded,omitempty"`
	// Remembered are the rules that people have allowed for the rest of the session.
	Remembered []string `json:"remembered,omitempty"`
	// Context is what tools have set for the calls behind them.
	Context map[string]string `json:"context,omitempty"`
	Changed time.Time         `json:"changed"`
	// MinReader is the wire version that a reader must have at least, where a version has put in what older ones must
	// not pass over.
	MinReader int `json:"min_reader,omitempty"`
}

// Load adds deferred tools, each once.
func (s *Session) Load(names ...string) {
	s.Loaded = addEach(s.Loaded, names)
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

func (s *Session) check() error {
	size := 0
	for k, v := range s.Context {
		size += len(k) + len(v)
	}
	for _, l := range []struct {
		what       string
		have, most int
	}{{"remembered approvals", len(s.Remembered), MaxRemembered}, {"loaded tools", len(s.Loaded), MaxLoaded},
		{"context keys", len(s.Context), MaxContextKeys}, {"bytes of context", size, MaxContextBytes}} {
		if l.have > l.most {
			return fmt.Errorf("%w: the session would have %d %s; at most %d are kept", ErrFull, l.have, l.what, l.most)
		}
	}
	return nil
}

func sessionKey(a toolyard.Agent, s toolyard.Session) string {
	return Escape(string(a)) + "." + Escape(string(s))
}

// Session reads a session; one that was never changed is new.
func (b *Broker) Session(ctx context.Context, a toolyard.Agent, s toolyard.Session) (Session, error) {
	v, _, _, err := load[Session](ctx, b.sessions, sessionKey(a, s))
	if err != nil {
		return v, fmt.Errorf("read session %s of %s: %w", s, a, err)
	}
	return v, nil
}

// ChangeSession changes a session, against all others who do. change may be called several times. What would pass a limit
// of sessions wraps [ErrFull], and changes nothing.
func (b *Broker) ChangeSession(ctx context.Context, a toolyard.Agent, s toolyard.Session, change func(*Session)) (Session, error) {
	v, _, err := swap(ctx, b.sessions, sessionKey(a, s), seen[Session]{}, false, func(v Session) (Session, error) {
		before := v.Changed
		v.Changed = time.Time{}
		change(&v)
		v.Changed = before
		if err := v.check(); err != nil {
			return v, err
		}
		v.Changed = time.Now().UTC()
		return v, nil
	})
	if err != nil {
		return v, fmt.Errorf("change session %s of %s: %w", s, a, err)
	}
	return v, nil
}
