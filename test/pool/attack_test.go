package pool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/approval"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/version"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// attackers are those who try: each has credentials, and something that it may do, through which it tries more.
var attackers = []struct {
	name string
	who  access.Principal
	// may is a subject that it may append to, next what it calls the requests for messages of a lane.
	may, next string
	// foreign are subjects that it must not write to.
	foreign []string
}{
	{"worker", access.Principal{Role: access.Worker, Name: "default"}, "ty.event.ann.att.default.7",
		"ty.next.READ_ONLY.0", []string{
			"ty.event.ann.att._.batch", "ty.event.ann.att._.control", "ty.event.ann.att._.input",
			"ty.event.ann.att.other.0", "ty.reply.ann.att", "ty.batch.ann.forged", "ty.batch.bob.forged",
			"ty.wake.ann.att", "ty.call.READ_ONLY.other.0.ann.att.0.0", "$KV.ty_session._.ann.att.0.1.id",
			"$KV.ty_worker.forged", "$O.ty_blob.M.forged", "ty.dead.call.ann.att",
		}},
	{"agent", access.Principal{Role: access.Agent, Name: "ann"}, "ty.event.ann.att._.input", "ty.next.READ_ONLY.0",
		[]string{
			"ty.event.ann.att._.batch", "ty.event.ann.att.default.0", "ty.event.bob.att._.control", "ty.reply.ann.att",
			"ty.batch.bob.forged", "ty.wake.bob.att",
			"ty.call.READ_ONLY.default.0.ann.att.0.0", "$KV.ty_session.ann.s", "$KV.ty_session._.ann.att.0.1.id",
			"$KV.ty_worker.forged", "$O.ty_blob.M.forged", "ty.dead.call.ann.att",
		}},
}

// forgeries are ways to have something stored under a subject.
var forgeries = []struct {
	name string
	do   func(nc *nats.Conn, may, next, target string) error
}{
	{"a publish", func(nc *nats.Conn, _, _, target string) error { return nc.Publish(target, []byte("forged")) }},
	{"the answer to an append", func(nc *nats.Conn, may, _,
		target string) error {
		return nc.PublishRequest(may, target, []byte("x"))
	}},
	{"the answer to a pull", func(nc *nats.Conn, _, next, target string) error {
		return nc.PublishRequest(next, target, []byte(`{"batch":1,"no_wait":true}`))
	}},
	{"the answer of the API", func(nc *nats.Conn, _, _, target string) error {
		return nc.PublishRequest("$JS.API.STREAM.INFO.TY_EVENT", target, nil)
	}},
	{"the trace of a message", func(nc *nats.Conn, may, _, target string) error {
		m := nats.NewMsg(may)
		m.Header.Set("Nats-Trace-Dest", target)
		return nc.PublishMsg(m)
	}},
	{"the answer to a message get", func(nc *nats.Conn, _, _, target string) error {
		return nc.PublishRequest("$JS.API.STREAM.MSG.GET.TY_BATCH", target, []byte(`{"seq":1}`))
	}},
}

// ownForgeries are those whose answers a dispatcher gives: they are only an attacker's.
var ownForgeries = []struct {
	name string
	do   func(nc *nats.Conn, target string) error
}{
	{"the answer to a question", func(nc *nats.Conn, target string) error {
		m := nats.NewMsg("ty.ask.hello")
		m.Reply = target
		return nc.PublishMsg(m)
	}},
}

// TestNothingOnACluster plays the attacks of this file on a cluster of three nodes with TLS, from the files that
// "dispatcher init-auth" writes.
func TestNothingOnACluster(t *testing.T) {
	t.Parallel()
	s := testenv.GuardedCluster(t, access.Principal{Role: access.Worker, Name: "default"},
		access.Principal{Role: access.Worker, Name: "other"}, access.Principal{Role: access.Agent, Name: "ann"})
	for _, attack := range []struct {
		name string
		play func(*testing.T, testenv.System)
	}{
		{"nothing is approved", nothingIsApproved}, {"nothing is read", nothingIsRead},
		{"nothing is forged", nothingIsForged}, {"nothing is purged", nothingIsPurged}, // last: its control purges
	} {
		t.Run(attack.name, func(t *testing.T) { attack.play(t, s) })
	}
}

