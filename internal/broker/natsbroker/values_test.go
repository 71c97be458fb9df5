package natsbroker

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
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

// TestKeysOfALaterVersionAreRead: a reader ignores unknown fields.
func TestKeysOfALaterVersionAreRead(t *testing.T) {
	for _, v := range []any{&broker.Worker{}, &broker.Entry{}, &broker.Approval{}, &broker.Session{},
		&broker.DeadLetter{}} {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(strings.Replace(string(text), "{", `{"of_tomorrow":{"x":[1]},`, 1)),
			v); err != nil {
			t.Errorf("%T: %v", v, err)
		}
	}
}
