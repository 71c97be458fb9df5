//go:build unix

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cejs "github.com/cloudevents/sdk-go/protocol/nats_jetstream/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// agent is a program that has no code of ours: a NATS connection, and what the contract says. Its subjects, headers and
// types are written here as the contract writes them.
type agent struct {
	t  *testing.T
	nc *nats.Conn
	js jetstream.JetStream
}

func newAgent(t *testing.T, url string) agent {
	t.Helper()
	nc, err := nats.Connect(url, credsFor(t, url, "operator"))
	must.OK(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	must.OK(t, err)
	return agent{t, nc, js}
}

// publish hands a message in as the contract asks: only if there is none on its subject.
func (a agent) publish(m *nats.Msg) error {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 20*time.Second)
	defer cancel()
	m.Header.Set("Nats-Expected-Last-Subject-Sequence", "0")
	_, err := a.js.PublishMsg(ctx, m)
	return err
}

func (a agent) submit(m *nats.Msg) {
	a.t.Helper()
	if err := a.publish(m); err != nil {
		a.t.Fatalf("publish to %s: %v", m.Subject, err)
	}
}

// replies reads a batch's replies up to the last: one that says completed, or a refusal.
func (a agent) replies(names string) []event.Event {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 30*time.Second)
	defer cancel()
	stream, err := a.js.StreamNameBySubject(ctx, "ty.reply."+names)
	must.OK(a.t, err)
	c, err := a.js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{"ty.reply." +
		names}})
	must.OK(a.t, err)
	it, err := c.Messages()
	must.OK(a.t, err)
	defer it.Stop()
	var out []event.Event
	for {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			a.t.Fatalf("replies of %s, after %d: %v", names, len(out), err)
		}
		e, err := binding.ToEvent(ctx, cejs.NewMessage(&nats.Msg{Subject: m.Subject(), Header: m.Headers(),
			Data: m.Data()}))
		if err == nil {
			err = e.Validate()
		}
		if err != nil {
			a.t.Fatalf("a reply of %s is no CloudEvent: %v\n%v\n%s", names, err, m.Headers(), m.Data())
		}
		out = append(out, *e)
		var data struct{ Completed bool }
		decode(a.t, e.Data(), &data)
		if data.Completed || e.Type() == "dev.toolyard.batch.refused.v1" {
			return out
		}
	}
}

// byHand is a submission with headers that are written by hand.
func byHand(names, data string) *nats.Msg {
	m := nats.NewMsg("ty.batch." + names)
	for k, v := range map[string]string{
		"ce-specversion": "1.0", "ce-type": "dev.toolyard.batch.submitted.v1", "ce-source": "/agent/by-hand",
		"ce-id":        "id-of-" + names,
		"content-type": "application/json",
	} {
		m.Header.Set(k, v)
	}
	m.Data = []byte(data)
	return m
}

