package client

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

// TestRepeated: calls that are there already are known by their ids, and are the same only with the same content.
func TestRepeated(t *testing.T) {
	have := []toolyard.Call{{ID: "a", Tool: "t", Input: json.RawMessage(`{"x":1,"y":2}`)}, {ID: "b", Tool: "t"},
		{ID: "c", Tool: "t", Incomplete: true, Input: json.RawMessage(`"{"`)}}
	for name, c := range map[string]struct {
		calls []toolyard.Call
		at    int
		again bool
	}{
		"all":                    {have, 0, true},
		"the last":               {have[2:], 2, true},
		"otherwise written":      {[]toolyard.Call{{ID: "a", Tool: "t", Input: json.RawMessage(`{ "y": 2, "x": 1 }`)}}, 0, true},
		"whole where it was cut": {[]toolyard.Call{{ID: "c", Tool: "t", Input: json.RawMessage(`{}`)}}, 2, true},
		"another input":          {[]toolyard.Call{{ID: "a", Tool: "t", Input: json.RawMessage(`{"x":2}`)}}, 0, false},
		"another tool":           {[]toolyard.Call{{ID: "b", Tool: "u"}}, 0, false},
		"another order":          {[]toolyard.Call{have[1], have[0]}, 0, false},
		"more than there are":    {append(have[1:], toolyard.Call{ID: "d", Tool: "t"}), 0, false},
		"without an id":          {[]toolyard.Call{{Tool: "t"}}, 0, false},
	} {
		if at, again := repeated(have, c.calls); again != c.again || again && at != c.at {
			t.Errorf("%s: at %d, %t", name, at, again)
		}
	}
}

// TestDecisionsAreChecked: a decision says yes or no, and a denial has nothing that goes with an
// approval.
func TestDecisionsAreChecked(t *testing.T) {
	for field, d := range map[string]Decision{
		"":         {Verdict: Allow, By: "ann", Input: json.RawMessage(`{}`), InputSHA256: "00", ForSession: true},
		"decision": {By: "ann"},
		"reason":   {Verdict: Deny, By: "ann", Reason: strings.Repeat("r", MaxReasonBytes+1)},
		"input":    {Verdict: Deny, By: "ann", Input: json.RawMessage(`{}`)},
		"remember": {Verdict: Deny, By: "ann", ForSession: true},
	} {
		err := d.check()
		if in, ok := errors.AsType[*toolyard.InputError](err); field == "" && err != nil ||
			field != "" && (!ok || in.Field != field) {
			t.Errorf("%q: %v", field, err)
		}
	}
	if err := (&Decision{Verdict: Deny, By: "ann", Reason: "no"}).check(); err != nil {
		t.Error(err)
	}
}
