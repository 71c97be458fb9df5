package events

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/toolyard/toolyard/internal/version"
)

// ErrNewer is wrapped by every error about an event, a key or settings that a newer version wrote and this one does not
// know. Leave them to a process of that version.
var ErrNewer = errors.New("a newer version wrote it")

// NewerError is the error of an unknown event that names a newer version.
type NewerError struct{ Newer }

func (e *NewerError) Error() string {
	return fmt.Sprintf("event %q of type %q: %s (wire version %d); this is wire version %d",
		e.ID, e.Type, ErrNewer, e.Needs(), version.Wire)
}

// Is makes it match [ErrNewer].
func (e *NewerError) Is(target error) bool { return target == ErrNewer }

// Newer represents such an event for readers. It is never stored, and encodes to its original form.
type Newer struct {
	ID   string
	Type Type
	// Version is the wire version of the event's writer, and MinReaderVersion the lowest that may act on it, if the
	// event has one.
	Version, MinReaderVersion int
	Data                      json.RawMessage
}

// Needs is a wire version that certainly knows the event.
func (n Newer) Needs() int { return max(n.Version, n.MinReaderVersion) }

// EventType implements [Body].
func (n Newer) EventType() Type { return n.Type }

// MinReader is the minimum wire version of a reader.
func (n Newer) MinReader() int { return n.MinReaderVersion }

// MarshalJSON returns the event's original data, or a string if it was not JSON.
func (n Newer) MarshalJSON() ([]byte, error) {
	if json.Valid(n.Data) {
		return n.Data, nil
	}
	return json.Marshal(string(n.Data))
}

// OrNewer turns a newer event's error from [Decode] into a [Newer], for code that only reads.
func OrNewer(b Body, err error) (Body, error) {
	if newer, ok := errors.AsType[*NewerError](err); ok {
		return newer.Newer, nil
	}
	return b, err
}
