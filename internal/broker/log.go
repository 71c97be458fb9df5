package broker

import (
	"encoding/json"

	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

// Logged is one stored event of a batch with what stands around it.
type Logged struct {
	batch.Record
	Meta events.Meta
}

// JSON is the event as a CloudEvent in structured mode.
func (l Logged) JSON() ([]byte, error) {
	e, err := events.Encode(l.Meta, l.Body)
	if err != nil {
		return nil, err
	}
	return json.Marshal(e)
}
