package pool

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/version"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// TestASubmissionOverNATSIsReadAsOverHTTP: a field that nobody knows, or whose name has another case, or that stands
// there twice, may have been meant to deny something. Nothing of such a batch runs. What a newer version wrote may have
// more fields.
func TestASubmissionOverNATSIsReadAsOverHTTP(t *testing.T) {
	testenv.OneShard(t)
	t.Parallel()
	s := testenv.Server(t)
	nc, b := testenv.Conn(t, s), testenv.Broker(t, s, "/test")
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, reader("read"), says("x"))}})
	startDispatcher(t, s, dispatcher.Config{})
	submit := func(id, version, data string) {
		t.Helper()
		m := nats.NewMsg("ty.batch.a." + id)
		for name, value := range map[string]string{
			"ce-specversion": "1.0", "ce-id": broker.NewID(), "ce-source": "/agent/a",
			"ce-type": string(events.BatchSubmitted), "ce-subject": "a/" + id,
			"ce-time": time.Now().UTC().Format(time.RFC3339Nano), "ce-datacontenttype": "application/json",
			"ce-tyversion": version,
		} {
			m.Header.Set(name, value)
		}
		m.Data = []byte(data)
		if _, err := nc.RequestMsg(m, 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	const call = `"calls":[{"id":"1","tool":"read","input":{}}]`
	for name, tt := range map[string]struct{ data, field, says string }{
		"unknown":  {`{` + call + `,"colour":"red"}`, "colour", "is not a field of a batch"},
		"misspelt": {`{"cals":[{"id":"1","tool":"read","input":{}}]}`, "cals", `did you mean "calls"`},
		"of-a-provider": {`{"anthropic":{"role":"assistant","content":[]}}`, "anthropic",
			"is not a field of a batch"},
		"unknown-option": {`{` + call + `,"options":{"denny":["read"]}}`, "options.denny", `did you mean "deny"`},
		"unknown-in-call": {`{"calls":[{"id":"1","tool":"read","input":{},"dry_run":true}]}`, "calls[0].dry_run",
			"is not a field of a call"},
		"case":           {`{` + call + `,"Session":"s"}`, "Session", `did you mean "session"`},
		"case-of-option": {`{` + call + `,"options":{"Deny":["bash"]}}`, "options.Deny", `did you mean "deny"`},
		"case-in-call":   {`{"calls":[{"id":"1","Tool":"read","input":{}}]}`, "calls[0].Tool", `did you mean "tool"`},
		"twice":          {`{` + call + `,"options":{"deny":["read"],"deny":[]}}`, "options.deny", "appears twice"},
		"two-cases": {`{` + call + `,"options":{"deny":["read"],"DENY":[]}}`, "options.DENY",
			`did you mean "deny"`},
	} {
		submit(name, strconv.Itoa(version.Wire), tt.data)
		if why := refusalOf(t, b, toolyard.BatchKey{Agent: "a", ID: toolyard.BatchID(name)}); why == nil ||
			why.Status != 400 || why.Field != tt.field || !strings.Contains(why.Detail, tt.says) {
			t.Errorf("%s: %+v; want %s %q", name, why, tt.field, tt.says)
		}
	}
	for name, version := range map[string]string{"ours": strconv.Itoa(version.Wire), "later": laterVersion} {
		data := `{` + call + `,"options":{"deny":null}}`
		if name == "later" {
			data = `{` + call + `,"colour":"red"}`
		}
		submit(name, version, data)
		if why := refusalOf(t, b, toolyard.BatchKey{Agent: "a", ID: toolyard.BatchID(name)}); why != nil {
			t.Errorf("%s: %+v; want results", name, why)
		}
	}
}

// TestABadCallOverNATS: what is wrong with one call alone is its result, in a submission and where calls are appended
// by hand.
func TestABadCallOverNATS(t *testing.T) {
	testenv.OneShard(t)
	t.Parallel()
	s := testenv.Server(t)
	nc := testenv.Conn(t, s)
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, reader("read"), says("x"))}})
	startDispatcher(t, s, dispatcher.Config{})
	publish := func(subject string, kind events.Type, data string) {
		t.Helper()
		m := nats.NewMsg(subject)
		for name, value := range map[string]string{
			"ce-specversion": "1.0", "ce-id": broker.NewID(), "ce-source": "/agent/a", "ce-type": string(kind),
			"ce-subject": "a/b",
			"ce-time":    time.Now().UTC().Format(time.RFC3339Nano), "ce-datacontenttype": "application/json",
			"ce-tyversion": strconv.Itoa(version.Wire),
		} {
			m.Header.Set(name, value)
		}
		m.Data = []byte(data)
		if _, err := nc.RequestMsg(m, 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	calls := func(n string) string {
		deep := strings.Repeat(`{"a":`, 600) + "1" + strings.Repeat("}", 600)
		return `"calls":[{"id":"1` + n + `","tool":"read","input":{}},{"id":"2` + n +
			`","tool":"","input":{}},{"id":"3` + n +
			`","tool":"read","input":{"a":1,"a":2}},{"id":"4` + n + `","tool":"read","input":` + deep + `},{"id":"5` +
			n + `","tool":"read","input":{}}]`
	}
	publish("ty.batch.a.b", events.BatchSubmitted, `{"open":true,`+calls("")+`}`)
	publish("ty.event.a.b._.input", events.CallsAppended, `{`+calls("x")+`}`)
	publish("ty.event.a.b._.input", events.BatchClosed, `{"by":"agent"}`)
	c, err := client.Connect(t.Context(), nc, client.Options{})
	must.OK(t, err)
	var got []string
	for r, err := range c.Batch(toolyard.BatchKey{Agent: "a", ID: "b"}).Results(t.Context()) {
		must.OK(t, err)
		got = append(got, string(r.Code))
	}
	const half = " unknown_tool schema_validation_failed schema_validation_failed "
	if want := half + " " + half; strings.Join(got, " ") != want {
		t.Errorf("the codes are %q, want %q", strings.Join(got, " "), want)
	}
}

// refusalOf waits for the first reply to a batch, and returns why it was refused; nil when it was not.
func refusalOf(t *testing.T, b *natsbroker.Broker, k toolyard.BatchKey) *events.Refused {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		replies, err := b.Replies(t.Context(), k, 0)
		must.OK(t, err)
		if len(replies) == 0 {
			continue
		}
		if why, ok := replies[0].Body.(events.Refused); ok {
			return &why
		}
		return nil
	}
	t.Fatalf("batch %s was not answered", k)
	return nil
}

