package broker

import (
	"encoding/json"
	"fmt"

	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

// Logged is one stored event of a batch with its envelope.
type Logged struct {
	batch.Record
	Meta events.Meta
}

// JSON is the event as a CloudEvent in structured mode. In place of one that cannot be read stands one that says so,
// with attributes of its own: those that were read may be what is wrong.
func (l Logged) JSON() ([]byte, error) {
	meta, body := l.Meta, l.Body
	if u, ok := body.(events.Unreadable); ok {
		u.Chain = string(l.Chain)
		body = u
		meta = events.Meta{ID: fmt.Sprintf("unreadable-%s-%d", l.Chain, l.Seq), Source: "/unreadable", Time: l.Time}
	}
	e, err := events.Encode(meta, body)
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
func (q *Quiet) Long() bool {
	q.looks++
	return q.looks%askEvery == askAfter
}