// attackedPool puts on a system a dispatcher, a batch of ann's, and one of bob's.
func attackedPool(t *testing.T, s testenv.System) (*natsbroker.Broker, jetstream.JetStream) {
	t.Helper()
	dispatch(t, s)
	nc := testenv.ConnAs(t, s, platform)
	js := testenv.JetStream(t, nc)
	b, err := natsbroker.Attach(t.Context(), nc, "/test")
	must.OK(t, err)
	must.OK(t, b.Guard(t.Context(), s.GuardedSince()))
	for _, agent := range []toolyard.Agent{"ann", "bob"} {
		sub := toolyard.Batch{Agent: agent, ID: "att", Open: true}
		sub.Normalize("att")
		must.OK(t, b.Submit(t.Context(), sub))
	}
	// The lanes of both pools, as their workers make them.
	for _, pool := range []toolyard.Pool{"default", "other"} {
		for lane := range broker.Lanes {
			l, err := b.Lane(t.Context(), batch.Route{Pool: pool, Class: toolyard.ReadOnly}, lane, nil)
			must.OK(t, err)
			l.Stop()
		}
	}
	return b, js
}

func streamOf(subject string) string {
	for prefix, stream := range map[string]string{
		"ty.event.": "TY_EVENT", "ty.reply.": "TY_REPLY", "ty.batch.": "TY_BATCH", "ty.wake.": "TY_BATCH",
		"ty.call.": "TY_CALL", "ty.dead.": "TY_DEAD",
		"$KV.ty_session.": "KV_ty_session", "$KV.ty_worker.": "KV_ty_worker", "$O.ty_blob.": "OBJ_ty_blob",
	} {
		if strings.HasPrefix(subject, prefix) {
			return stream
		}
	}
	panic(subject)
}

// forgedEnd is the sequence of the last message under a subject, but for the event by which the pool's own dispatcher
// takes its batch over: on a busy machine it is silent for so long that it does. 0 when there is none.
func forgedEnd(t *testing.T, js jetstream.JetStream, subject string) uint64 {
	t.Helper()
	stream := answerOf(t, func() (jetstream.Stream, error) { return js.Stream(t.Context(), streamOf(subject)) })
	var last uint64
	for seq := uint64(1); ; {
		m, err := stream.GetMsg(t.Context(), seq, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return last
		}
		must.OK(t, err)
		if m.Header.Get("ce-type") != string(events.BatchAdopted) {
			last = m.Sequence
		}
		seq = m.Sequence + 1
	}
}

// settle returns when the server has done all that a connection has asked for.
func settle(t *testing.T, nc *nats.Conn) {
	t.Helper()
	must.OK(t, nc.Flush())
	if _, err := nc.Request("ty.ask.hello", nil, 10*time.Second); err != nil && !errors.Is(err, nats.ErrNoResponders) {
		t.Fatal(err)
	}
}

// TestNothingIsForged: with the credentials of a worker or an agent nothing is stored under a subject that is
// another's: not by a publish, and not by having the server or a dispatcher answer there. The same attempts with the
// platform's credentials succeed.
func TestNothingIsForged(t *testing.T) {
	t.Parallel()
	nothingIsForged(t, testenv.Patient(testenv.Guarded(t)))
}

