package events

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/toolyard/toolyard"
)

// ErrNewer is wrapped by every error about what a newer version wrote and this one does not know: an event, a key,
// settings. It is to be left to a process of that version.
var ErrNewer = errors.New("a newer version wrote it")

// NewerError is the error of an event that this version does not know, and that names a newer one.
type NewerError struct{ Newer }

func (e *NewerError) Error() string {
	return fmt.Sprintf("event %q of type %q: %s (wire version %d); this is wire version %d",
		e.ID, e.Type, ErrNewer, e.Needs(), toolyard.WireVersion)
}

// Is makes it an [ErrNewer].
func (e *NewerError) Is(target error) bool { return target == ErrNewer }

// Newer stands for such an event in what is only looked at. It is never stored, and encoded again it is what it was.
type Newer struct {
	ID   string
	Type Type
	// Version is the wire version of who wrote the event, and MinReaderVersion the lowest that may act on it, where it
	// says so.
	Version, MinReaderVersion int
	Data                      json.RawMessage
}

// Needs is the wire version that certainly knows the event.
func (n Newer) Needs() int { return max(n.Version, n.MinReaderVersion) }

// EventType implements [Body].
func (n Newer) EventType() Type { return n.Type }

// MinReader is the wire version that a reader must have at least.
func (n Newer) MinReader() int { return n.MinReaderVersion }

// MarshalJSON is the event's data as it was, or as text when it was no JSON.
func (n Newer) MarshalJSON() ([]byte, error) {
	if json.Valid(n.Data) {
		return n.Data, nil
	}
	return json.Marshal(string(n.Data))
}

// OrNewer makes what [Decode] says of an event one that is only looked at: what is newer is a [Newer].
func OrNewer(b Body, err error) (Body, error) {
	if newer, ok := errors.AsType[*NewerError](err); ok {
		return newer.Newer, nil
	}
	return b, err
}
