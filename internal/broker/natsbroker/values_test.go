package natsbroker

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/admission"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/ticket"
	"github.com/toolyard/toolyard/internal/version"
)

// TestAQueueIsReadStrictly: a value that says who may act is understood completely, or left to another version.
func TestAQueueIsReadStrictly(t *testing.T) {
	for text, newer := range map[string]bool{
		`{"last":3,"queue":[{"n":3,"agent":"a","batch":"b","group":0,"mode":"shared","term":1}]}`: false,
		`{"last":3,"queue":[]}`:              false,
		`{"last":3,"queue":[],"moved":true}`: true,
		`{"last":3,"queue":[{"n":3,"agent":"a","batch":"b","group":0,"mode":"shared","until":"midday"}]}`: true,
		`{"last":3,"queue":[{"n":3,"agent":"a","batch":"b","group":0,"mode":"intent"}]}`:                  true,
	} {
		var q ticket.Queue
		err := decodeValue([]byte(text), &q)
		if errors.Is(err, events.ErrNewer) != newer || err == nil == newer {
			t.Errorf("%s: %v", text, err)
		}
		if newer && !reflect.DeepEqual(q, ticket.Queue{}) {
			t.Errorf("%s: it is read as %+v", text, q)
		}
	}
	for _, text := range []string{`{"last":"three"}`, `{"last":3`, `{"last":3} {}`, `[]`} {
		if err := decodeValue([]byte(text), new(ticket.Queue)); err == nil || errors.Is(err, events.ErrNewer) {
			t.Errorf("%s, which is broken: %v", text, err)
		}
	}
}

// TestASessionOfALaterVersionIsNotTouched when that version says so.
func TestASessionOfALaterVersionIsNotTouched(t *testing.T) {
	for reader, newer := range map[int]bool{0: false, version.Wire: false, version.Wire + 1: true} {
		err := decodeValue(fmt.Appendf(nil, `{"loaded":["x"],"min_reader":%d}`, reader), new(broker.Session))
		if errors.Is(err, events.ErrNewer) != newer {
			t.Errorf("one for readers from version %d on: %v", reader, err)
		}
	}
}

// TestWhatIsUnknownIsCarriedAlong: unknown fields are preserved, and known ones that were removed are not.
func TestWhatIsUnknownIsCarriedAlong(t *testing.T) {
	got, err := encodeValue([]byte(`{"alone":true,"loaded":["x"],"changed":"2026-11-22T00:00:00Z","title":{"a":[1,2]},"pinned":true}`), broker.Session{Loaded: []string{"x", "y"}})
	const want = `{"changed":"0001-01-01T00:00:00Z","loaded":["x","y"],"pinned":true,"title":{"a":[1,2]}}`
	if err != nil || string(got) != want {
		t.Errorf("the session is %s, %v; want %s", got, err, want)
	}
}

// TestWhatIsUnknownInsideIsCarriedAlong: so are unknown fields inside of a value: of a struct, of an entry of a map,
// and of an element of a list or what a pointer names if that stays as it was. Otherwise it may be something else.
func TestWhatIsUnknownInsideIsCarriedAlong(t *testing.T) {
	const at = `"0001-01-01T00:00:00Z"`
	background := func(id string) broker.BackgroundCall { return broker.BackgroundCall{ID: toolyard.BatchID(id)} }
	one := must.JSON(t, background("one"))
	newer := strings.TrimSuffix(string(one), "}") + `,"newer":1}`
	gone := strings.Replace(newer, "one", "gone", 1)
	for name, c := range map[string]struct {
		was  string
		now  func(was []byte) ([]byte, error)
		want []string
		not  string
	}{
		"a part that stays": {`{"changed":` + at + `,"interrupted":{"through":7,"by":"x","newer":1}}`,
			func(was []byte) ([]byte, error) {
				return encodeValue(was, broker.Session{Unattended: true,
					Interrupted: &broker.Interrupt{Through: 7, Interrupted: events.Interrupted{By: "x"}}})
			}, []string{`"newer":1`, `"alone":true`}, ""},
		"another one in its place": {`{"changed":` + at + `,"interrupted":{"through":7,"by":"x","newer":1}}`,
			func(was []byte) ([]byte, error) {
				return encodeValue(was, broker.Session{Interrupted: &broker.Interrupt{Through: 8}})
			}, []string{`"through":8`}, "newer"},
		"a sum that changes": {`{"limit":{},"used":{"calls":1,"newer":2}}`, func(was []byte) ([]byte, error) {
			return encodeValue(was, admission.Account{Used: admission.Amount{Calls: 3}})
		}, []string{`"newer":2`, `"calls":3`}, ""},
		"a field that is gone": {`{"changed":` + at + `,"interrupted":{"through":7,"newer":{"x":1}}}`,
			func(was []byte) ([]byte, error) { return encodeValue(was, broker.Session{}) }, nil, "newer"},
		"elements of a list": {`{"changed":` + at + `,"background":[` + gone + `,` + newer + `]}`,
			func(was []byte) ([]byte, error) {
				return encodeValue(was, broker.Session{
					Background: []broker.BackgroundCall{background("one"), background("two")}})
			}, []string{newer, `"two"`}, `"gone"`},
		"entries of a map": {`{"limit":{},"lines":{"a":{"newer":1},"b":{"newer":2},"c":{"newer":3}}}`,
			func(was []byte) ([]byte, error) {
				return encodeValue(was, admission.Account{Lines: map[string]admission.Line{"a": {}, "b": {Term: 1}}})
			}, []string{`"a":{"newer":1}`, `"b":{"newer":2,"term":1}`}, `"c"`},
	} {
		got, err := c.now([]byte(c.was))
		must.OK(t, err)
		for _, want := range c.want {
			if !strings.Contains(string(got), want) {
				t.Errorf("%s: %s lacks %s", name, got, want)
			}
		}
		if c.not != "" && strings.Contains(string(got), c.not) {
			t.Errorf("%s: %s still has %s", name, got, c.not)
		}
	}
}

// TestKeysOfALaterVersionAreRead: a reader ignores unknown fields.
func TestKeysOfALaterVersionAreRead(t *testing.T) {
	for _, v := range []any{&broker.Worker{}, &broker.Entry{}, &broker.Approval{}, &broker.Session{},
		&broker.DeadLetter{}} {
		text := must.JSON(t, v)
		if err := json.Unmarshal([]byte(strings.Replace(string(text), "{", `{"of_tomorrow":{"x":[1]},`, 1)),
			v); err != nil {
			t.Errorf("%T: %v", v, err)
		}
	}
}
