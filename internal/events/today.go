//go:build !nextversion

package events

import "github.com/cloudevents/sdk-go/v2/event"

// nextBodies are those that only the build of the next version knows.
var nextBodies []Body

// inNextForm makes of an event what the next version writes.
func inNextForm(*event.Event, Body) {}
