package natsbroker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
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
//   - Everything else (a session) is changed with unknown fields preserved. A newer version whose field must not be
//     ignored sets min_reader.

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
	var unknown, all map[string]json.RawMessage
	if err := json.Unmarshal(was, &unknown); err != nil {
		return nil, err
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		delete(unknown, name)
	}
	if len(unknown) == 0 {
		return now, nil
	}
	if err := json.Unmarshal(now, &all); err != nil {
		return nil, err
	}
	maps.Copy(all, unknown)
	return json.Marshal(all)
}