func nothingIsForged(t *testing.T, s testenv.System) {
	_, js := attackedPool(t, s)
	of := func(target string) uint64 { return forgedEnd(t, js, target) }
	// The control: in one account each way works, on a subject of an event chain.
	mighty := testenv.ConnAs(t, s, platform)
	for i, f := range forgeries {
		target := fmt.Sprintf("ty.event.eve.control.other.%d", i)
		if err := f.do(mighty, "ty.event.eve.may.default.0",
			"$JS.API.CONSUMER.MSG.NEXT.TY_CALL.call_READ_ONLY_default_0", target); err != nil {
			t.Fatalf("%s, with all rights: %v", f.name, err)
		}
		settle(t, mighty)
		for end := time.Now().Add(20 * time.Second); of(target) == 0; {
			if time.Now().After(end) {
				t.Fatalf("%s stores nothing with all rights: the attack proves nothing", f.name)
			}
		}
	}
	for _, a := range attackers {
		t.Run(a.name, func(t *testing.T) {
			nc := testenv.ConnAs(t, s, a.who)
			if _, err := nc.Request(a.may, []byte("x"), 10*time.Second); err != nil {
				t.Fatalf("what it may do: %v", err)
			}
			if strings.HasSuffix(a.may, ".input") { // nonsense on the input chain ends the open batch
				testenv.Until(t, "the batch is over", func() bool { return of("ty.reply.ann.att") > 0 })
			}
			for _, target := range a.foreign {
				before := of(target)
				for _, f := range forgeries {
					if err := f.do(nc, a.may, a.next, target); err != nil {
						t.Errorf("%s: %v", f.name, err)
					}
					settle(t, nc)
					if after := of(target); after != before {
						t.Errorf("%s stored message %d under %s", f.name, after, target)
						before = after
					}
				}
				for _, f := range ownForgeries {
					if err := f.do(nc, target); err != nil {
						t.Errorf("%s: %v", f.name, err)
					}
					settle(t, nc)
					if after := of(target); after != before {
						t.Errorf("%s stored message %d under %s", f.name, after, target)
						before = after
					}
				}
				for name, value := range map[string]string{"Nats-Schedule": "@at " +
					time.Now().Add(-time.Second).UTC().Format(time.RFC3339)} {
					m := nats.NewMsg(a.may)
					m.Header.Set(name, value)
					m.Header.Set("Nats-Schedule-Target", target)
					if r, err := nc.RequestMsg(m, 10*time.Second); err != nil ||
						!strings.Contains(string(r.Data), `"error"`) {
						t.Errorf("a schedule for %s was taken: %s, %v", target, data(r), err)
					}
				}
				if after := of(target); after != before {
					t.Errorf("a schedule stored message %d under %s", after, target)
				}
			}
		})
	}
}

func data(m *nats.Msg) string {
	if m == nil {
		return ""
	}
	return string(m.Data)
}

// states are what streams hold, how they are made, and their consumers: the durable ones and the attackers'. The
// others end by themselves, as those of an earlier attack's dispatcher do. Dispatchers write index entries and tickets
// a while after the events that these are about, so of them the number counts. Of what is stored about sessions, all
// but how many dispatchers have ended with a batch counts: on a busy machine a batch is delivered again.
func states(t *testing.T, js jetstream.JetStream) map[string]string {
	t.Helper()
	return answerOf(t, func() (map[string]string, error) {
		out := map[string]string{}
		list := js.ListStreams(t.Context())
		for info := range list.Info() {
			consumers, err := consumersOf(t.Context(), js, info.Config.Name)
			if err != nil {
				return nil, err
			}
			holds := fmt.Sprintf("%d messages", info.State.Msgs)
			switch name := info.Config.Name; name {
			case "KV_ty_index", "KV_ty_ticket":
			case "KV_ty_session":
				if holds, err = keysOf(t.Context(), js, "ty_session", ".deaths"); err != nil {
					return nil, err
				}
			default:
				holds = fmt.Sprintf("%d to %d, %s", info.State.FirstSeq, info.State.LastSeq, holds)
			}
			out[info.Config.Name] = fmt.Sprintf("%s, consumers %v, %v rollup, %v", holds,
				consumers, info.Config.AllowRollup, info.Config.Subjects)
		}
		return out, list.Err()
	})
}

