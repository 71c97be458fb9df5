package broker

import (
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

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
