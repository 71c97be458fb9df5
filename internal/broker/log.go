package broker

import (
	"encoding/json"

	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

// Logged is one stored event of a batch with its envelope.
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

// Over reports whether no event of the batch follows this one.
func Over(r batch.Record) bool {
	switch body := r.Body.(type) {
	case events.Refused: // one in place of the plan is followed by the reply
		return r.Chain == batch.ChainReply
	case events.Reply:
		return body.Completed
	}
	return false
}

// Quiet says when a waiter for a batch should call [Log.Forsaken]: after a few polls without news, and then
// occasionally.
type Quiet struct{ looks int }

const (
	askAfter = 5
	askEvery = 60
)

// Long counts a poll, and reports whether it is time to call it.
func (q *Quiet) Long(news bool) bool {
	if q.looks++; news {
		q.looks = 0
	}
	return q.looks%askEvery == askAfter
}
