package events

import (
	"github.com/cloudevents/sdk-go/v2/event"
)

// DecodeJSON reads a CloudEvent in structured mode, such as a line of an event log. Its errors are those of [Decode].
func DecodeJSON(text []byte) (Meta, Body, error) {
	var e event.Event
	if err := e.UnmarshalJSON(text); err != nil {
		return Meta{}, nil, &UnreadableError{Problem: "it is no CloudEvent in JSON: " + err.Error()}
	}
	return Decode(e)
}
