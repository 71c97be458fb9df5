//go:build nextversion

package events

import (
	"bytes"

	"github.com/toolyard/toolyard/internal/version"
)

// Noted is an event that only the next version knows. An owner writes it after the plan.
type Noted struct {
	Note string `json:"note"`
}

// EventType implements [Body].
func (Noted) EventType() Type { return "dev.toolyard.batch.noted.v1" }

var nextBodies = []Body{Noted{}}

// inNextForm changes an event to the form of the next version: work has another field, which today's workers ignore;
// and they must not run calls that need a claim.
func inNextForm(s *Stored, b Body) {
	work, ok := b.(Requested)
	if !ok {
		return
	}
	s.Data = bytes.Replace(s.Data, []byte("{"), []byte(`{"hint":{"of":"tomorrow"},`), 1)
	for _, c := range work.Calls {
		if c.Claim {
			s.MinReader = version.Wire
		}
	}
}
