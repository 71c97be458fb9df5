package events

import (
	"encoding/json"
	"fmt"
	"reflect"
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
}

// The names of the extensions that we write.
const (
	extTraceParent  = "traceparent"
	extSequence     = "sequence"
	extPartitionKey = "partitionkey"
)

// Sequence renders the index of a call as the sequence extension: extensions are compared as strings, so it is padded
// to eight digits.
func Sequence(index int) string { return fmt.Sprintf("%08d", index) }

// bodies makes an empty body of each type that can be read.
var bodies = func() map[Type]reflect.Type {
	m := map[Type]reflect.Type{}
	for _, b := range []Body{
		Submitted{}, Refused{}, Planned{}, Adopted{}, Canceled{}, Started{}, Settled{}, Requested{}, Claimed{},
		Returned{}, AttemptFailed{}, Finished{}, Reply{}, Appended{}, Closed{}, Extended{},
		Parked{}, Woken{}, Interrupted{}, Waiting{}, Decided{},
	} {
		m[b.EventType()] = reflect.TypeOf(b)
	}
	return m
}()

// Encode makes the CloudEvent of a body. It fails when an attribute is missing or not valid, or when the data cannot be
// encoded.
func Encode(m Meta, b Body) (event.Event, error) {
	e := event.New(event.CloudEventsVersionV1)
	e.SetID(m.ID)
	e.SetSource(m.Source)
	e.SetType(string(b.EventType()))
	e.SetSubject(m.Subject)
	e.SetTime(m.Time)
	for name, v := range map[string]string{extTraceParent: m.TraceParent, extSequence: m.Sequence, extPartitionKey: m.PartitionKey} {
		if v != "" {
			e.SetExtension(name, v)
		}
	}
	data, err := json.Marshal(b)
	if err != nil {
		return e, fmt.Errorf("encode the data of %s: %w", b.EventType(), err)
	}
	e.SetDataContentType(event.ApplicationJSON)
	e.DataEncoded = data // as SetData would, which encodes it once more
	if err := e.Validate(); err != nil {
		return e, fmt.Errorf("event %s: %w", b.EventType(), err)
	}
	return e, nil
}

// Decode reads a CloudEvent. An event that is not valid, of a type that is not known here, or whose data is not of its
// type is an [*UnreadableError]: nothing in it may be acted on.
func Decode(e event.Event) (Meta, Body, error) {
	m := Meta{ID: e.ID(), Source: e.Source(), Subject: e.Subject(), Time: e.Time()}
	fail := func(format string, args ...any) (Meta, Body, error) {
		return m, nil, &UnreadableError{Type: e.Type(), ID: e.ID(), Problem: fmt.Sprintf(format, args...)}
	}
	if err := e.Validate(); err != nil {
		return fail("not a valid CloudEvent: %v", err)
	}
	for name, to := range map[string]*string{extTraceParent: &m.TraceParent, extSequence: &m.Sequence, extPartitionKey: &m.PartitionKey} {
		if v, ok := e.Extensions()[name]; ok {
			*to = fmt.Sprint(v)
		}
	}
	t, ok := bodies[Type(e.Type())]
	if !ok {
		return fail("this version does not know the type")
	}
	p := reflect.New(t)
	if err := json.Unmarshal(e.Data(), p.Interface()); err != nil {
		return fail("the data is not of its type: %v", err)
	}
	return m, p.Elem().Interface().(Body), nil
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
