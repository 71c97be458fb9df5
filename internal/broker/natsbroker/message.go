package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	cejs "github.com/cloudevents/sdk-go/protocol/nats_jetstream/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/traceparent"
	"github.com/toolyard/toolyard/internal/version"
)

const (
	headerPrefix      = "ce-"
	headerID          = headerPrefix + "id"
	headerSource      = headerPrefix + "source"
	headerSpecVersion = headerPrefix + "specversion"
	headerType        = headerPrefix + "type"
	headerTrace       = headerPrefix + traceparent.Header
	headerContentType = "content-type"
	headerExpected    = "Nats-Expected-Last-Subject-Sequence"
	// headerExpectedOn has the server compare with another subject. We never send it.
	headerExpectedOn = "Nats-Expected-Last-Subject-Sequence-Subject"
	extDataRef       = "dataref" // CloudEvents' own extension for data that is kept elsewhere
	dataRefScheme    = "ty-blob:"
)

// meta is the envelope of a body that this broker's writer writes now.
func (b *Broker) meta(ctx context.Context, k toolyard.BatchKey, subject string) events.Meta {
	return events.Meta{
		ID: broker.NewID(), Source: b.source, Subject: subject, Time: time.Now().UTC(), PartitionKey: about(k),
		Version: version.Wire, TraceParent: traceparent.From(ctx).Parent,
	}
}

// message makes the NATS message of an event, in the binary binding. Data past [MaxInlineBytes] goes to the object
// store, and the message has its reference.
func (b *Broker) message(ctx context.Context, subject string, m events.Meta, body events.Body) (*nats.Msg, error) {
	s, err := events.Store(body)
	if err != nil {
		return nil, err
	}
	switch body.(type) {
	case events.Submitted, events.Requested: // nobody would read it in other events, and a batch has many of them
		beside := traceparent.From(ctx)
		m.TraceState, m.Baggage = beside.State, beside.Baggage
	}
	ref := ""
	if data := s.Data; len(data) > broker.MaxInlineBytes {
		if len(data) > broker.MaxObjectBytes {
			return nil, fmt.Errorf("event %s has %d bytes of data; at most %d are allowed", s.Type, len(data),
				broker.MaxObjectBytes)
		}
		name := objectName("data", data)
		if err := b.putObject(ctx, name, data); err != nil {
			return nil, fmt.Errorf("store the data of event %s: %w", s.Type, err)
		}
		s.Data, ref = nil, dataRefScheme+name
	}
	return encode(subject, &m, &s, ref)
}

// encode writes an event in the NATS binary binding, with the reference of its data unless that is empty. The SDK's
// writer makes the same message (TestTheBindingOfTheSDK), at several times the cost.
func encode(subject string, m *events.Meta, s *events.Stored, ref string) (*nats.Msg, error) {
	attributes, err := events.Attributes(m, s)
	if err != nil {
		return nil, err
	}
	values := make([]string, len(attributes), len(attributes)+1)
	header := make(nats.Header, len(attributes)+3)
	for i, a := range attributes {
		values[i] = a.Value
		header[headerPrefix+a.Name] = values[i : i+1 : i+1]
	}
	if ref != "" {
		header[headerPrefix+extDataRef] = []string{ref}
	}
	return &nats.Msg{Subject: subject, Header: header, Data: s.Data}, nil
}

// decode reads the event in a message. If the message contains none, the error is an [*events.UnreadableError]; if only
// a newer version knows the event, an [*events.NewerError].
func (b *Broker) decode(ctx context.Context, h nats.Header, data []byte) (events.Meta, events.Body, error) {
	if v, ok := envelope(h); ok {
		return v.Body(data)
	}
	e, err := b.event(ctx, h, data)
	if err != nil {
		return events.Meta{}, nil, err
	}
	return events.Decode(*e)
}

// envelope reads the attributes of an event that is written as [encode] writes one with data. ok is false for any
// other, which the CloudEvents SDK reads: TestTheReaderOfTheSDK compares the two.
func envelope(h nats.Header) (v events.Envelope, ok bool) {
	if h.Get(headerSpecVersion) == "" {
		return v, false
	}
	for k, values := range h {
		name, ours := strings.CutPrefix(k, headerPrefix)
		if !ours && !strings.EqualFold(k, headerContentType) {
			continue
		}
		if !ours || len(values) != 1 || !v.Set(name, values[0]) {
			return v, false
		}
	}
	return v, v.Complete()
}

