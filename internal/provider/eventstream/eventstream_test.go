package eventstream

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestCallsAreBounded: inputs of open calls count together, and no longer when their call went out.
func TestCallsAreBounded(t *testing.T) {
	var c Calls
	half := json.RawMessage(`"` + strings.Repeat("x", MaxOpenBytes/2) + `"`)
	for range 3 {
		a, err := c.Begin(toolyard.Call{ID: "a"})
		must.OK(t, err)
		b, err := c.Begin(toolyard.Call{ID: "b"})
		must.OK(t, err)
		for _, o := range []*Open{b, a} {
			must.OK(t, c.Grow(o, half))
		}
		in, ok := errors.AsType[*toolyard.InputError](c.Grow(a, json.RawMessage(`"x"`)))
		if !ok || !in.TooLarge {
			t.Fatalf("past the limit: %v", in)
		}
		c.bytes, a.size = c.bytes-1, a.size-1
		a.text = a.text[:len(half)-2]
		if err := c.Whole(b, toolyard.Call{ID: "b", Input: half}); err == nil || c.bytes != MaxOpenBytes+2 {
			t.Fatalf("%v, and %d bytes", err, c.bytes)
		}
		if err := c.Whole(b, toolyard.Call{ID: "b", Input: half[2:]}); err != nil || c.bytes != MaxOpenBytes {
			t.Fatalf("%v, and %d bytes", err, c.bytes)
		}
		if out := c.takeComplete(); len(out) != 0 {
			t.Fatalf("%v went out before the first", out)
		}
		must.OK(t, c.Whole(a, toolyard.Call{ID: "a"}))
		if out := c.takeComplete(); len(out) != 2 || out[0].ID != "a" || c.bytes != 0 {
			t.Fatalf("%v went out, and %d bytes are left", out, c.bytes)
		}
	}
}

// TestInside: an error in a document that was made of a part of an event has the part's place.
func TestInside(t *testing.T) {
	for field, want := range map[string]string{"content[0].id": "events[3].block.id", "content[0]": "events[3].block",
		"": "events[3].block", "x": "events[3].block.x"} {
		if err := Inside("events[3].block", "content[0]",
			strictjson.Errorf(field, "is wrong")); err.(*toolyard.InputError).Field != want {
			t.Errorf("%q becomes %v", field, err)
		}
	}
	if other := errors.New("other"); Inside("x", "", other) != other {
		t.Error("another error is changed")
	}
}
