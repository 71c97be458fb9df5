package events

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/toolyard/toolyard"
)

// Meta is what stands around an event's data: CloudEvents attributes. Every value is printable ASCII without spaces,
// since the NATS binding neither escapes nor unescapes what is not.
type Meta struct {
	// ID is unique, and the nonce of the append that stores the event.
	ID string
	// Source is who wrote it, as a URI reference: "/dispatcher/<id>", "/worker/<id>", "/agent/<name>".
	Source string
	// Subject is what it is about: "<agent>/<batch>" or "<agent>/<batch>/<index>", escaped as in NATS subjects.
	Subject string
	Time    time.Time
	// TraceParent is the W3C trace context; empty when there is none.
	TraceParent string
	// Sequence orders the events of one subject for readers that compare strings; empty when there is no order.
	Sequence string
	// PartitionKey is the batch, so that whoever shards by it keeps a batch together.
	PartitionKey string
	// Version is the wire version of who wrote it; 0 when the event names none.
	Version int
}

// The names of the extensions that we write.
const (
	extTraceParent  = "traceparent"
	extSequence     = "sequence"
	extPartitionKey = "partitionkey"
	extVersion      = "tyversion"   // the wire version of who wrote the event
	extMinReader    = "tyminreader" // the one that its reader must have at least; none when knowing the type is enough
)

// Sequence renders the index of a call as the sequence extension: extensions are compared as strings, so it is padded
// to eight digits.
func Sequence(index int) string { return fmt.Sprintf("%08d", index) }

// Bodies are an empty body of each type that can be read.
func Bodies() []Body {
	return append([]Body{
		Submitted{}, Refused{}, Planned{}, Adopted{}, Canceled{}, Started{}, Settled{}, Requested{}, Claimed{},
		Returned{}, AttemptFailed{}, Finished{}, Reply{}, Appended{}, Closed{}, Extended{},
		Parked{}, Woken{}, Interrupted{}, Waiting{}, Decided{},
	}, nextBodies...)
}

// bodies are their types in Go.
var bodies = func() map[Type]reflect.Type {
	m := map[Type]reflect.Type{}
	for _, b := range Bodies() {
		m[b.EventType()] = reflect.TypeOf(b)
	}
	return m
}()

// minReader is the wire version that the reader of a body must have at least; 0 when knowing its type is enough. A type
// whose events may have in them what an older reader must not pass over has a method that says so.
func minReader(b Body) int {
	if m, ok := b.(interface{ MinReader() int }); ok {
		return m.MinReader()
	}
	return 0
}

// Encode makes the CloudEvent of a body. It fails when an attribute is missing or not valid, or when the data cannot be
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
	number := func(n int) string { // text, which it is again when it comes back from NATS
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
	e.DataEncoded = data // as SetData would, which encodes it once more
	inNextForm(&e, b)
	if err := e.Validate(); err != nil {
		return e, fmt.Errorf("event %s: %w", b.EventType(), err)
	}
	return e, nil
}

// Decode reads a CloudEvent. An event that a newer version wrote and this one does not know is a [*NewerError]: it is
// to be left to one that does. An event that is not valid, of a type that nobody knows, or whose data is not of its
// type is an [*UnreadableError]. Nothing in either may be acted on.
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
	switch later := m.Version > toolyard.WireVersion; {
	case newer.MinReaderVersion > toolyard.WireVersion, later && !known:
		return m, nil, &NewerError{newer}
	case !known:
		return fail("its type is not known, and it names no newer version")
	}
	p := reflect.New(t)
	err = json.Unmarshal(e.Data(), p.Interface())
	if err != nil && m.Version > toolyard.WireVersion {
		return m, nil, &NewerError{newer}
	}
	if err != nil {
		return fail("the data is not of its type: %v", err)
	}
	return m, p.Elem().Interface().(Body), nil
}

// wireVersion reads a version as an extension has it; none is 0.
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

// Refuse makes the problem document of a submission that cannot be accepted.
func Refuse(err *toolyard.InputError) Refused {
	r := Refused{Type: "about:blank", Title: "Bad Request", Status: 400, Detail: err.Error(), Field: err.Field}
	if err.TooLarge {
		r.Title, r.Status = "Content Too Large", 413
	}
	return r
}