// keysOf are the keys of a bucket with their revisions, but for those that end with a suffix.
func keysOf(ctx context.Context, js jetstream.JetStream, bucket, but string) (string, error) {
	kv, err := js.KeyValue(ctx, bucket)
	if err != nil {
		return "", err
	}
	w, err := kv.WatchAll(ctx, jetstream.MetaOnly())
	if err != nil {
		return "", err
	}
	var keys []string
	for e := range w.Updates() {
		if e == nil { // all that the bucket holds has come
			slices.Sort(keys)
			return strings.Join(keys, ", "), w.Stop()
		}
		if !strings.HasSuffix(e.Key(), but) {
			keys = append(keys, fmt.Sprintf("%s at %d", e.Key(), e.Revision()))
		}
	}
	return "", errors.New("the watch has ended")
}

// answerOf asks until there is an answer: a cluster drops requests while it has no leader for them.
func answerOf[T any](t *testing.T, ask func() (T, error)) (answer T) {
	t.Helper()
	testenv.Until(t, "there is an answer", func() bool {
		var err error
		if answer, err = ask(); err != nil {
			t.Log(err)
		}
		return err == nil
	})
	return answer
}

// attackersConsumer is the name of the consumers that attackers try to make.
const attackersConsumer = "mine"

func consumersOf(ctx context.Context, js jetstream.JetStream, name string) (out []string, err error) {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	list := stream.ListConsumers(ctx)
	for info := range list.Info() {
		if info.Config.Durable != "" || info.Name == attackersConsumer {
			out = append(out, info.Name)
		}
	}
	slices.Sort(out)
	return out, list.Err()
}

// unattended waits until the workers of earlier attacks on the same system have left the registry.
func unattended(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	testenv.Until(t, "the registry is empty", func() bool {
		s := answerOf(t, func() (jetstream.Stream, error) { return js.Stream(t.Context(), "KV_ty_worker") })
		return s.CachedInfo().State.Msgs == 0
	})
}

// TestNothingIsPurged: with the credentials of a worker or an agent no stream, consumer or message is changed, removed
// or made.
func TestNothingIsPurged(t *testing.T) {
	t.Parallel()
	nothingIsPurged(t, testenv.Patient(testenv.Guarded(t)))
}

// indexed waits until all batches that were planned are in the index.
func indexed(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	subjects := func(stream, filter string) int {
		info := answerOf(t, func() (*jetstream.StreamInfo, error) {
			s, err := js.Stream(t.Context(), stream)
			if err != nil {
				return nil, err
			}
			return s.Info(t.Context(), jetstream.WithSubjectFilter(filter))
		})
		return len(info.State.Subjects)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		planned, listed := subjects("TY_EVENT", "ty.event.*.*._.batch"), subjects("KV_ty_index", "$KV.ty_index.>")
		if listed >= planned {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d batches are in the index after a minute", listed, planned)
		}
	}
}

