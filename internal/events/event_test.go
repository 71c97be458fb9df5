package events

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	cejs "github.com/cloudevents/sdk-go/protocol/nats_jetstream/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
)

// full has every attribute that we write.
var full = Meta{
	ID: "01a20290-10be-7dba-a59a-0361ead09e02", Source: "/agent/a=2e", Subject: "a/b/0", Time: time.Date(2026, 11, 21,
		12, 0, 0, 500, time.UTC),
	TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Sequence: Sequence(7), PartitionKey: "a/b",
	Version: 1,
}

// bySDK is the same event as the SDK makes it.
func bySDK(t *testing.T, e Event) event.Event {
	t.Helper()
	out := event.New()
	out.SetID(e.ID)
	out.SetSource(e.Source)
	out.SetType(e.Type)
	out.SetSubject(e.Subject)
	out.SetTime(e.Time)
	for name, value := range e.Extensions {
		out.SetExtension(name, value)
	}
	if err := out.SetData(e.ContentType, e.Data); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTheSDKWritesTheSame: both modes are the SDK's to the byte.
func TestTheSDKWritesTheSame(t *testing.T) {
	for name, m := range map[string]Meta{
		"all attributes": full, "few": {ID: "e", Source: "/x"}, "odd text": {ID: `"<e>"`, Source: "/a b/é?x=%20",
			Subject: "\\&", Time: full.Time},
	} {
		e, err := Encode(m, Started{Group: 1, Ticket: 2})
		if err != nil {
			t.Fatal(err)
		}
		theirs := bySDK(t, e)
		var data bytes.Buffer
		header, err := cejs.WriteMsg(t.Context(), (*binding.EventMessage)(&theirs), &data)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(map[string][]string(header), e.Header()); d != "" || !bytes.Equal(data.Bytes(), e.Data) {
			t.Errorf("%s, binary mode (-SDK +ours):\n%s%s", name, d, data.Bytes())
		}
		want, err := json.Marshal(theirs)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(e); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s, structured mode\nSDK  %s\nours %s, %v", name, want, got, err)
		}
		var again Event
		if err := json.Unmarshal(want, &again); err != nil || cmp.Diff(e, again) != "" {
			t.Errorf("%s: we read %s as %+v, %v", name, want, again, err)
		}
	}
}

// FuzzFromHeader: we read the headers that the SDK reads, and see in them what it sees.
func FuzzFromHeader(f *testing.F) {
	f.Add("1.0", "e", "/x", "t", "a/b", "2026-11-21T12:00:00Z", "tyversion", "1", "application/json")
	f.Add("1.0", " e ", "https://agents.example/a b", "t", "", "2026-11-21T12:00:00.5+01:00", "TraceParent", "x",
		"text/plain; charset=utf-8")
	f.Add("1.0", "", ":", "", " ", "yesterday", "under_score", "", "no/type/at all")
	f.Add("0.2", "e", "/x", "t", "", "", "", "", "")
	f.Fuzz(func(t *testing.T, version, id, source, kind, subject, at, name, value, contentType string) {
		h := map[string][]string{
			"ce-specversion": {version}, "ce-id": {id}, "ce-source": {source}, "ce-type": {kind}, "ce-subject": {subject},
			"ce-" + name: {value}, "content-type": {contentType}, "Other": {"x"},
		}
		if at != "" {
			h["ce-time"] = []string{at}
		}
		data := []byte(`{"group":1}`)
		ours, err := FromHeader(h, data)
		if err == nil {
			err = ours.Validate()
		}
		if version == "0.3" {
			return // which the SDK reads as well
		}
		theirs, errTheirs := binding.ToEvent(t.Context(), cejs.NewMessage(&nats.Msg{Header: h, Data: data}))
		if errTheirs == nil {
			errTheirs = theirs.Validate()
		}
		if (err == nil) != (errTheirs == nil) {
			t.Fatalf("%v\nSDK  %v\nours %v", h, errTheirs, err)
		}
		if err != nil {
			return
		}
		want := Event{
			ID: theirs.ID(), Source: theirs.Source(), Type: theirs.Type(), Subject: theirs.Subject(), Time: theirs.Time(),
			ContentType: theirs.DataContentType(), Data: theirs.Data(),
		}
		for name, v := range theirs.Extensions() {
			want.Extend(name, strings.TrimSpace(v.(string)))
		}
		if d := cmp.Diff(want, ours); d != "" {
			t.Fatalf("%v (-SDK +ours):\n%s", h, d)
		}
	})
}

func TestStructuredModeIsReadWithoutGuessing(t *testing.T) {
	const head = `{"specversion":"1.0","id":"e","source":"/x","type":"t"`
	for text, want := range map[string]string{
		head + `,"tyversion":2,"flag":true,"none":null,"data_base64":"e30="}`: "",
		head + `,"time":"2026-11-21T12:00:00Z","data":{"a":1.0}}`:             "",
		`{"id":"e","source":"/x","type":"t"}`:                                 "specversion: is required",
		`{"specversion":"2.0"}`:                                               `want 1.0, got "2.0"`,
		head + `,"tyversion":2.5}`:                                            "tyversion: is no value of an attribute",
		head + `,"tyversion":{}}`:                                             "tyversion: is no value of an attribute",
		head + `,"ty_version":"2"}`:                                           "other characters than a to z",
		head + `,"":"2"}`:                                                     "has no name",
		head + `,"time":"yesterday"}`:                                         "is no RFC 3339 time",
		head + `,"source":"%zz"}`:                                             "source: ",
		head + `,"data_base64":7}`:                                            "data_base64: ",
		head + `,"data_base64":"?"}`:                                          "data_base64: ",
		`[]`:                                                                  "cannot unmarshal array",
	} {
		var e Event
		err := json.Unmarshal([]byte(text), &e)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	var e Event
	if err := json.Unmarshal([]byte(head+`,"tyversion":2,"flag":true,"none":null,"data_base64":"e30="}`), &e); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Event{
		ID: "e", Source: "/x", Type: "t", Extensions: map[string]string{"tyversion": "2", "flag": "true"},
		Data: json.RawMessage(`{}`),
	}, e); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
