package broker

import (
	"context"
	"encoding/json"

	"github.com/toolyard/toolyard"
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

// Log reads what is stored about a batch, in the order of [Tail].
func (b *Broker) Log(ctx context.Context, k toolyard.BatchKey) ([]Logged, error) {
	var out []Logged
	for t := b.Tail(k); ; {
		l, ok, err := t.Next(ctx)
		if err != nil {
			return out, err
		}
		if !ok {
			return out, nil
		}
		out = append(out, l)
	}
}