func nothingIsPurged(t *testing.T, s testenv.System) {
	_, js := attackedPool(t, s)
	mighty := testenv.ConnAs(t, s, platform)
	indexed(t, js)
	unattended(t, js)
	requests := map[string]string{
		"STREAM.PURGE.TY_EVENT": "", "STREAM.PURGE.TY_BATCH": `{"filter":"ty.batch.bob.att"}`,
		"STREAM.DELETE.TY_EVENT": "", "STREAM.MSG.DELETE.TY_BATCH": `{"seq":1}`,
		"STREAM.UPDATE.TY_EVENT":               `{"name":"TY_EVENT","subjects":["ty.event.*.*.*.*"],"allow_rollup_hdrs":true,"max_age":1000000000}`,
		"STREAM.CREATE.STOLEN":                 `{"name":"STOLEN","subjects":["stolen.>"],"sources":[{"name":"TY_BATCH"}]}`,
		"STREAM.SNAPSHOT.TY_BATCH":             `{"deliver_subject":"stolen"}`,
		"CONSUMER.DELETE.TY_BATCH.dispatchers": "", "CONSUMER.DELETE.TY_CALL.call_READ_ONLY_other_0": "",
		"CONSUMER.DURABLE.CREATE.TY_BATCH." + attackersConsumer: `{"stream_name":"TY_BATCH","config":{"durable_name":"mine","ack_policy":"explicit"}}`,
		"CONSUMER.CREATE.TY_EVENT." + attackersConsumer:         `{"stream_name":"TY_EVENT","config":{"name":"mine","ack_policy":"none","deliver_subject":"stolen"}}`,
		"CONSUMER.PAUSE.TY_BATCH.dispatchers":                   `{"pause_until":"2099-01-01T00:00:00Z"}`,
		"CONSUMER.MSG.NEXT.TY_BATCH.dispatchers":                `{"batch":1,"no_wait":true}`,
		"CONSUMER.MSG.NEXT.TY_CALL.call_READ_ONLY_other_0":      `{"batch":1,"no_wait":true}`,
		"STREAM.LEADER.STEPDOWN.TY_EVENT":                       "", "ACCOUNT.INFO": "",
	}
	for _, a := range attackers {
		t.Run(a.name, func(t *testing.T) {
			nc := testenv.ConnAs(t, s, a.who)
			before := states(t, js)
			for request, body := range requests {
				for _, prefix := range []string{"$JS.API.", "ty.next.", "ty.ask."} {
					m, err := nc.Request(prefix+request, []byte(body), 5*time.Second)
					if err == nil && !strings.Contains(string(m.Data), `"error"`) &&
						m.Header.Get("Toolyard-Problem") == "" {
						t.Errorf("%s%s was answered: %s", prefix, request, m.Data)
					}
				}
			}
			// What the server acts on in a message that may be stored.
			for header, value := range map[string]string{"Nats-Rollup": "all", "Nats-TTL": "1s", "Nats-Incr": "1",
				"Nats-Batch-Id": "b"} {
				m := nats.NewMsg(a.may)
				m.Header.Set(header, value)
				m.Header.Set("Nats-Batch-Sequence", "1")
				if r, err := nc.RequestMsg(m, 10*time.Second); err != nil ||
					!strings.Contains(string(r.Data), `"error"`) {
					t.Errorf("%s was taken: %s, %v", header, data(r), err)
				}
			}
			// An acknowledgement of another's message.
			for _, ack := range []string{"$JS.ACK.TY_CALL.call_READ_ONLY_other_0.1.1.1.1.0",
				"$JS.ACK.TY_BATCH.dispatchers.1.1.1.1.0"} {
				for _, word := range []string{"+ACK", "+TERM", "+NXT"} {
					if m, err := nc.Request(ack, []byte(word), time.Second); err == nil {
						t.Errorf("%s to %s was answered: %s", word, ack, m.Data)
					}
				}
			}
			settle(t, nc)
			after := states(t, js)
			for name := range before {
				if after[name] != before[name] {
					t.Errorf("%s was %s, and is %s", name, before[name], after[name])
				}
			}
			if len(after) != len(before) {
				t.Errorf("there are %d streams; there were %d", len(after), len(before))
			}
		})
	}
	// The control: the same requests do all of that with the platform's credentials.
	if m, err := mighty.Request("$JS.API.STREAM.PURGE.TY_EVENT", nil, 5*time.Second); err != nil ||
		!strings.Contains(string(m.Data), `"success":true`) {
		t.Errorf("with all rights: %s, %v", data(m), err)
	}
}

// TestNothingIsRead: with the credentials of a worker or an agent nothing of another's is read: by questions to
// dispatchers, the bodies of message gets, or subscriptions.
func TestNothingIsRead(t *testing.T) {
	t.Parallel()
	nothingIsRead(t, testenv.Patient(testenv.Guarded(t)))
}

