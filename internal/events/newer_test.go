package events

import (
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/version"
)

// TestNewerEventsAreToldApart: an event of a newer version is left to a process that knows it, and is shown unchanged.
func TestNewerEventsAreToldApart(t *testing.T) {
	later := strconv.Itoa(version.Wire + 1)
	for name, c := range map[string]struct {
		change func(*event.Event)
		newer  bool
	}{
		"a type of a newer version": {func(e *event.Event) {
			e.SetType("dev.toolyard.group.started.v2")
			e.SetExtension(extVersion, later)
		}, true},
		"one that says it needs one": {func(e *event.Event) { e.SetExtension(extMinReader, later) }, true},
		"data that is not of its type": {func(e *event.Event) {
			e.DataEncoded = []byte(`{"group":"one"}`)
			e.SetExtension(extVersion, later)
		}, true},
		"one that this version knows": {func(e *event.Event) { e.SetExtension(extVersion, later) }, false},
		"one that any reader may act on": {func(e *event.Event) {
			e.SetExtension(extVersion,
				later)
			e.SetExtension(extMinReader, "1")
		}, false},
		"one that was written before version": {func(*event.Event) {}, false},
	} {
		e, err := Encode(Meta{ID: "e", Source: "/x", Subject: "a/b", Time: time.Unix(0, 0).UTC()}, Started{Group: 1})
		must.OK(t, err)
		c.change(&e)
		m, b, err := Decode(e)
		if newer, ok := errors.AsType[*NewerError](err); ok != c.newer || errors.Is(err, ErrNewer) != c.newer {
			t.Errorf("%s: %v (%v)", name, err, newer)
		}
		if !c.newer {
			continue
		}
		b, err = OrNewer(b, err)
		if err != nil {
			t.Errorf("%s: it cannot be shown: %v", name, err)
			continue
		}
		again, err := Encode(m, b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(e.String(), again.String()); d != "" {
			t.Errorf("%s: shown, it is another (-was +shown):\n%s", name, d)
		}
	}
	if b, err := json.Marshal(Newer{Data: []byte("no JSON")}); err != nil || string(b) != `"no JSON"` {
		t.Errorf("data that is no JSON is shown as %s, %v", b, err)
	}
}

// TestUnknownFieldsArePassedOver: data types gain fields, and today's readers ignore the fields of tomorrow, at any
// depth.
func TestUnknownFieldsArePassedOver(t *testing.T) {
	for _, b := range Bodies() {
		v := reflect.New(reflect.TypeOf(b))
		fill(v.Elem(), 0)
		full := v.Elem().Interface().(Body)
		e, err := Encode(Meta{ID: "e", Source: "/x", Subject: "a/b", Time: time.Unix(0, 0)}, full)
		if err != nil {
			t.Fatalf("%s: %v", b.EventType(), err)
		}
		var data any
		must.OK(t, json.Unmarshal(e.Data(), &data))
		if e.DataEncoded, err = json.Marshal(grow(data)); err != nil {
			t.Fatal(err)
		}
		_, got, err := Decode(e)
		if err != nil {
			t.Errorf("%s: %v\n%s", b.EventType(), err, e.Data())
			continue
		}
		if d := cmp.Diff(full, got, cmp.FilterPath(isRaw, cmp.Ignore())); d != "" {
			t.Errorf("%s: read otherwise (-written +read):\n%s", b.EventType(), d)
		}
	}
}

// isRaw reports whether a value is JSON that is kept as it is, with whatever is added there.
func isRaw(p cmp.Path) bool { return p.Last().Type() == reflect.TypeFor[json.RawMessage]() }

// mapKey is the key of the one value that fill puts into a map: a map has no fields that could be unknown.
const mapKey = "k"

// grow adds a field to every object.
func grow(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = grow(v[k])
		}
		if _, isMap := v[mapKey]; isMap {
			return v
		}
		v["of_tomorrow"] = map[string]any{"deep": []any{1, "x"}}
	case []any:
		for i := range v {
			v[i] = grow(v[i])
		}
	}
	return v
}

// fill sets every field to something, so that nothing is left out of the JSON.
func fill(v reflect.Value, depth int) {
	switch {
	case depth > 12:
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		v.SetBytes([]byte(`{"x":1}`))
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1, 0).UTC()))
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), depth+1)
		}
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case v.Kind() == reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf(mapKey).Convert(v.Type().Key()), value)
	case v.Kind() == reflect.String:
		v.SetString("text")
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(1)
	case v.CanUint():
		v.SetUint(1)
	case v.CanFloat():
		v.SetFloat(1)
	}
}
