package pool

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestAClientsNameIsInItsEvents: whoever reads a log sees which program handed a batch in.
func TestAClientsNameIsInItsEvents(t *testing.T) {
	s := testenv.Server(t)
	testenv.Broker(t, s, "/dispatcher/test") // sets the system up
	nc := testenv.Conn(t, s)
	c, err := client.Connect(t.Context(), nc, client.Options{Name: "a reviewer/2"})
	must.OK(t, err)
	b := submit(t, c, toolyard.Batch{Calls: []toolyard.Call{{ID: "1", Tool: "t", Input: json.RawMessage(`{}`)}}})
	var sources []string
	for event, err := range b.Events(t.Context()) {
		var e struct{ Source string }
		must.OK(t, errors.Join(err, json.Unmarshal(event, &e)))
		sources = append(sources, e.Source)
	}
	if len(sources) != 1 || sources[0] != "/client/a%20reviewer%2F2" {
		t.Errorf("the events are of %q", sources)
	}
	_, err = client.Connect(t.Context(), nc, client.Options{Name: "\x00"})
	if bad, ok := errors.AsType[*toolyard.InputError](err); !ok || bad.Field != "name" {
		t.Errorf("a name that is none: %v", err)
	}
}
