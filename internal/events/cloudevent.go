package events

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"
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
	// TraceState and Baggage go beside it, in submissions and calls to run; empty if there is none. A value in a trace
	// state may have spaces in it, which the binding leaves alone.
	TraceState, Baggage string
	// Sequence orders the events of one subject for readers that compare strings; empty if there is no order.
	Sequence string
	// PartitionKey is the batch, so that sharding by it keeps a batch together.
	PartitionKey string
	// Version is the wire version of the writer; 0 if the event has none.
	Version int
}

// The names of the attributes that we write, and of the extensions.
const (
	attrSpecVersion = "specversion"
	attrID          = "id"
	attrSource      = "source"
	attrType        = "type"
	attrSubject     = "subject"
	attrTime        = "time"
	attrContentType = "datacontenttype"

	extTraceParent  = "traceparent"
	extTraceState   = "tracestate"
	extBaggage      = "baggage"
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
		Moved{},
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

// Stored is a body as it is stored.
type Stored struct {
	Type Type
	// MinReader is the minimum wire version of a reader; 0 if knowing the type is enough.
	MinReader int
	Data      []byte
}

// Store makes the stored form of a body. It fails if the data cannot be encoded.
func Store(b Body) (Stored, error) {
	needs := 0
	if _, ok := b.(Finished); ok { // it has no other form
		needs = slimForms
	}
	if data, ok := writeOwn(b); ok {
		return stored(b, data, needs), nil
	}
	if s, ok := b.(slimmer); ok {
		if form, ok := s.slim(); ok {
			return store(b, form, slimForms)
		}
	}
	return store(b, b, 0)
}

// store encodes a form of a body that needs a reader of a wire version.
func store(b Body, form any, needs int) (Stored, error) {
	data, err := json.Marshal(form)
	if err != nil {
		return Stored{}, fmt.Errorf("encode the data of %s: %w", b.EventType(), err)
	}
	return stored(b, data, needs), nil
}

func stored(b Body, data []byte, needs int) Stored {
	s := Stored{Type: b.EventType(), MinReader: max(minReader(b), needs), Data: data}
	inNextForm(&s, b)
	return s
}

// Attribute is an attribute of a CloudEvent, with its value as text.
type Attribute struct{ Name, Value string }

// maxAttributes is how many attributes an event of ours has at most.
const maxAttributes = 14

// Attributes are those of an event as it is stored. It fails if one is missing or invalid.
func Attributes(m *Meta, s *Stored) ([]Attribute, error) {
	out := make([]Attribute, 0, maxAttributes)
	add := func(name, v string) {
		if v != "" {
			out = append(out, Attribute{name, v})
		}
	}
	add(attrSpecVersion, event.CloudEventsVersionV1)
	add(attrID, m.ID)
	add(attrSource, m.Source)
	add(attrType, string(s.Type))
	add(attrSubject, m.Subject)
	add(attrTime, m.Time.UTC().Format(time.RFC3339Nano))
	add(attrContentType, event.ApplicationJSON)
	m.extend(s.MinReader, add)
	if m.ID == "" || m.Source == "" || s.Type == "" {
		return nil, fmt.Errorf("event %q of type %q from %q: none of these may be empty", m.ID, s.Type, m.Source)
	}
	if _, err := url.Parse(m.Source); err != nil {
		return nil, fmt.Errorf("event %q of type %q: its source is no URI reference: %w", m.ID, s.Type, err)
	}
	return out, nil
}

// extend adds the extensions that an event has.
func (m *Meta) extend(minReader int, add func(name, v string)) {
	number := func(n int) string { // a string, because that is its type when it comes back from NATS
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	add(extTraceParent, m.TraceParent)
	add(extTraceState, m.TraceState)
	add(extBaggage, m.Baggage)
	add(extSequence, m.Sequence)
	add(extPartitionKey, m.PartitionKey)
	add(extVersion, number(m.Version))
	add(extMinReader, number(minReader))
}

// Encode makes the CloudEvent of a body, for those who read logs. It fails if an attribute is missing or invalid, or if
// the data cannot be encoded.
func Encode(m Meta, b Body) (event.Event, error) {
	e := event.New(event.CloudEventsVersionV1)
	e.SetID(m.ID)
	e.SetSource(m.Source)
	e.SetType(string(b.EventType()))
	e.SetSubject(m.Subject)
	e.SetTime(m.Time)
	s, err := store(b, b, 0)
	if err != nil {
		return e, err
	}
	m.extend(s.MinReader, func(name, v string) {
		if v != "" {
			e.SetExtension(name, v)
		}
	})
	e.SetDataContentType(event.ApplicationJSON)
	e.DataEncoded = s.Data // as SetData would, which encodes it again
	if err := e.Validate(); err != nil {
		return e, fmt.Errorf("event %s: %w", b.EventType(), err)
	}
	return e, nil
}

// Decode reads a CloudEvent, as [Envelope.Body] does.
func Decode(e event.Event) (Meta, Body, error) {
	v := EnvelopeOf(&e)
	if err := e.Validate(); err != nil {
		return v.Meta, nil, v.unreadable("not a valid CloudEvent: %v", err)
	}
	return v.Body(e.Data())
}

// Envelope is the attributes of an event that is read.
type Envelope struct {
	Meta
	Type Type
	// version and minReader are the extensions as they came.
	version, minReader string
}

// EnvelopeOf returns the attributes of a CloudEvent.
func EnvelopeOf(e *event.Event) Envelope {
	v := Envelope{Type: Type(e.Type()),
		Meta: Meta{ID: e.ID(), Source: e.Source(), Subject: e.Subject(), Time: e.Time()}}
	for name, value := range e.Extensions() {
		v.set(name, fmt.Sprint(value))
	}
	return v
}

// Newer reports whether a newer version wrote the event.
func (v *Envelope) Newer() (bool, error) {
	n, err := wireVersion(v.version)
	return n > version.Wire, err
}

// Set takes an attribute of a valid CloudEvent of version 1.0, as Attributes writes it. It returns false if only the
// CloudEvents SDK can say what it means, or whether it is valid.
func (v *Envelope) Set(name, value string) bool {
	switch name {
	case attrSpecVersion:
		return value == event.CloudEventsVersionV1
	case attrContentType:
		return value == event.ApplicationJSON
	case attrTime:
		at, err := time.Parse(time.RFC3339Nano, value)
		v.Time = at
		return err == nil
	}
	if value == "" || strings.TrimSpace(value) != value {
		return false
	}
	switch name {
	case attrID:
		v.ID = value
	case attrType:
		v.Type = Type(value)
	case attrSubject:
		v.Subject = value
	case attrSource:
		v.Source = value
		return !strings.ContainsFunc(value, notPlain)
	default:
		return v.set(name, value)
	}
	return true
}

// Complete reports whether the event has all that a CloudEvent must have.
func (v *Envelope) Complete() bool { return v.ID != "" && v.Source != "" && v.Type != "" }

// notPlain reports whether a character needs a closer look where it stands in a URI reference.
func notPlain(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '/' && c != '-' && c != '_' &&
		c != '.'
}

// set takes an extension, and reports whether it is one that we know.
func (v *Envelope) set(name, value string) bool {
	switch name {
	case extTraceParent:
		v.TraceParent = value
	case extTraceState:
		v.TraceState = value
	case extBaggage:
		v.Baggage = value
	case extSequence:
		v.Sequence = value
	case extPartitionKey:
		v.PartitionKey = value
	case extVersion:
		v.version = value
	case extMinReader:
		v.minReader = value
	default:
		return false
	}
	return true
}

func (v *Envelope) unreadable(format string, args ...any) error {
	return &UnreadableError{Type: string(v.Type), ID: v.ID, Problem: fmt.Sprintf(format, args...)}
}

// Body reads the data of an event. If a newer version wrote the event and this one does not know it, the error is a
// [*NewerError]: leave the event to a process of that version. If its type is unknown, or its data does not fit its
// type, the error is an [*UnreadableError]. Do not act on the event in either case. A reader that panics has met
// something that cannot be read too: anybody may have written it, and many read it.
func (v *Envelope) Body(data []byte) (m Meta, b Body, err error) {
	defer func() {
		if p := recover(); p != nil {
			b, err = nil, v.unreadable("its reader crashed: %v", p)
		}
	}()
	newer := Newer{ID: v.ID, Type: v.Type, Data: data}
	if v.Version, err = wireVersion(v.version); err != nil {
		return v.Meta, nil, v.unreadable("%s: %v", extVersion, err)
	}
	if newer.MinReaderVersion, err = wireVersion(v.minReader); err != nil {
		return v.Meta, nil, v.unreadable("%s: %v", extMinReader, err)
	}
	m, newer.Version = v.Meta, v.Version
	_, known := bodies[newer.Type]
	switch later := m.Version > version.Wire; {
	case newer.MinReaderVersion > version.Wire, later && !known:
		return m, nil, &NewerError{newer}
	case !known:
		return m, nil, v.unreadable("its type is not known, and it names no newer version")
	}
	if own, ok := readOwn(newer.Type, data); ok {
		return m, own, nil
	}
	b, err = readGeneral(newer.Type, data)
	if err != nil && m.Version > version.Wire {
		return m, nil, &NewerError{newer}
	}
	if err != nil {
		return m, nil, v.unreadable("the data is not of its type: %s", misfit(err))
	}
	return m, b, nil
}

// misfit is an error of unmarshal for who wrote the event, in whatever language: without the names of types in Go.
func misfit(err error) string {
	wrong, ok := errors.AsType[*jsonv1.UnmarshalTypeError](err)
	if !ok {
		return err.Error()
	}
	return fmt.Sprintf("%s cannot be a JSON %s", cmp.Or(wrong.Field, "it"), wrong.Value)
}

// readGeneral reads the data of an event of a known type, in whatever layout it is.
func readGeneral(t Type, data []byte) (Body, error) {
	if form := readForms[t]; form != nil {
		f := form()
		if err := unmarshal(data, f); err != nil {
			return nil, err
		}
		return f.body()
	}
	p := reflect.New(bodies[t])
	err := unmarshal(data, p.Interface())
	return p.Elem().Interface().(Body), err
}

// unmarshal reads JSON as encoding/json does, in half of the time: half of the processor time of reading an event was
// its JSON.
func unmarshal(data []byte, into any) error { return jsonv1.Unmarshal(data, into) }

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

// InputProblem is the type of the problem documents about wrong input, over NATS and over HTTP.
const InputProblem = "urn:toolyard:problem:input"

// Refuse makes the problem document of a submission that is refused.
func Refuse(err *toolyard.InputError) Refused {
	r := Refused{Type: InputProblem, Title: "Bad Request", Status: 400, Detail: err.Error(), Field: err.Field}
	if err.TooLarge {
		r.Title, r.Status = "Content Too Large", 413
	}
	return r
}
