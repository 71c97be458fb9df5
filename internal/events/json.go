package events

import (
	"github.com/cloudevents/sdk-go/v2/event"
)

// DecodeJSON reads a CloudEvent in structured mode, such as a line of an event log. Its errors are those of [Decode].
// There an event that could not be read is an [Unreadable].
func DecodeJSON(text []byte) (Meta, Body, error) {
	var e event.Event
	if err := e.UnmarshalJSON(text); err != nil {
		return Meta{}, nil, &UnreadableError{Problem: "it is no CloudEvent in JSON: " + err.Error()}
	}
	if e.Type() != string(EventUnreadable) {
		return Decode(e)
	}
	v := EnvelopeOf(&e)
	var u Unreadable
	if err := unmarshal(e.Data(), &u); err != nil {
		return v.Meta, nil, v.unreadable("the data is not of its type: %s", misfit(err))
	}
	return v.Meta, u, nil
}
