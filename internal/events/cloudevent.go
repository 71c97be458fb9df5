package events

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/version"
)

// Meta has the CloudEvents attributes of an event. Every value is printable ASCII without spaces, because the NATS
// binding does not escape values.
type Meta struct {
	// ID is unique, and the nonce of the append that stores the event.
	ID string
	// Source is the writer, as a URI reference: "/dispatcher/<id>", "/worker/<id>", "/agent/<name>".
	Source string
	// Subject is the batch or call: "<agent>/<batch>" or "<agent>/<batch>/<index>", escaped as in NATS subjects.
	Subject string
	Time    time.Time
	// TraceParent is the W3C trace context; empty if there is none.
	TraceParent string
	// Sequence orders the events of one subject for readers that compare strings; empty if there is no order.
	Sequence string
	// PartitionKey is the batch, so that sharding by it keeps a batch together.
	PartitionKey string
	// Version is the wire version of the writer; 0 if the event has none.
	Version int
}

// The names of the extensions that we write.
const (
	extTraceParent  = "traceparent"
	extSequence     = "sequence"
	extPartitionKey = "partitionkey"
	extVersion      = "tyversion"   // the wire version of the writer
	extMinReader    = "tyminreader" // the one that its reader must have at least; none when knowing the type is enough
)

// Sequence renders the index of a call as the sequence extension. Extensions are compared as strings, so it is padded
// to eight digits.
func Sequence(index int) string { return fmt.Sprintf("%08d", index) }

// Bodies returns an empty body of each type that can be read.
func Bodies() []Body {
	return append([]Body{
		Submitted{}, Refused{}, Planned{}, Adopted{}, Canceled{}, Started{}, Settled{}, Requested{}, Claimed{},
		Returned{}, AttemptFailed{}, Finished{}, Reply{}, Appended{}, Closed{}, Extended{},
		Parked{}, Woken{}, Interrupted{}, Waiting{}, Decided{}, Ended{}, Archived{},
	}, nextBodies...)
}

// bodies are the Go types of the bodies.
var bodies = func() map[Type]reflect.Type {
	m := map[Type]reflect.Type{}
	for _, b := range Bodies() {
		m[b.EventType()] = reflect.TypeOf(b)
	}
	return m
}()

// minReader is the minimum wire version of a reader of a body; 0 if knowing the type is enough. A type whose events may
// contain what an older reader must not ignore has a method that says so.
func minReader(b Body) int {
	if m, ok := b.(interface{ MinReader() int }); ok {
		return m.MinReader()
	}
	return 0
}

// Encode makes the CloudEvent of a body. It fails if an attribute is missing or invalid, or if the data cannot be
// encoded.
func Encode(m Meta, b Body) (event.Event, error) {
	e := event.New(event.CloudEventsVersionV1)
	e.SetID(m.ID)
	e.SetSource(m.Source)
	e.SetType(string(b.EventType()))
	e.SetSubject(m.Subject)
	e.SetTime(m.Time)
	extend := func(name, v string) {
		if v != "" {
			e.SetExtension(name, v)
		}
	}
	number := func(n int) string { // a string, because that is its type when it comes back from NATS
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	extend(extTraceParent, m.TraceParent)
	extend(extSequence, m.Sequence)
	extend(extPartitionKey, m.PartitionKey)
	extend(extVersion, number(m.Version))
	extend(extMinReader, number(minReader(b)))
	data, err := json.Marshal(b)
	if err != nil {
		return e, fmt.Errorf("encode the data of %s: %w", b.EventType(), err)
	}
	e.SetDataContentType(event.ApplicationJSON)
	e.DataEncoded = data // as SetData would, which encodes it again
	inNextForm(&e, b)
	if err := e.Validate(); err != nil {
		return e, fmt.Errorf("event %s: %w", b.EventType(), err)
	}
	return e, nil
}

// Decode reads a CloudEvent. If a newer version wrote the event and this one does not know it, the error is a
// [*NewerError]: leave the event to a process of that version. If the event is invalid, its type is unknown, or its
// data does not fit its type, the error is an [*UnreadableError]. Do not act on the event in either case.
func Decode(e event.Event) (Meta, Body, error) {
	m := Meta{ID: e.ID(), Source: e.Source(), Subject: e.Subject(), Time: e.Time()}
	fail := func(format string, args ...any) (Meta, Body, error) {
		return m, nil, &UnreadableError{Type: e.Type(), ID: e.ID(), Problem: fmt.Sprintf(format, args...)}
	}
	if err := e.Validate(); err != nil {
		return fail("not a valid CloudEvent: %v", err)
	}
	extensions := e.Extensions()
	text := func(name string) string {
		if v, ok := extensions[name]; ok {
			return fmt.Sprint(v)
		}
		return ""
	}
	m.TraceParent, m.Sequence, m.PartitionKey = text(extTraceParent), text(extSequence), text(extPartitionKey)
	newer := Newer{ID: m.ID, Type: Type(e.Type()), Data: e.Data()}
	var err error
	if m.Version, err = wireVersion(text(extVersion)); err != nil {
		return fail("%s: %v", extVersion, err)
	}
	if newer.MinReaderVersion, err = wireVersion(text(extMinReader)); err != nil {
		return fail("%s: %v", extMinReader, err)
	}
	newer.Version = m.Version
	t, known := bodies[newer.Type]
	switch later := m.Version > version.Wire; {
	case newer.MinReaderVersion > version.Wire, later && !known:
		return m, nil, &NewerError{newer}
	case !known:
		return fail("its type is not known, and it names no newer version")
	}
	p := reflect.New(t)
	// As encoding/json reads it, in half of the time: half of the processor time of reading an event was its JSON.
	err = jsonv1.Unmarshal(e.Data(), p.Interface())
	if err != nil && m.Version > version.Wire {
		return m, nil, &NewerError{newer}
	}
	if err != nil {
		return fail("the data is not of its type: %v", err)
	}
	return m, p.Elem().Interface().(Body), nil
}

// wireVersion reads a version from an extension; an empty one is 0.
func wireVersion(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%q is no wire version", text)
	}
	return int(n), nil
}

// UnreadableError is the error of an event that cannot be read.
type UnreadableError struct {
	Type, ID, Problem string
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("event %q of type %q: %s", e.ID, e.Type, e.Problem)
}

// Refuse makes the problem document of a submission that is refused.
func Refuse(err *toolyard.InputError) Refused {
	r := Refused{Type: "about:blank", Title: "Bad Request", Status: 400, Detail: err.Error(), Field: err.Field}
	if err.TooLarge {
		r.Title, r.Status = "Content Too Large", 413
	}
	return r
}