func nothingIsRead(t *testing.T, s testenv.System) {
	b, _ := attackedPool(t, s)
	ref, err := b.PutResult(t.Context(), "bob", []byte("bob's result"))
	must.OK(t, err)
	sum := strings.TrimPrefix(ref, "result-")
	edited, err := b.PutInput(t.Context(), "bob", []byte(`{"bob's":"input"}`))
	must.OK(t, err)
	ask := func(t *testing.T, nc *nats.Conn, op, question string) *nats.Msg {
		t.Helper()
		m := nats.NewMsg("ty.ask." + op)
		m.Header.Set("Toolyard-Stored", question)
		r, err := nc.RequestMsg(m, 10*time.Second)
		if err != nil {
			t.Fatalf("%s %s: %v", op, question, err)
		}
		return r
	}
	// A consumer that delivers what a stream holds: with all rights it does.
	push := func(nc *nats.Conn, to string) (heard bool) {
		t.Helper()
		sub, err := nc.SubscribeSync(to)
		must.OK(t, err)
		body := fmt.Sprintf(`{"stream_name":"TY_BATCH","config":{"deliver_subject":%q,"deliver_policy":"all","ack_policy":"none"}}`, to)
		m, err := nc.Request("$JS.API.CONSUMER.CREATE.TY_BATCH", []byte(body), 5*time.Second)
		if err != nil || strings.Contains(string(m.Data), `"error"`) {
			return false
		}
		_, err = sub.NextMsg(20 * time.Second)
		return err == nil
	}
	if !push(testenv.ConnAs(t, s, platform), "stolen") {
		t.Fatal("a push consumer delivers nothing with all rights: the attack proves nothing")
	}
	own := map[string]string{ // the control: what each may read
		"worker": `{"stream":"TY_EVENT","subject":"ty.event.ann.att.default.7"}`,
		"agent":  `{"stream":"TY_BATCH","subject":"ty.batch.ann.att"}`,
	}
	for _, a := range attackers {
		t.Run(a.name, func(t *testing.T) {
			nc := testenv.ConnAs(t, s, a.who)
			if a.name == "agent" {
				if _, err := nc.Request("ty.get.bob.att", nil, 5*time.Second); !errors.Is(err, nats.ErrNoResponders) {
					t.Errorf("bob's replies: %v", err)
				}
			}
			if a.name == "worker" { // on a chain of its own pool it writes that bob's call waits for a person
				if r, err := nc.RequestMsg(waitingOf("ty.event.bob.att.default.0"), 10*time.Second); err != nil ||
					strings.Contains(string(r.Data), `"error"`) {
					t.Fatalf("the pool's chain takes what its workers write: %s, %v", data(r), err)
				}
			}
			heard, err := nc.SubscribeSync(">")
			must.OK(t, err)
			must.OK(t, nc.Flush())
			if _, err := nc.Request(a.may, []byte("x"), 10*time.Second); err != nil {
				t.Fatal(err)
			}
			if r := ask(t, nc, "read", own[a.name]); r.Header.Get("Toolyard-Problem") != "" {
				t.Errorf("what it may read: %v", r.Header)
			}
			for _, q := range []string{
				`{"stream":"TY_BATCH","subject":"ty.batch.bob.att"}`,
				`{"stream":"TY_BATCH","subject":"ty.batch.bob.>","seq":1}`,
				`{"stream":"TY_BATCH","subject":">","seq":1}`,
				`{"stream":"TY_BATCH","subject":"ty.batch.*.att"}`, `{"stream":"TY_BATCH","at":true,"seq":2}`,
				`{"stream":"TY_EVENT","subject":"ty.event.bob.att._.batch"}`,
				`{"stream":"TY_EVENT","subject":"ty.event.bob.att.>","seq":1}`,
				`{"stream":"TY_EVENT","subject":"ty.event.ann.att.other.0"}`,
				`{"stream":"KV_ty_worker","subject":"$KV.ty_worker.>","seq":1}`,
				`{"stream":"KV_ty_session","subject":"ty.batch.ann.att"}`, `{"stream":"TY_CALL","at":true,"seq":1}`,
				`{"stream":"TY_BATCH","subject":"ty.batch.ann.att\r\nx"}`, `{"stream":"","subject":""}`, `nonsense`,
			} {
				if a.name == "agent" && strings.Contains(q, "ann.att.other.0") {
					continue // it is its own batch
				}
				if r := ask(t, nc, "read", q); r.Header.Get("Toolyard-Problem") == "" {
					t.Errorf("%s was answered: %s", q, r.Data)
				}
			}
			for _, q := range []string{
				`{"name":"result.bob.` + sum + `"}`, `{"name":"result.bob.` + sum +
					`","call":{"agent":"bob","batch":"att","index":0}}`,
				`{"name":"result.bob.` + sum + `","call":{"agent":"ann","batch":"att","index":0}}`,
				`{"name":"../result.bob.` + sum + `"}`, `{"name":""}`,
			} {
				if r := ask(t, nc, "get", q); r.Header.Get("Toolyard-Problem") == "" {
					t.Errorf("%s was answered: %s", q, r.Data)
				}
			}
			if a.name == "worker" {
				q := `{"name":"input.bob.` + strings.TrimPrefix(edited, "input-") +
					`","call":{"agent":"bob","batch":"att","index":0}}`
				if r := ask(t, nc, "get", q); r.Header.Get("Toolyard-Problem") == "" {
					t.Errorf("%s was answered: %s", q, r.Data)
				}
			}
			if push(nc, "stolen") {
				t.Error("a push consumer delivers")
			}
			if m, err := nc.Request("$SYS.REQ.SERVER.PING", nil, time.Second); err == nil {
				t.Errorf("the system account answers: %s", m.Data)
			}
			// Meanwhile bob's batch goes on, and workers are told.
			if err := b.Cancel(t.Context(), toolyard.BatchKey{Agent: "bob", ID: "att"}, "enough"); err != nil &&
				!errors.Is(err, broker.ErrCompleted) {
				t.Fatal(err)
			}
			settle(t, nc)
			for {
				m, err := heard.NextMsg(50 * time.Millisecond)
				if err != nil {
					break
				}
				if strings.Contains(m.Subject, "bob") || strings.Contains(string(m.Data), "bob") {
					t.Errorf("it hears %s: %s", m.Subject, m.Data)
				}
			}
		})
	}
}