// TestWhatIsCutInAnEscape: a submission, or what an agent says about its batch, that ends in the middle of an escape
// ends that batch, and the dispatcher goes on.
func TestWhatIsCutInAnEscape(t *testing.T) {
	testenv.OneShard(t)
	t.Parallel()
	s := testenv.Server(t)
	nc, b := testenv.Conn(t, s), testenv.Broker(t, s, "/test")
	publish := func(subject, about, data string) {
		t.Helper()
		m := nats.NewMsg(subject)
		for name, value := range map[string]string{
			"ce-specversion": "1.0", "ce-id": broker.NewID(), "ce-source": "/agent/a",
			"ce-type": string(events.BatchSubmitted), "ce-subject": about,
			"ce-time": time.Now().UTC().Format(time.RFC3339Nano), "ce-datacontenttype": "application/json",
			"ce-tyversion": strconv.Itoa(version.Wire),
		} {
			m.Header.Set(name, value)
		}
		m.Data = []byte(data)
		if _, err := nc.RequestMsg(m, 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	publish("ty.batch.a.cut", "a/cut", `{"calls":[{"id":"1","tool":"read","input":"\`)
	publish("ty.batch.a.control", "a/control", `{"calls":[{"id":"1","tool":"read","input":{}}]}`)
	publish("ty.event.a.control._.control", "a/control", `{"calls":[{"id":"1","tool":"read","input":"\`)
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, reader("read"), says("x"))}})
	startDispatcher(t, s, dispatcher.Config{MaxDeliveries: 2})
	if why := refusalOf(t, b, toolyard.BatchKey{Agent: "a", ID: "cut"}); why == nil || why.Status != 400 {
		t.Errorf("the submission is answered with %+v", why)
	}
	var replies []batch.Record
	testenv.Until(t, "the batch with the cut control event is over", func() bool {
		var err error
		if replies, err = b.Replies(t.Context(), toolyard.BatchKey{Agent: "a", ID: "control"}, 0); err != nil {
			t.Fatal(err)
		}
		return len(replies) > 0 && broker.Over(replies[len(replies)-1])
	})
	publish("ty.batch.a.next", "a/next", `{"calls":[{"id":"1","tool":"read","input":{}}]}`)
	testenv.Until(t, "the dispatcher runs another batch", func() bool {
		replies, err := b.Replies(t.Context(), toolyard.BatchKey{Agent: "a", ID: "next"}, 0)
		return err == nil && len(replies) > 0 && broker.Over(replies[len(replies)-1])
	})
}
