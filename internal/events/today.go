//go:build !nextversion

package events

import "github.com/cloudevents/sdk-go/v2/event"

// nextBodies are bodies that only the build of the next version knows.
var nextBodies []Body

// inNextForm changes an event to the form of the next version.
func inNextForm(*event.Event, Body) {}