// event reads the CloudEvent in a message, with its data.
func (b *Broker) event(ctx context.Context, h nats.Header, data []byte) (*event.Event, error) {
	if h.Get(headerSpecVersion) == "" {
		return nil, &events.UnreadableError{Problem: "the message has no CloudEvents headers; use the binary binding"}
	}
	e, err := binding.ToEvent(ctx, cejs.NewMessage(&nats.Msg{Header: h, Data: data}))
	if err != nil {
		return nil, &events.UnreadableError{ID: h.Get(headerID), Problem: "not a CloudEvent: " + err.Error()}
	}
	if ref, ok := e.Extensions()[extDataRef].(string); ok && len(e.Data()) == 0 {
		whole, err := b.dataBehind(ctx, ref)
		if err != nil {
			return nil, fmt.Errorf("read the data of event %s: %w", e.ID(), err)
		}
		if err := e.SetData(event.ApplicationJSON, whole); err != nil {
			return nil, fmt.Errorf("set the data of event %s: %w", e.ID(), err)
		}
	}
	return e, nil
}

// classifyUnknown classifies an event under an unknown subject: it is from a newer version, which may have other
// subjects, or a mistake.
func (b *Broker) classifyUnknown(ctx context.Context, h nats.Header, data []byte, mistake error) (events.Meta, error) {
	meta, _, err := b.decode(ctx, h, data)
	if errors.Is(err, events.ErrNewer) {
		return meta, err
	}
	if meta.Version > version.Wire {
		newer := events.Newer{ID: meta.ID, Type: events.Type(h.Get(headerType)), Version: meta.Version, Data: data}
		return meta, &events.NewerError{Newer: newer}
	}
	return meta, mistake
}

func (b *Broker) dataBehind(ctx context.Context, ref string) ([]byte, error) {
	name, ok := strings.CutPrefix(ref, dataRefScheme+"data.")
	if !ok {
		return nil, &events.UnreadableError{Problem: fmt.Sprintf("the dataref %q is none of ours", ref)}
	}
	data, err := b.getObject(ctx, "data."+name)
	if errors.Is(err, broker.ErrNoObject) {
		return nil, &events.UnreadableError{Problem: fmt.Sprintf("the dataref %q leads nowhere", ref)}
	}
	return data, err
}

// raw is a stored message.
type raw struct {
	subject string
	seq     uint64
	time    time.Time
	header  nats.Header
	data    []byte
	archive *archivedLog // the one that it is from; nil: a stream
}

// reader makes a record from a stored message: [Broker.record], [Broker.tolerant] or [Broker.looking].
type reader func(ctx context.Context, m raw) (toolyard.BatchKey, batch.Record, events.Meta, error)

// record reads a stored message as a record of its batch.
func (b *Broker) record(ctx context.Context, m raw) (toolyard.BatchKey, batch.Record, events.Meta, error) {
	p, err := parseSubject(m.subject)
	if err != nil {
		bad := &events.UnreadableError{ID: m.header.Get(headerID), Problem: err.Error()}
		meta, err := b.classifyUnknown(ctx, m.header, m.data, bad)
		return p.key, batch.Record{}, meta, err
	}
	meta, body, err := b.decode(ctx, m.header, m.data)
	if err != nil {
		return p.key, batch.Record{}, meta, err
	}
	// of what is archived the proof was there, and is not kept as long
	if body.EventType() == events.CallDecided && p.chain == batch.ChainItem && m.archive == nil {
		if err := b.checkProof(ctx, &p, m); err != nil {
			return p.key, batch.Record{}, meta, err
		}
	}
	switch p.chain {
	case batch.ChainSubmission, batch.ChainInput, batch.ChainControl:
		// An agent that writes without our clients may leave both out, and its subject may be wrong.
		if meta.Subject = about(p.key); meta.Time.IsZero() {
			meta.Time = m.time
		}
	}
	r := p.record(m, body)
	if p.chain == batch.ChainSubmission {
		r.Trace = traceparent.Of(meta.TraceParent, meta.TraceState, meta.Baggage)
	}
	if p.chain == batch.ChainReply {
		if reply, ok := body.(events.Reply); ok && len(reply.Results) > 0 {
			r.Index = reply.Results[0].Index
		}
	}
	return p.key, r, meta, nil
}

// record is a body at its position.
func (p *place) record(m raw, body events.Body) batch.Record {
	return batch.Record{Chain: p.chain, Index: p.index, Pool: p.pool, Seq: m.seq, Time: m.time, Body: body}
}
