package natsbroker_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// forged has an agent publish an event of a type on a subject of its own, as its credentials let it.
func forged(t *testing.T, nc *nats.Conn, subject string, body events.Body, header nats.Header) {
	t.Helper()
	data := must.JSON(t, body)
	m := nats.NewMsg(subject)
	m.Data = data
	for name, value := range map[string]string{
		"ce-specversion": "1.0", "ce-id": fmt.Sprint("forged-", time.Now().UnixNano()), "ce-source": "/eve",
		"ce-type": string(body.EventType()), "ce-time": time.Now().UTC().Format(time.RFC3339Nano),
		"content-type": "application/json", "ce-subject": "eve/x", "ce-partitionkey": "eve/x", "ce-tyversion": "1",
	} {
		m.Header.Set(name, value)
	}
	for name := range header {
		m.Header.Set(name, header.Get(name))
	}
	r, err := nc.RequestMsg(m, 10*time.Second)
	must.OK(t, err)
	t.Logf("%s: %s", subject, r.Data)
}

// TestAForgedRecordHidesNobody: what an agent publishes under its own name changes no list of others' batches.
func TestAForgedRecordHidesNobody(t *testing.T) {
	y, s := guardedArchiveYard(t)
	archivedShapes["answered at plan"](y, y.submit("victim"))
	place := y.place(keyOf("victim"))
	list := func() (out []string) {
		for k, err := range y.b.Kept(t.Context(), "", time.Time{}, time.Time{}) {
			must.OK(t, err)
			out = append(out, fmt.Sprintf("%s at %d", k.Key, k.Place))
		}
		return out
	}
	eve := testenv.ConnAs(t, s, access.Principal{Role: access.Agent, Name: "eve"})
	forged(t, eve, "ty.batch.eve.x", events.Archived{Object: "0", Sum: "0", Before: 1, Content: "0", Place: place,
		Submitted: time.Now()}, nil)
	y.acknowledge(1)
	a := y.archiver(y.b, always)
	for n := 0; n == 0; {
		r, err := y.round(a)
		must.OK(t, err)
		n = r.Batches
	}
	if got := list(); !slices.Contains(got, fmt.Sprintf("%s at %d", keyOf("victim"), place)) {
		t.Errorf("the archived batch is not listed any more: %q", got)
	}
}

// noBody is what no event of its type has as its data.
type noBody struct{ of events.Type }

func (n noBody) EventType() events.Type     { return n.of }
func (noBody) MarshalJSON() ([]byte, error) { return []byte(`"x"`), nil }

// TestAForgedRecordEndsNoList: a record that cannot be read, which an agent has published under its own name, ends no
// list of what all have submitted.
func TestAForgedRecordEndsNoList(t *testing.T) {
	y, s := guardedArchiveYard(t)
	y.archiver(y.b, always) // makes the archive
	y.submit("before")
	eve := testenv.ConnAs(t, s, access.Principal{Role: access.Agent, Name: "eve"})
	forged(t, eve, "ty.batch.eve.x", noBody{events.BatchArchived}, nil)
	y.submit("after")
	want := []toolyard.BatchKey{keyOf("before"), {Agent: "eve", ID: "x"}, keyOf("after")}
	var got []toolyard.BatchKey
	for k, err := range y.b.Kept(t.Context(), "", time.Time{}, time.Time{}) {
		if err != nil {
			t.Errorf("the list ends: %v", err)
			break
		}
		got = append(got, k.Key)
	}
	if !slices.Equal(got, want) {
		t.Errorf("there are %v, want %v", got, want)
	}
	newest, _, err := y.b.Newest(t.Context(), "", time.Time{}, time.Time{}, 10)
	if err != nil || len(newest) != len(want) {
		t.Errorf("the newest: %v, %v", newest, err)
	}
}

// TestAForgedRecordCountsNoBatchTwice: a record that its agent has written behind a submission is no other batch, or
// reports and exports would have each call of the batch twice.
func TestAForgedRecordCountsNoBatchTwice(t *testing.T) {
	y, s := guardedArchiveYard(t)
	y.archiver(y.b, always) // makes the archive
	sub := toolyard.Batch{Agent: "eve", Calls: []toolyard.Call{{Tool: "x"}}}
	sub.Normalize("b")
	must.OK(t, y.b.Submit(t.Context(), sub))
	eve := testenv.ConnAs(t, s, access.Principal{Role: access.Agent, Name: "eve"})
	for _, header := range []nats.Header{nil, {"Nats-Expected-Last-Subject-Sequence": {"0"},
		"Nats-Expected-Last-Subject-Sequence-Subject": {"ty.batch.eve.none"}}} {
		forged(t, eve, "ty.batch.eve.b", noBody{events.BatchArchived}, header)
		forged(t, eve, "ty.batch.eve.b", events.Archived{Object: "0", Sum: "0", Before: 1, Content: "0",
			Submitted: time.Now()}, header)
	}
	y.submit("after")
	var got []toolyard.BatchKey
	for k, err := range y.b.Kept(t.Context(), "", time.Time{}, time.Time{}) {
		must.OK(t, err)
		got = append(got, k.Key)
	}
	if want := []toolyard.BatchKey{sub.Key(), keyOf("after")}; !slices.Equal(got, want) {
		t.Errorf("there are %v, want %v", got, want)
	}
}

// TestAnAgentCannotKeepItsBatchFromBeingCanceled: an operator can end what an agent has handed in.
func TestAnAgentCannotKeepItsBatchFromBeingCanceled(t *testing.T) {
	y, s := guardedArchiveYard(t)
	sub := toolyard.Batch{Agent: "eve", Calls: []toolyard.Call{{Tool: "x"}}}
	sub.Normalize("b")
	must.OK(t, y.b.Submit(t.Context(), sub))
	eve := testenv.ConnAs(t, s, access.Principal{Role: access.Agent, Name: "eve"})
	forged(t, eve, "ty.event.eve.b._.control", events.Ended{}, nil)
	began := time.Now()
	if err := y.b.Cancel(t.Context(), sub.Key(), "stop", 0); err != nil {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	forged(t, eve, "ty.event.eve.b._.control", events.Ended{}, nil) // behind what was asked before
	if err := y.b.Cancel(t.Context(), sub.Key(), "stop"); err != nil {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	_ = batch.ChainControl
}

// TestNobodyElseSwallowsAWake: what an agent publishes under its own name does not keep others' batches asleep.
func TestNobodyElseSwallowsAWake(t *testing.T) {
	y, s := guardedArchiveYard(t)
	sub := y.submit("victim")
	k := sub.Key()
	eve := testenv.ConnAs(t, s, access.Principal{Role: access.Agent, Name: "eve"})
	const parked = 7
	now := time.Now().Truncate(5 * time.Second)
	for n := range 3 {
		forged(t, eve, fmt.Sprint("ty.batch.eve.x", n), events.Ended{}, nats.Header{"Nats-Msg-Id": {
			fmt.Sprintf("wake.%s.%d.%d", "a=2eb.victim", parked, now.Add(time.Duration(n)*5*time.Second).Unix())}})
	}
	st := testenv.Stream(t, y.js, "TY_BATCH")
	must.OK(t, y.b.Wake(t.Context(), k, parked))
	if m, err := st.GetLastMsgForSubject(t.Context(), "ty.wake.a=2eb.victim"); err != nil {
		t.Errorf("Wake says that it is stored, and there is none: %v, %v", m, err)
	}
}