// bySDK is a submission that the CloudEvents SDK made.
func bySDK(t *testing.T, names string, data any) *nats.Msg {
	t.Helper()
	e := event.New()
	e.SetID("sdk-" + names)
	e.SetType("dev.toolyard.batch.submitted.v1")
	e.SetSource("https://agents.example/sdk")
	e.SetSubject(names)
	e.SetTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	e.SetExtension("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	must.OK(t, e.SetData(event.ApplicationJSON, data))
	var body bytes.Buffer
	header, err := cejs.WriteMsg(t.Context(), (*binding.EventMessage)(&e), &body)
	must.OK(t, err)
	return &nats.Msg{Subject: "ty.batch." + names, Header: header, Data: body.Bytes()}
}

type repliedResult struct {
	Index  int
	CallID string `json:"call_id"`
	Code   toolyard.Code
	Output string
}

// checkReplies checks the form and the order of replies, and returns their results.
func checkReplies(t *testing.T, names string, replies []event.Event) (results []repliedResult) {
	t.Helper()
	for i, e := range replies {
		var data struct {
			Results   []repliedResult
			Completed *bool
		}
		decode(t, e.Data(), &data)
		if e.Type() != "dev.toolyard.results.v1" || e.DataContentType() != "application/json" ||
			data.Completed == nil || *data.Completed != (i == len(replies)-1) {
			t.Fatalf("%s: reply %d of %d: %s", names, i+1, len(replies), e)
		}
		if len(data.Results) == 0 && i < len(replies)-1 {
			t.Errorf("%s: reply %d has no results", names, i+1)
		}
		if len(data.Results) > 0 {
			if got, want := e.Extensions()["sequence"], fmt.Sprintf("%08d", len(results)); got != want {
				t.Errorf("%s: reply %d has the sequence %v, want %s", names, i+1, got, want)
			}
		}
		if want := strings.Replace(names, ".", "/", 1); e.Subject() != want {
			t.Errorf("%s: reply %d is about %q, want %q", names, i+1, e.Subject(), want)
		}
		for _, r := range data.Results {
			if r.Index != len(results) {
				t.Fatalf("%s: result %d comes where %d is next", names, r.Index, len(results))
			}
			results = append(results, r)
		}
	}
	return results
}

const agentBatch = `{"calls":[{"id":"r","tool":"read_file","input":{"file_path":"a.txt"}},{"id":"w","tool":"write_file","input":{"file_path":"b.txt","content":"two"}},
	{"id":"g","tool":"glob","input":{"pattern":"*.txt"}},{"id":"u","tool":"nope","input":{}},{"id":"m","tool":"read_file","input":{"file_path":"missing"}}]}`

var agentCodes = []toolyard.Code{"", "", "", toolyard.UnknownTool, toolyard.InvalidArguments}

// TestAgentWithoutOurClient submits in both ways, with names of all kinds, and reads what comes back.
func TestAgentWithoutOurClient(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	d := dispatcher(t, "--with-worker", "--workspace", "default="+dir, "--permission-mode", "accept_edits")
	a := newAgent(t, d.says["nats"])

	check := func(names string) {
		t.Helper()
		var codes []toolyard.Code
		for _, r := range checkReplies(t, names, a.replies(names)) {
			codes = append(codes, r.Code)
		}
		if diff := cmp.Diff(agentCodes, codes); diff != "" {
			t.Errorf("%s: codes (-want +got):\n%s", names, diff)
		}
	}
	a.submit(byHand("agent-1.by-hand", agentBatch))
	check("agent-1.by-hand")
	a.submit(bySDK(t, "agent-1.by-sdk", json.RawMessage(agentBatch)))
	check("agent-1.by-sdk")

	// Every byte that is not in [A-Za-z0-9_-] is =hh, so that any name is one token: here "a b.c*>=é" and "2026/11 #1".
	odd := "a=20b=2ec=2a=3e=3d=c3=a9.2026=2f11=20=231"
	a.submit(byHand(odd, agentBatch))
	check(odd)
	// A body may name agent and batch as long as it says the same, and its own session and workspace.
	a.submit(byHand("agent=2e2.b=3a1", `{"agent":"agent.2","id":"b:1","session":"s 1",`+agentBatch[1:]))
	check("agent=2e2.b=3a1")
	v := viewOf(t, newPlace(t, nil).ok(nil, "submit", "--nats", d.says["nats"], "--json",
		batchFile(t, unmarshalBatch(t, `{"agent":"agent.2","id":"b:1","session":"s 1",`+agentBatch[1:]))))
	if v.Agent != "agent.2" || v.ID != "b:1" || v.Session != "s 1" || len(v.Results) != len(agentCodes) {
		t.Errorf("our own client sees %+v", v)
	}

	// The same again is refused by JetStream, whatever it holds.
	for _, data := range []string{agentBatch, fine} {
		err := a.publish(byHand("agent-1.by-hand", data))
		if apiErr, ok := errors.AsType[*jetstream.APIError](err); !ok || apiErr.ErrorCode != 10071 {
			t.Errorf("a second submission: %v, want error 10071", err)
		}
	}
	check("agent-1.by-hand")

	// 200 calls come in order over however many messages.
	var many toolyard.Batch
	for i := range 200 {
		many.Calls = append(many.Calls, toolyard.Call{ID: fmt.Sprint("c", i), Tool: "read_file",
			Input: input(map[string]any{"file_path": "a.txt"})})
	}
	a.submit(bySDK(t, "agent-1.many", many))
	results := checkReplies(t, "agent-1.many", a.replies("agent-1.many"))
	for i, r := range results {
		if r.CallID != fmt.Sprint("c", i) || r.Output != "1\tone\n" {
			t.Errorf("result %d: %+v", i, r)
		}
	}
	if len(results) != 200 {
		t.Errorf("%d results of 200", len(results))
	}
}

func unmarshalBatch(t *testing.T, text string) (b toolyard.Batch) {
	t.Helper()
	decode(t, []byte(text), &b)
	return b
}

// TestRefusals: a submission that cannot be accepted is answered on its reply subject, and nothing else happens.
func TestRefusals(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	d := dispatcher(t, "--with-worker", "--workspace", "default="+dir)
	a := newAgent(t, d.says["nats"])
	without := func(header string) func(*nats.Msg) { return func(m *nats.Msg) { m.Header.Del(header) } }
	with := func(header, value string) func(*nats.Msg) {
		return func(m *nats.Msg) { m.Header.Set(header, value) }
	}
	structured := `{"specversion":"1.0","id":"1","source":"/x","type":"dev.toolyard.batch.submitted.v1","datacontenttype":"application/json","data":` + fine + `}`
	for i, c := range []struct {
		name, names, data string
		change            func(*nats.Msg)
		status            int
		field             string
		says              []string
	}{
		{name: "structured mode", data: structured,
			change: func(m *nats.Msg) { m.Header = nats.Header{"content-type": {"application/cloudevents+json"}} },
			says:   []string{"binary binding"}},
		{name: "no headers at all", data: fine, change: func(m *nats.Msg) { m.Header = nats.Header{} },
			says: []string{"no CloudEvents headers", "binary binding"}},
		{name: "not even JSON", data: "hello", change: func(m *nats.Msg) { m.Header = nats.Header{} },
			says: []string{"no CloudEvents headers"}},
		{name: "no data", data: "", says: []string{"data"}},
		{name: "no id", data: fine, change: without("ce-id"), says: []string{"id"}},
		{name: "no source", data: fine, change: without("ce-source"), says: []string{"source"}},
		{name: "no type", data: fine, change: without("ce-type"), says: []string{"type"}},
		{name: "version of tomorrow", data: fine, change: with("ce-specversion", "2.0"), says: []string{"CloudEvent"}},
		{name: "type that nobody knows", data: fine, change: with("ce-type", "dev.toolyard.batch.submitted.v9"),
			says: []string{"names no newer version"}},
		{name: "bad time", data: fine, change: with("ce-time", "yesterday"), says: []string{"CloudEvent"}},
		{name: "a reference to nowhere", data: "", change: with("ce-dataref", "ty-blob:data."+strings.Repeat("0", 64)),
			says: []string{"dataref"}},
		{name: "a reference elsewhere", data: "", change: with("ce-dataref", "http://127.0.0.1:9/x"),
			says: []string{"dataref"}},
		{name: "data is not JSON", data: "{", says: []string{"not of its type"}},
		{name: "data is an array", data: "[]", says: []string{"not of its type"}},
		{name: "no calls", data: `{"calls":[]}`, field: "calls", says: []string{"has no calls"}},
		{name: "other agent", data: `{"agent":"other",` + fine[1:], field: "agent", says: []string{`"other"`, `"bad"`}},
		{name: "other id", data: `{"id":"other",` + fine[1:], field: "id", says: []string{`"other"`}},
		{name: "bad deny rule", data: fine[:len(fine)-1] +
			`,"options":{"deny":["bash","bad rule("]}}`, field: "options.deny[1]", says: []string{`"bad rule("`}},
		{name: "bad ask rule", data: fine[:len(fine)-1] + `,"options":{"ask":[""]}}`, field: "options.ask[0]"},
		{name: "bad strategy", data: fine[:len(fine)-1] +
			`,"options":{"partition":"nope"}}`, field: "options.partition", says: []string{"ordered_halt"}},
		{name: "duplicate ids", data: `{"calls":[{"id":"a","tool":"grep"},{"id":"a","tool":"grep"}]}`,
			field: "calls[1].id"},
		{name: "control character in a name", data: `{"session":"a\u0000b",` +
			fine[1:], field: "session", says: []string{"U+0000"}},
		{name: "too many calls", data: manyCalls(10_001), status: 413, field: "calls",
			says: []string{"10001", "10000"}},
		{name: "control character in the subject", names: "bad.a=00b", data: fine, field: "id",
			says: []string{"U+0000"}},
		{name: "long name in the subject", names: "bad." +
			strings.Repeat("a", 129), data: fine, field: "id", says: []string{"129 bytes"}},
		{name: "not UTF-8 in the subject", names: "bad.=ff", data: fine, field: "id", says: []string{"UTF-8"}},
	} {
		if c.names == "" {
			c.names = fmt.Sprintf("bad.b%d", i)
		}
		if c.status == 0 {
			c.status = 400
		}
		m := byHand(c.names, c.data)
		if c.change != nil {
			c.change(m)
		}
		a.submit(m)
		replies := a.replies(c.names)
		var problem struct {
			Type, Title, Detail, Field string
			Status                     int
		}
		decode(t, replies[0].Data(), &problem)
		if len(replies) != 1 || replies[0].Type() != "dev.toolyard.batch.refused.v1" || problem.Status != c.status ||
			problem.Field != c.field || strings.Contains(problem.Detail, " Go ") ||
			problem.Type != "urn:toolyard:problem:input" || problem.Title == "" || problem.Detail == "" {
			t.Errorf("%s: answered with %v", c.name, replies)
		}
		for _, s := range c.says {
			if !strings.Contains(problem.Detail, s) {
				t.Errorf("%s: the detail does not say %q: %s", c.name, s, problem.Detail)
			}
		}
	}
	// The system goes on, and a refused batch can be told from others by whoever asks for it.
	a.submit(byHand("good.b1", fine))
	if r := checkReplies(t, "good.b1", a.replies("good.b1")); len(r) != 1 || r[0].Code != "" {
		t.Errorf("afterwards a good batch ends with %+v", r)
	}
}

// TestOtherEventsAreRefused: an event of ours that is no submission has no place on a submission's subject.
func TestOtherEventsAreRefused(t *testing.T) {
	d := dispatcher(t)
	a := newAgent(t, d.says["nats"])
	for kind, data := range map[string]string{
		"batch.planned": `{"submission_seq":1,"owner":"me"}`, "results": `{"results":[],"completed":true}`,
		"batch.refused": `{"status":400}`,
	} {
		m := byHand("bad."+strings.ReplaceAll(kind, ".", "-"), data)
		m.Header.Set("ce-type", "dev.toolyard."+kind+".v1")
		a.submit(m)
		if replies := a.replies(strings.TrimPrefix(m.Subject, "ty.batch.")); len(replies) != 1 ||
			replies[0].Type() != "dev.toolyard.batch.refused.v1" {
			t.Errorf("%s: answered with %v", kind, replies)
		}
	}
}

// TestTokensThatAreNeverMade: a token that is not the escape of a name is refused on its own reply subject: were it
// read as a name all the same, one batch would have two subjects.
func TestTokensThatAreNeverMade(t *testing.T) {
	d := dispatcher(t)
	a := newAgent(t, d.says["nats"])
	for _, names := range []string{"a$b.x", "é.x", "a.x:y", "a.=41", "a.b=", "a.b=zz", "a.=2E"} {
		a.submit(byHand(names, fine))
		if replies := a.replies(names); len(replies) != 1 || replies[0].Type() != "dev.toolyard.batch.refused.v1" {
			t.Errorf("%s: answered with %v", names, replies)
		}
	}
}

// TestLongReplies: results that are long together come in replies that hold them whole: nobody has to fetch anything.
func TestLongReplies(t *testing.T) {
	t.Parallel()
	line := strings.Repeat("x", 99) + "\n"
	dir := workspace(t, map[string]string{"long.txt": strings.Repeat(line, 2_000)})
	d := dispatcher(t, "--with-worker", "--workspace", "default="+dir)
	a := newAgent(t, d.says["nats"])
	var calls []string
	for i := range 30 {
		calls = append(calls, fmt.Sprintf(`{"id":"c%d","tool":"read_file","input":{"file_path":"long.txt"}}`, i))
	}
	a.submit(byHand("agent-1.long", `{"calls":[`+strings.Join(calls, ",")+`]}`))
	results := checkReplies(t, "agent-1.long", a.replies("agent-1.long"))
	for _, r := range results {
		if r.Code != "" || strings.Count(r.Output, "xxx\n") != 2_000 {
			t.Errorf("result %d: %s, %d bytes", r.Index, r.Code, len(r.Output))
		}
	}
	if len(results) != len(calls) {
		t.Errorf("%d results of %d", len(results), len(calls))
	}
}

// TestAgentsCredentials: what the contract says about agent.creds is all that an agent needs that has no code of ours.
func TestAgentsCredentials(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	store := t.TempDir()
	url := start(t, 3, "dispatcher", "serve", "--with-worker", "--workspace", "default="+dir, "--listen", "127.0.0.1:0",
		"--nats-listen", "127.0.0.1:0", "--data", store).says["nats"]
	nc, err := nats.Connect(url, nats.UserCredentials(filepath.Join(store, "creds", "agent.creds")))
	must.OK(t, err)
	t.Cleanup(nc.Close)
	subs := map[string]*nats.Subscription{}
	for _, kind := range []string{"ty.live.reply", "ty.live.event", "ty.progress"} {
		if subs[kind], err = nc.SubscribeSync(kind + ".default.>"); err != nil {
			t.Fatal(err)
		}
	}
	publish := func(names string) (ack struct{ Error *struct{ Code int } }) {
		t.Helper()
		m := byHand(names, agentBatch)
		m.Header.Set("Nats-Expected-Last-Subject-Sequence", "0")
		got, err := nc.RequestMsg(m, 20*time.Second)
		if err != nil {
			t.Fatalf("publish to %s: %v", m.Subject, err)
		}
		decode(t, got.Data, &ack)
		return ack
	}
	if ack := publish("default.mine"); ack.Error != nil {
		t.Fatalf("the submission was refused: %+v", ack.Error)
	}
	if ack := publish("default.mine"); ack.Error == nil {
		t.Error("the same id was accepted again")
	}
	next := func(s *nats.Subscription) event.Event {
		t.Helper()
		m, err := s.NextMsg(30 * time.Second)
		if err != nil {
			t.Fatalf("%s: %v", s.Subject, err)
		}
		e, err := binding.ToEvent(t.Context(), cejs.NewMessage(m))
		if err != nil {
			t.Fatalf("%s: %v", s.Subject, err)
		}
		return *e
	}
	results := func(s *nats.Subscription) []repliedResult {
		t.Helper()
		var replies []event.Event
		for data := (struct{ Completed bool }{}); !data.Completed; {
			replies = append(replies, next(s))
			decode(t, replies[len(replies)-1].Data(), &data)
		}
		return checkReplies(t, "default.mine", replies)
	}
	heard := results(subs["ty.live.reply"])
	if len(heard) != len(agentCodes) {
		t.Errorf("it heard %+v", heard)
	}
	if e := next(subs["ty.live.event"]); e.Subject() != "default/mine" &&
		!strings.HasPrefix(e.Subject(), "default/mine/") {
		t.Errorf("the first event is %s", e)
	}
	// What was said before is asked for.
	inbox, err := nc.SubscribeSync(nc.NewInbox())
	must.OK(t, err)
	must.OK(t, nc.PublishRequest("ty.get.default.mine", inbox.Subject, []byte(`{"from": 0}`)))
	if diff := cmp.Diff(heard, results(inbox)); diff != "" {
		t.Errorf("it heard other results than it gets (-heard +got):\n%s", diff)
	}
	// Nothing of others, and no stream.
	m := byHand("other.b", agentBatch)
	if got, err := nc.RequestMsg(m, 5*time.Second); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("in another agent's name: %v, %v", got, err)
	}
	var found struct{ Streams []string }
	switch got, err := nc.Request("$JS.API.STREAM.NAMES", nil, 20*time.Second); {
	case err != nil:
		t.Error(err)
	default:
		if decode(t, got.Data, &found); len(found.Streams) > 0 {
			t.Errorf("it finds the streams %v", found.Streams)
		}
	}
}
