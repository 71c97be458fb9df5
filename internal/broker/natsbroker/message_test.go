package natsbroker

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	cejs "github.com/cloudevents/sdk-go/protocol/nats_jetstream/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// written are attributes as our writers have them.
var written = []events.Meta{
	{ID: "1", Source: "/worker/w", Subject: "a/b/0", Time: time.Unix(1795403848, 18_000_000).UTC()},
	{ID: "2", Source: "/agent/a", Subject: "a/b", Time: time.Unix(1795403848, 0).UTC(), TraceParent: "00-1-2-01",
		TraceState: "vendor=a b,other=c", Baggage: "user=ann;p=1",
		Sequence: events.Sequence(4), PartitionKey: "a/b", Version: 4},
	{ID: "3", Source: "/client/me%20too", Time: time.Unix(1795403848, 5).UTC()},
}

// TestTheBindingOfTheSDK: the CloudEvents SDK writes the same message.
func TestTheBindingOfTheSDK(t *testing.T) {
	for _, m := range written {
		for _, body := range []events.Body{
			events.Claimed{Call: 3, Worker: "w", Attempt: 1}, events.Closed{By: "owner"},
		} {
			stored, err := events.Store(body)
			must.OK(t, err)
			got, err := encode("ty.x", &m, &stored, "ty-blob:data.0")
			must.OK(t, err)
			e, err := events.Encode(m, body)
			must.OK(t, err)
			e.SetExtension(extDataRef, "ty-blob:data.0")
			var data bytes.Buffer
			header, err := cejs.WriteMsg(t.Context(), (*binding.EventMessage)(&e), &data)
			must.OK(t, err)
			want := nats.Msg{Subject: "ty.x", Header: header, Data: data.Bytes()}
			if diff := cmp.Diff(want.Header, got.Header); diff != "" || !bytes.Equal(got.Data, want.Data) {
				t.Errorf("the SDK's message has %s and the data %q, ours %q", diff, want.Data, got.Data)
			}
		}
	}
	for _, m := range []events.Meta{{Source: "/a"}, {ID: "1"}, {ID: "1", Source: "%zz"}} {
		if msg, err := encode("ty.x", &m, &events.Stored{Type: "t"}, ""); err == nil {
			t.Errorf("%+v was written as %v", m, msg.Header)
		}
	}
}

// TestTheReaderOfTheSDK: what is read without the CloudEvents SDK, the SDK reads alike. Messages differ from ours in
// up to three headers.
func TestTheReaderOfTheSDK(t *testing.T) {
	names := []string{"ce-id", "ce-source", "ce-type", "ce-subject", "ce-time", "ce-specversion", "ce-datacontenttype",
		"ce-dataschema", "ce-traceparent", "ce-tracestate", "ce-baggage",
		"ce-sequence", "ce-partitionkey", "ce-tyversion", "ce-tyminreader",
		"ce-dataref", "ce-other", "ce-no name", "ce-", "CE-id", "Ce-Source", "ce-ID", "content-type", "Content-Type",
		"Nats-Stream"}
	values := []string{"", " ", "x", " x", "/a/b", "a b", "http://[::1", "%zz", "/a%20b", "1.0", "0.3", "7", "1000000",
		"-1", "v2", "application/json", "text/plain", ";", "2026-11-23T10:00:00Z", "2026-11-23T10:00:00.123+01:00",
		"yesterday", string(events.CallClaimed), string(events.BatchClosed), "ty-blob:data.0"}
	data := [][]byte{[]byte(`{"worker":"w","attempt":1}`), []byte(`[]`), nil}
	b, direct := &Broker{}, 0
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 0))
		stored, err := events.Store(events.Claimed{Worker: "w", Attempt: 1})
		must.OK(t, err)
		m, err := encode("ty.x", &written[r.IntN(len(written))], &stored, "")
		must.OK(t, err)
		h := maps.Clone(m.Header)
		for range r.IntN(4) {
			name := names[r.IntN(len(names))]
			switch r.IntN(3) {
			case 0:
				delete(h, name)
			default:
				h[name] = []string{values[r.IntN(len(values))]}
			}
		}
		v, ok := envelope(h)
		if !ok {
			continue
		}
		direct++
		said := func(meta events.Meta, body events.Body, err error) string {
			return fmt.Sprintf("%+v %+v %v", meta, body, err)
		}
		content := data[r.IntN(len(data))]
		got := said(v.Body(content))
		e, err := b.event(t.Context(), h, content)
		if err != nil {
			t.Fatalf("seed %d: %v: %s, and the SDK says %v", seed, h, got, err)
		}
		if want := said(events.Decode(*e)); got != want {
			t.Fatalf("seed %d: %v:\n%s, and the SDK says\n%s", seed, slices.Sorted(maps.Keys(h)), got, want)
		}
	}
	if direct < 5_000 {
		t.Errorf("only %d messages were read without the SDK", direct)
	}
}

// BenchmarkMessage is an event's way into a message and out of it.
func BenchmarkMessage(b *testing.B) {
	b.ReportAllocs()
	broker, m := &Broker{}, written[1]
	for b.Loop() {
		stored, err := events.Store(events.Claimed{Worker: "w", Attempt: 1})
		must.OK(b, err)
		msg, err := encode("ty.x", &m, &stored, "")
		if err == nil {
			_, _, err = broker.decode(b.Context(), msg.Header, msg.Data)
		}
		must.OK(b, err)
	}
}
