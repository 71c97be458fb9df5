package natsbroker

import (
	"bytes"
	"testing"
	"time"

	cejs "github.com/cloudevents/sdk-go/protocol/nats_jetstream/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/internal/events"
)

// TestTheBindingOfTheSDK: the CloudEvents SDK writes the same message.
func TestTheBindingOfTheSDK(t *testing.T) {
	for _, m := range []events.Meta{
		{ID: "1", Source: "/worker/w", Subject: "a/b/0", Time: time.Unix(1795403848, 18_000_000).UTC()},
		{ID: "2", Source: "/agent/a", Subject: "a/b", Time: time.Unix(1795403848, 0).UTC(), TraceParent: "00-1-2-01",
			Sequence: events.Sequence(4), PartitionKey: "a/b", Version: 4},
	} {
		e, err := events.Encode(m, events.Claimed{Call: 3, Worker: "w", Attempt: 1})
		if err != nil {
			t.Fatal(err)
		}
		e.SetExtension(extDataRef, "ty-blob:data.0")
		got, err := encode("ty.x", &e)
		if err != nil {
			t.Fatal(err)
		}
		var data bytes.Buffer
		header, err := cejs.WriteMsg(t.Context(), (*binding.EventMessage)(&e), &data)
		if err != nil {
			t.Fatal(err)
		}
		want := nats.Msg{Subject: "ty.x", Header: header, Data: data.Bytes()}
		if diff := cmp.Diff(want.Header, got.Header); diff != "" || !bytes.Equal(got.Data, want.Data) {
			t.Errorf("the SDK's message has %s and the data %q, ours %q", diff, want.Data, got.Data)
		}
	}
}
