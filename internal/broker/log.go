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

// Over reports whether nothing follows an event of a batch.
func Over(r batch.Record) bool {
	switch body := r.Body.(type) {
	case events.Refused: // one in the place of the plan is followed by the reply
		return r.Chain == batch.ChainReply
	case events.Reply:
		return body.Completed
	}
	return false
}

// Quiet says when who waits for a batch asks [Log.Forsaken]: after a few looks that found nothing, and then now and
// then.
type Quiet struct{ looks int }

const (
	askAfter = 5
	askEvery = 60
)

// Long takes in a look, and reports whether it is time to ask.
func (q *Quiet) Long(news bool) bool {
	if q.looks++; news {
		q.looks = 0
	}
	return q.looks%askEvery == askAfter
}
