package natsbroker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/ticket"
	"github.com/toolyard/toolyard/internal/version"
)

// A key's value may contain fields of a newer version. Readers ignore them. Two kinds of values are also changed by
// several versions in turn, and a change must not lose these fields:
//
//   - A workspace's queue of tickets is read strictly. It says who may act, so a process that does not understand all
//     of it can grant nothing: an older version does not change the queue while it contains something newer.
//   - Everything else (a session, an account) is changed with unknown fields preserved, also of what it has. A newer
//     version whose field must not be ignored sets min_reader.

// decodeValue reads the value of a key. A value that only a newer version may use wraps [events.ErrNewer].
func decodeValue[T any](data []byte, v *T) error {
	switch v := any(v).(type) {
	case *ticket.Queue:
		return decodeQueue(data, v)
	case *broker.Session:
		err := json.Unmarshal(data, v)
		if err == nil && v.MinReader > version.Wire {
			err = fmt.Errorf("%w: it needs wire version %d, this is %d",
				events.ErrNewer, v.MinReader, version.Wire)
		}
		return err
	}
	return json.Unmarshal(data, v)
}

func decodeQueue(data []byte, q *ticket.Queue) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	strict := d.Decode(q)
	if _, err := d.Token(); strict == nil && !errors.Is(err, io.EOF) {
		return errors.New("something follows the value")
	}
	for _, t := range q.Tickets {
		if strict == nil && !slices.Contains(ticket.Modes, t.Mode) {
			strict = fmt.Errorf("mode %q", t.Mode)
		}
	}
	if strict == nil {
		return nil
	}
	*q = ticket.Queue{}
	if err := json.Unmarshal(data, q); err != nil {
		return err
	}
	*q = ticket.Queue{}
	return fmt.Errorf("%w: wire version %d does not know all of the value: %w",
		events.ErrNewer, version.Wire, strict)
}

// encodeValue writes the value of a key that was read before, with those of its fields that T does not know.
func encodeValue[T any](was []byte, v T) ([]byte, error) {
	now, err := json.Marshal(v)
	if _, strict := any(v).(ticket.Queue); err != nil || strict || len(was) == 0 {
		return now, err
	}
	return carry(was, now, reflect.TypeFor[T]())
}

// carry returns a value of a type as it is now, with what the type does not know of how it was.
func carry(was, now json.RawMessage, t reflect.Type) (json.RawMessage, error) {
	switch {
	case bytes.Equal(was, now), reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()):
		return now, nil
	case t.Kind() == reflect.Pointer:
		return carrySame([]json.RawMessage{was}, now, t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct && bytes.HasPrefix(now, []byte("[")):
		var before, elements []json.RawMessage
		if err := errors.Join(json.Unmarshal(was, &before), json.Unmarshal(now, &elements)); err != nil {
			return nil, err
		}
		for i := range elements {
			var err error
			if elements[i], err = carrySame(before, elements[i], t.Elem()); err != nil {
				return nil, err
			}
		}
		return json.Marshal(elements)
	case (t.Kind() == reflect.Struct || t.Kind() == reflect.Map) && bytes.HasPrefix(now, []byte("{")):
		return carryFields(was, now, t)
	}
	return now, nil
}

// carrySame carries over what is unknown of a value from the one of those before that is the same: another one may be
// in its place.
func carrySame(before []json.RawMessage, now json.RawMessage, t reflect.Type) (json.RawMessage, error) {
	for _, was := range before {
		if string(was) == "null" {
			continue
		}
		known := reflect.New(t)
		if err := json.Unmarshal(was, known.Interface()); err != nil {
			return nil, err
		}
		text, err := json.Marshal(known.Interface())
		if err != nil {
			return nil, err
		}
		if bytes.Equal(text, now) {
			return was, nil
		}
	}
	return now, nil
}

// carryFields carries over the unknown fields of a struct, and what is unknown in its fields, or in a map's entries.
func carryFields(was, now json.RawMessage, t reflect.Type) (json.RawMessage, error) {
	var before, fields map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(was, &before), json.Unmarshal(now, &fields)); err != nil {
		return nil, err
	}
	known := map[string]reflect.Type{}
	if t.Kind() == reflect.Struct {
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			known[name] = f.Type
		}
	}
	carried := false
	for name, old := range before {
		of, isKnown := known[name]
		if t.Kind() == reflect.Map {
			of, isKnown = t.Elem(), true
		}
		text, there := fields[name]
		switch {
		case !isKnown:
			fields[name], carried = old, true
		case there:
			both, err := carry(old, text, of)
			if err != nil {
				return nil, err
			}
			carried = carried || !bytes.Equal(both, text)
			fields[name] = both
		}
	}
	if !carried {
		return now, nil
	}
	return json.Marshal(fields)
}