// waitingOf is the event that a call waits for a person, on a chain that has none yet.
func waitingOf(subject string) *nats.Msg {
	m := nats.NewMsg(subject)
	for k, v := range map[string]string{
		"ce-specversion": "1.0", "ce-id": broker.NewID(), "ce-source": "/worker/w",
		"ce-type": string(events.CallWaiting), "ce-datacontenttype": "application/json",
		"ce-time":      time.Now().UTC().Format(time.RFC3339Nano),
		"ce-tyversion": fmt.Sprint(version.Wire), "Nats-Expected-Last-Subject-Sequence": "0",
	} {
		m.Header.Set(k, v)
	}
	m.Data = []byte(`{"worker":"default.w","reason":"harmless","input":{},"input_sha256":"00"}`)
	return m
}

// TestNothingIsApproved: a worker that writes a person's decision on the chain of a call of its own pool has approved
// nothing. The call does not run; an operator's decision about the same call is one.
func TestNothingIsApproved(t *testing.T) {
	t.Parallel()
	nothingIsApproved(t, testenv.Patient(testenv.Guarded(t)))
}

func nothingIsApproved(t *testing.T, s testenv.System) {
	dispatch(t, s)
	nc := testenv.ConnAs(t, s, platform)
	b, err := natsbroker.Attach(t.Context(), nc, "/test")
	must.OK(t, err)
	must.OK(t, b.Guard(t.Context(), s.GuardedSince()))
	var runs atomic.Int64
	guestWorker(t, s, worker.Config{Mode: policy.Default, Tools: []tool.Tool{writes(t, &runs)}})
	c := guestClient(t, s, "ann")
	submit := func(id toolyard.BatchID) broker.Approval {
		t.Helper()
		sub := interactive("ann", call("write", `{"text":"one"}`))
		sub.ID = id
		submit(t, c, sub)
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			list, err := b.Approvals(t.Context(), "ann")
			must.OK(t, err)
			for _, a := range list {
				if a.Batch == id {
					return a
				}
			}
		}
		t.Fatal("nobody is asked")
		return broker.Approval{}
	}
	forged := submit("forged")
	asked, at, err := b.Asked(t.Context(), forged.Key(), 0)
	must.OK(t, err)
	// The attacker has the credentials of the pool, and writes what an operator would.
	m := nats.NewMsg(fmt.Sprintf("ty.event.ann.forged.%s.0", at.Pool))
	for k, v := range map[string]string{
		"ce-specversion": "1.0", "ce-id": broker.NewID(), "ce-source": "/client/ann",
		"ce-type": string(events.CallDecided), "ce-datacontenttype": "application/json",
		"ce-time": time.Now().UTC().Format(time.RFC3339Nano), "ce-tyversion": fmt.Sprint(version.Wire),
		"Nats-Expected-Last-Subject-Sequence": fmt.Sprint(at.Seq),
	} {
		m.Header.Set(k, v)
	}
	if m.Data, err = json.Marshal(events.Decided{Decision: events.Approve, By: "ann",
		InputSHA256: asked.InputSHA256}); err != nil {
		t.Fatal(err)
	}
	attacker := testenv.ConnAs(t, s, access.Principal{Role: access.Worker, Name: "default"})
	if r, err := attacker.RequestMsg(m, 10*time.Second); err != nil || strings.Contains(string(r.Data), `"error"`) {
		t.Fatalf("the pool's chain takes what its workers write: %s, %v", data(r), err)
	}
	if _, err := b.Fold(t.Context(), forged.Key()); err == nil ||
		!strings.Contains(err.Error(), "nobody who may decide") {
		t.Errorf("the log with the forged decision: %v", err)
	}
	if _, err := b.WakeIfParked(t.Context(), forged.Key()); err != nil {
		t.Fatal(err)
	}
	// The control: an operator's decision about another call is one, whatever the workers of another pool write under
	// the call's number.
	approved := submit("approved")
	other := testenv.ConnAs(t, s, access.Principal{Role: access.Worker, Name: "other"})
	m.Subject = "ty.event.ann.approved.other.0"
	m.Header.Set("Nats-Expected-Last-Subject-Sequence", "0")
	m.Header.Set("ce-type", string(events.CallWaiting))
	if m.Data, err = json.Marshal(events.Waiting{Worker: "other.w", Reason: "harmless",
		Input: json.RawMessage(`{"text":"harmless"}`), InputSHA256: "00"}); err != nil {
		t.Fatal(err)
	}
	if r, err := other.RequestMsg(m, 10*time.Second); err != nil || strings.Contains(string(r.Data), `"error"`) {
		t.Fatalf("another pool's own chain: %s, %v", data(r), err)
	}
	if asked, at, err := b.Asked(t.Context(), approved.Key(), 0); err != nil || at.Pool != "default" ||
		asked.Reason == "harmless" {
		t.Errorf("a person is asked %+v of pool %s (%v): another pool's words", asked, at.Pool, err)
	}
	must.OK(t, approval.Decide(t.Context(), b, approved.Key(), 0, events.Decided{Decision: events.Approve, By: "ann"}))
	if r := resultsOf(t, c.Batch(approved.Key())); r[0].Output != "wrote one" {
		t.Errorf("the call that was approved: %+v", r[0])
	}
	if r := resultsOf(t, c.Batch(forged.Key())); r[0].Code != toolyard.InternalError {
		t.Errorf("the call with the forged decision: %+v", r[0])
	}
	if n := runs.Load(); n != 1 {
		t.Errorf("%d calls ran; want the one that was approved", n)
	}
}
