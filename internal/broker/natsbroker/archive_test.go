package natsbroker_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// archiveAfter is how long batches are over before they are archived.
const archiveAfter = 10 * time.Minute

// archiveYard is a server with an archive.
type archiveYard struct {
	testing.TB
	b  *natsbroker.Broker
	js jetstream.JetStream
	// broker is a broker on a connection of its own.
	broker func(name string) *natsbroker.Broker
	conn   func(name string) *nats.Conn // of a server in memory
	after  time.Duration
}

// inArchiveYard runs a test on a server in memory, whose clock jumps.
func inArchiveYard(t *testing.T, test func(y *archiveYard)) {
	t.Helper()
	bubble.Run(t, broker.Settings{MaxStoreBytes: 256 << 20}, func(e *bubble.Env) {
		js := testenv.JetStream(e.T, e.Conn("operator"))
		test(&archiveYard{TB: e.T, b: e.Broker("test"), js: js, broker: e.Broker, conn: e.Conn,
			after: archiveAfter})
	})
}

// guardedArchiveYard is a nats-server with accounts, whose dispatcher answers guests.
func guardedArchiveYard(t *testing.T) (*archiveYard, *natsd.Server) {
	t.Helper()
	s, platform := testenv.Guarded(t), access.Principal{Role: access.Dispatcher}
	js := testenv.JetStream(t, testenv.ConnAs(t, s, platform))
	y := &archiveYard{TB: t, js: js, after: time.Nanosecond, broker: func(name string) *natsbroker.Broker {
		return testenv.BrokerAs(t, s, platform, "/"+name)
	}}
	y.b = y.broker("test")
	t.Cleanup(answers(t, y.b))
	return y, s
}

// batches of different shapes, each with the appends that make it.
var archivedShapes = map[string]func(y *archiveYard, sub toolyard.Batch){
	"of two groups": func(y *archiveYard, sub toolyard.Batch) {
		k := sub.Key()
		item := func(calls ...int) []events.Item { return []events.Item{calls} }
		first := y.append(k, batch.ChainBatch, 0, 0, events.Planned{Owner: "d", Deadline: time.Now().Add(time.Hour),
			SubmissionSeq: y.place(k),
			Calls: []events.PlannedCall{{ID: "0", Pool: "p"}, {ID: "1", Pool: "p"},
				{ID: "2", Pool: "p", Claim: true}},
			Groups: []events.Group{{Safe: true, Calls: []int{0, 1}}, {Calls: []int{2}}},
			Start:  &events.Started{Items: item(0, 1)}})
		claim := y.append(k, batch.ChainItem, 0, 0, events.Claimed{Worker: "w", Attempt: 1})
		y.append(k, batch.ChainItem, 0, claim, events.Finish(end(0), end(1)))
		reply := y.append(k, batch.ChainReply, 0, 0, events.Reply{Results: results(0, 1)})
		y.append(k, batch.ChainBatch, 0, first, events.Started{Group: 1, Ticket: 7})
		claim = y.append(k, batch.ChainItem, 2, 0, events.Claimed{Worker: "w", Attempt: 1})
		y.append(k, batch.ChainControl, 0, 0, events.Canceled{By: "x", Calls: []int{2}})
		y.append(k, batch.ChainItem, 2, claim, events.Finish(end(2)))
		y.append(k, batch.ChainReply, 2, reply, events.Reply{Results: results(2), Completed: true})
	},
	"answered at plan": func(y *archiveYard, sub toolyard.Batch) {
		k := sub.Key()
		y.append(k, batch.ChainBatch, 0, 0, events.Planned{Owner: "d", Deadline: time.Now().Add(time.Hour),
			SubmissionSeq: y.place(k), Calls: []events.PlannedCall{{ID: "0"}, {ID: "1"}, {ID: "2"}},
			Groups: []events.Group{{Calls: []int{0, 1, 2}}}, Results: results(0, 1, 2)})
		y.append(k, batch.ChainReply, 0, 0, events.Reply{Results: results(0, 1, 2), Completed: true})
	},
	"refused": func(y *archiveYard, sub toolyard.Batch) {
		why := events.Refused{Type: "about:blank", Title: "Too Many Requests", Status: 429, Detail: "full"}
		y.append(sub.Key(), batch.ChainBatch, 0, 0, why)
		y.append(sub.Key(), batch.ChainReply, 0, 0, why)
	},
}

func end(i int) events.End { return events.End{Result: results(i)[0]} }

func results(indices ...int) (out []toolyard.Result) {
	for _, i := range indices {
		out = append(out, toolyard.Result{Index: i, CallID: fmt.Sprint(i), Output: strings.Repeat("text ", 20)})
	}
	return out
}

func (y *archiveYard) append(k toolyard.BatchKey, c batch.Chain, index int, expected uint64, body events.Body) uint64 {
	y.Helper()
	rec, err := y.b.Append(y.Context(), k, c, "p", index, expected, body)
	must.OK(y, err)
	return rec.Seq
}

func (y *archiveYard) place(k toolyard.BatchKey) uint64 {
	y.Helper()
	o, err := y.b.Origin(y.Context(), k)
	must.OK(y, err)
	return o.Seq
}

// submit stores a batch of three calls.
func (y *archiveYard) submit(id string) toolyard.Batch {
	y.Helper()
	sub := threeCalls(id)
	must.OK(y, y.b.Submit(y.Context(), sub))
	return sub
}

func threeCalls(id string) toolyard.Batch {
	sub := toolyard.Batch{Agent: "a.b", Calls: []toolyard.Call{{Tool: "x"}, {Tool: "x"}, {Tool: "x"}}}
	sub.Normalize(toolyard.BatchID(id))
	return sub
}

func keyOf(id string) toolyard.BatchKey {
	return toolyard.BatchKey{Agent: "a.b", ID: toolyard.BatchID(id)}
}

// acknowledge acknowledges all submissions, as a dispatcher does whose batches are over.
func (y *archiveYard) acknowledge(n int) {
	y.Helper()
	subs, err := y.b.Submissions()
	must.OK(y, err)
	defer subs.Stop()
	for range n {
		s, err := subs.Next(y.Context())
		if err == nil {
			err = s.Done(y.Context())
		}
		must.OK(y, err)
	}
}

// round runs a round, and passes on until when what was left is looked at again.
func (y *archiveYard) round(a broker.Archiver) (broker.ArchiveRound, error) {
	y.Helper()
	time.Sleep(y.after)
	return a.Round(y.Context())
}

func (y *archiveYard) archiver(b *natsbroker.Broker, taken func(string) error) broker.Archiver {
	y.Helper()
	a, err := b.ArchiverThat(y.Context(), y.after, taken)
	must.OK(y, err)
	return a
}

func always(string) error { return nil }

// told is all that readers are told of a batch.
func told(y *archiveYard, b *natsbroker.Broker, k toolyard.BatchKey) string {
	y.Helper()
	var out strings.Builder
	say := func(what string, v any, err error) {
		text, merr := json.Marshal(v)
		fmt.Fprintf(&out, "%s: %s %v %v\n", what, text, err, merr)
	}
	for name, read := range map[string]func() (batch.State, error){
		"fold":   func() (batch.State, error) { return b.Fold(y.Context(), k) },
		"resume": func() (batch.State, error) { return b.Resume(y.Context(), k) },
		"look":   func() (batch.State, error) { return b.Look(y.Context(), k) },
	} {
		s, err := read()
		if err != nil {
			return name + ": " + err.Error()
		}
		if name == "fold" {
			say(name, s.View(), nil)
			say("state", []any{s.BatchSeq, s.ControlSeq, s.InputSeq, s.ReplySeq, s.SubmissionSeq, s.SubmittedAt,
				s.Owner, s.Cancels, s.Completed, s.Refused, s.Submission}, nil)
		} else if folded, err := b.Fold(y.Context(), k); err != nil || !reflect.DeepEqual(s, folded) {
			fmt.Fprintf(&out, "%s says otherwise: %v\n", name, err)
		}
	}
	var stored []broker.Logged
	tail := b.Tail(k)
	for {
		l, ok, err := tail.Next(y.Context())
		if err != nil {
			return "tail: " + err.Error()
		}
		if !ok {
			break
		}
		text, err := l.JSON()
		fmt.Fprintf(&out, "%s %d %d %s %v\n", l.Chain, l.Index, l.Seq, text, err)
		stored = append(stored, l)
	}
	var event, reply uint64
	for i, l := range stored { // from wherever somebody goes on
		switch l.Chain {
		case batch.ChainReply:
			reply = l.Seq
		case batch.ChainSubmission:
		default:
			event = l.Seq
		}
		tail := b.TailAt(k, event, reply)
		for _, want := range stored[i+1:] {
			if got, ok, err := tail.Next(y.Context()); err != nil || !ok || got.Meta.ID != want.Meta.ID {
				fmt.Fprintf(&out, "behind %d and %d stands %v, %t, %v and not %d\n", event, reply, got.Seq, ok, err,
					want.Seq)
				break
			}
		}
	}
	for after := uint64(0); ; {
		replies, err := b.RepliesFrom(y.Context(), k, after, 1)
		say("reply", replies, err)
		if len(replies) == 0 {
			ended, err := b.Ended(y.Context(), k, after)
			say("ended", ended, err)
			break
		}
		after = replies[0].Seq
	}
	origin, err := b.Origin(y.Context(), k)
	say("origin", origin, err)
	planned, err := b.AsPlanned(y.Context(), k)
	say("planned", planned, err)
	say("find", nil, errors.Join(b.Find(y.Context(), k), b.Forsaken(y.Context(), k, 0)))
	say("again", nil, b.Submit(y.Context(), threeCalls(string(k.ID))))
	other := threeCalls(string(k.ID))
	other.Calls[0].Tool = "other"
	say("other", errors.Is(b.Submit(y.Context(), other), broker.ErrOtherContent), nil)
	cancel := b.Cancel(y.Context(), k, "late")
	say("cancel", errors.Is(cancel, broker.ErrCompleted), nil)
	if b.Who().Role != "" { // a guest lists nothing
		return out.String()
	}
	var kept []broker.Kept
	for k, err := range b.Kept(y.Context(), k.Agent, time.Time{}, time.Time{}) {
		if kept = append(kept, k); err != nil {
			y.Error(err)
		}
	}
	slices.SortFunc(kept, func(a, b broker.Kept) int { return int(a.Place) - int(b.Place) })
	say("kept", kept, nil)
	slices.Reverse(kept)
	for most := 1; most <= len(kept)+1; most++ {
		newest, cut, err := b.Newest(y.Context(), k.Agent, time.Time{}, time.Time{}, most)
		if err != nil || cut != (most < len(kept)) || !reflect.DeepEqual(newest, kept[:min(most, len(kept))]) {
			y.Errorf("the newest %d are %v, cut %t, %v; kept are %v", most, newest, cut, err, kept)
		}
	}
	return out.String()
}

// late are the writes of who was paused: none is ever accepted.
func late(y *archiveYard, k toolyard.BatchKey, items ...int) {
	y.Helper()
	writes := []struct {
		c     batch.Chain
		index int
		body  events.Body
	}{
		{batch.ChainBatch, 0, events.Planned{Owner: "late"}},
		{batch.ChainReply, 0, events.Reply{Results: results(0)}},
	}
	for _, i := range items {
		writes = append(writes, struct {
			c     batch.Chain
			index int
			body  events.Body
		}{batch.ChainItem, i, events.Claimed{Worker: "late"}})
	}
	for _, w := range writes {
		if rec, err := y.b.Append(y.Context(), k, w.c, "p", w.index, 0, w.body); !errors.Is(err, broker.ErrConflict) {
			y.Errorf("a late %s is accepted on %s %d: %d, %v", w.body.EventType(), w.c, w.index, rec.Seq, err)
		}
	}
	replies := testenv.Stream(y, y.js, "TY_REPLY")
	end, err := replies.GetLastMsgForSubject(y.Context(), "ty.reply."+broker.KeyTokens(k))
	must.OK(y, err)
	if !events.Fences(events.Type(end.Header.Get("ce-type"))) {
		return
	}
	err = y.b.RefuseBehind(y.Context(), k, events.Refused{Status: 500, Title: "late"}) // behind whatever there is
	if !errors.Is(err, broker.ErrConflict) {
		y.Errorf("a late refusal is accepted: %v", err)
	}
}

// left are the messages of a batch in the streams that are no fences.
func (y *archiveYard) left(k toolyard.BatchKey) (out []string) {
	y.Helper()
	for _, m := range y.stored(k) {
		if t := events.Type(m.Header.Get("ce-type")); !events.Fences(t) {
			out = append(out, m.Subject+" "+string(t))
		}
	}
	return out
}

func (y *archiveYard) stored(k toolyard.BatchKey) (out []*jetstream.RawStreamMsg) {
	y.Helper()
	for stream, subject := range map[string]string{"TY_BATCH": "ty.batch." + broker.KeyTokens(k),
		"TY_EVENT": "ty.event." + broker.KeyTokens(k) + ".>", "TY_REPLY": "ty.reply." + broker.KeyTokens(k)} {
		s := testenv.Stream(y, y.js, stream)
		for seq := uint64(1); ; {
			m, err := s.GetMsg(y.Context(), seq, jetstream.WithGetMsgSubject(subject))
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				break
			}
			must.OK(y, err)
			out, seq = append(out, m), m.Sequence+1
		}
	}
	return out
}

// TestArchivedBatches: an archiver stops behind each of its requests. From then on, and when another one has taken the
// batch to its end, readers are told what they were told before, and late writes are refused.
func TestArchivedBatches(t *testing.T) {
	for name, shape := range archivedShapes {
		t.Run(name, func(t *testing.T) {
			for stop := 1; ; stop++ {
				ended := false
				inArchiveYard(t, func(y *archiveYard) {
					sub := y.submit("b")
					shape(y, sub)
					y.acknowledge(1)
					k := sub.Key()
					before := told(y, y.b, k)
					items := []int{}
					if name == "of two groups" {
						items = []int{0, 2}
					}
					var steps []string
					crash := errors.New("crash")
					_, err := y.round(y.archiver(y.b, func(what string) error {
						if steps = append(steps, what); len(steps) == stop {
							return crash
						}
						return nil
					}))
					if err != nil && !errors.Is(err, crash) {
						t.Fatal(err)
					}
					ended = err == nil
					fresh := y.broker("fresh")
					check := func(when string) {
						t.Helper()
						if now := told(y, fresh, k); now != before {
							t.Fatalf("%s %q readers are told something else:\n%s", when, steps, cmp.Diff(before, now))
						}
						if name != "answered at plan" {
							late(y, k, items...)
						}
					}
					check("behind")
					again := y.archiver(y.broker("other"), always)
					for range 3 {
						if _, err := y.round(again); err != nil {
							t.Fatal(err)
						}
					}
					check("at the end of")
					if left := y.left(k); len(left) > 0 {
						t.Errorf("at the end there is still %q", left)
					}
					for _, m := range y.stored(k) {
						if stop == 1 {
							t.Logf("%s keeps %d bytes", m.Subject, len(m.Data))
						}
					}
				})
				if ended || t.Failed() {
					if stop < 6 {
						t.Errorf("it ended after %d requests", stop)
					}
					return
				}
			}
		})
	}
}

// TestWhatIsNotArchived: a batch that is not over, or that somebody has to do with, stays where it is.
func TestWhatIsNotArchived(t *testing.T) {
	shape := archivedShapes["of two groups"]
	for name, prepare := range map[string]func(y *archiveYard, sub toolyard.Batch) (leave time.Duration){
		"not acknowledged": func(y *archiveYard, sub toolyard.Batch) time.Duration {
			shape(y, sub)
			return 10 * time.Minute
		},
		"over for a moment": func(y *archiveYard, sub toolyard.Batch) time.Duration {
			shape(y, sub)
			y.acknowledge(1)
			return 10*time.Minute - time.Second
		},
		"running": func(y *archiveYard, sub toolyard.Batch) time.Duration {
			y.append(sub.Key(), batch.ChainBatch, 0, 0, planned(3))
			y.acknowledge(1)
			return time.Hour
		},
		"without an answer": func(y *archiveYard, sub toolyard.Batch) time.Duration {
			y.append(sub.Key(), batch.ChainBatch, 0, 0, events.Refused{Status: 429, Title: "x"})
			y.acknowledge(1)
			return time.Hour
		},
		"with a call in the queue": func(y *archiveYard, sub toolyard.Batch) time.Duration {
			shape(y, sub)
			y.acknowledge(1)
			m := nats.NewMsg("ty.call.READ_ONLY.p.0." + broker.KeyTokens(sub.Key()) + ".0.0")
			if _, err := y.js.PublishMsg(y.Context(), m); err != nil {
				y.Fatal(err)
			}
			return time.Hour
		},
		"with an event of another kind": func(y *archiveYard, sub toolyard.Batch) time.Duration {
			shape(y, sub)
			y.acknowledge(1)
			m := nats.NewMsg("ty.event." + broker.KeyTokens(sub.Key()) + ".p.1")
			if _, err := y.js.PublishMsg(y.Context(), m); err != nil {
				y.Fatal(err)
			}
			return time.Hour
		},
		"with a long message": func(y *archiveYard, sub toolyard.Batch) time.Duration {
			y.append(sub.Key(), batch.ChainBatch, 0, 0, events.Refused{Status: 429,
				Title: strings.Repeat("x", broker.MaxInlineBytes)})
			y.append(sub.Key(), batch.ChainReply, 0, 0, events.Refused{Status: 429, Title: "x"})
			y.acknowledge(1)
			return time.Hour
		},
	} {
		t.Run(name, func(t *testing.T) {
			inArchiveYard(t, func(y *archiveYard) {
				sub := y.submit("b")
				wait := prepare(y, sub)
				before := len(y.stored(sub.Key()))
				a := y.archiver(y.b, func(what string) error { return errors.New(what) })
				time.Sleep(wait)
				if r, err := a.Round(y.Context()); err != nil || r.Batches > 0 || len(y.stored(sub.Key())) != before {
					t.Errorf("%+v, %v, %d messages and not %d", r, err, len(y.stored(sub.Key())), before)
				}
			})
		})
	}
}

// TestTwoArchivers: two archivers at the same batches, each of which goes on when the other one has made any number of
// requests, archive each of them once.
func TestTwoArchivers(t *testing.T) {
	const batches = 3
	for turns := 1; turns <= 6; turns++ {
		inArchiveYard(t, func(y *archiveYard) {
			var before []string
			for i := range batches {
				sub := y.submit(fmt.Sprint("b", i))
				archivedShapes["of two groups"](y, sub)
			}
			y.acknowledge(batches)
			for i := range batches {
				before = append(before, told(y, y.b, keyOf(fmt.Sprint("b", i))))
			}
			// they take turns of so many requests
			turn, done := [2]chan bool{make(chan bool), make(chan bool)}, make(chan error, 2)
			taken := [2]int{}
			for i := range 2 {
				a := y.archiver(y.broker(fmt.Sprint("archiver", i)), func(string) error {
					if taken[i]++; taken[i]%turns == 0 {
						select {
						case turn[1-i] <- true:
							<-turn[i]
						case <-time.After(time.Hour): // the other one has ended
						}
					}
					return nil
				})
				go func() {
					if i == 1 {
						<-turn[1]
					}
					var err error
					for range 3 {
						_, rerr := y.round(a)
						err = errors.Join(err, rerr)
					}
					select {
					case turn[1-i] <- true:
					case <-time.After(time.Hour):
					}
					done <- err
				}()
			}
			must.OK(t, errors.Join(<-done, <-done))
			for i := range batches {
				k := keyOf(fmt.Sprint("b", i))
				if now := told(y, y.b, k); now != before[i] {
					t.Errorf("in turns of %d: batch %d is told otherwise:\n%s", turns, i, cmp.Diff(before[i], now))
				}
				if left := y.left(k); len(left) > 0 {
					t.Errorf("in turns of %d: of batch %d there is still %q", turns, i, left)
				}
				late(y, k, 0, 2)
			}
		})
	}
}

// TestArchivedSubmissionsAreDeliveredToNobody: what stands behind an archived submission asks nothing of a dispatcher.
func TestArchivedSubmissionsAreDeliveredToNobody(t *testing.T) {
	inArchiveYard(t, func(y *archiveYard) {
		sub := y.submit("b")
		archivedShapes["refused"](y, sub)
		y.acknowledge(1)
		if r, err := y.round(y.archiver(y.b, always)); err != nil || r.Batches != 1 || r.Objects != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		next := y.submit("next")
		subs, err := y.b.Submissions()
		must.OK(t, err)
		defer subs.Stop()
		if s, err := subs.Next(y.Context()); err != nil || s.Key != next.Key() {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// TestAnObjectThatIsGone: it is as if the batch had expired, and its id stays used.
func TestAnObjectThatIsGone(t *testing.T) {
	inArchiveYard(t, func(y *archiveYard) {
		sub := y.submit("b")
		archivedShapes["of two groups"](y, sub)
		y.acknowledge(1)
		if _, err := y.round(y.archiver(y.b, always)); err != nil {
			t.Fatal(err)
		}
		s, err := y.js.Stream(y.Context(), "TY_ARCHIVE")
		if err == nil {
			err = s.Purge(y.Context())
		}
		must.OK(t, err)
		fresh := y.broker("fresh")
		if err := fresh.Find(y.Context(), sub.Key()); !errors.Is(err, broker.ErrNoBatch) {
			t.Errorf("it is found: %v", err)
		}
		if _, err := fresh.Fold(y.Context(), sub.Key()); !errors.Is(err, broker.ErrNoBatch) {
			t.Errorf("it is folded: %v", err)
		}
		if err := fresh.Submit(y.Context(), sub); err != nil {
			t.Errorf("again: %v", err)
		}
		sub.Calls = slices.Clone(sub.Calls)
		sub.Calls[0].Tool = "other"
		if err := fresh.Submit(y.Context(), sub); !errors.Is(err, broker.ErrOtherContent) {
			t.Errorf("other content: %v", err)
		}
		late(y, sub.Key(), 0, 2)
	})
}

// TestGuestsReadArchivedBatches: agents and workers with accounts of their own read through a dispatcher what they read
// before, on a real server.
func TestGuestsReadArchivedBatches(t *testing.T) {
	y, s := guardedArchiveYard(t)
	agent := testenv.BrokerAs(t, s, access.Principal{Role: access.Agent, Name: broker.Escape("a.b")}, "/agent")
	worker := testenv.BrokerAs(t, s, access.Principal{Role: access.Worker, Name: "p"}, "/worker/w")
	item := func(k toolyard.BatchKey) string {
		records, err := worker.Item(t.Context(), k, "p", 0, 0)
		text, merr := json.Marshal(records)
		if err = errors.Join(err, merr); err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var before, chains []string
	keys := []toolyard.BatchKey{}
	for name, shape := range archivedShapes {
		sub := y.submit(strings.ReplaceAll(name, " ", "-"))
		shape(y, sub)
		keys = append(keys, sub.Key())
		before, chains = append(before, told(y, agent, sub.Key())), append(chains, item(sub.Key()))
	}
	platform := told(y, y.b, keys[0])
	y.acknowledge(len(keys))
	if r, err := y.round(y.archiver(y.b, always)); err != nil || r.Batches != len(keys) || r.Objects != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	for i, k := range keys {
		if left := y.left(k); len(left) > 0 {
			t.Errorf("of %s there is still %q", k, left)
		}
		if now := told(y, agent, k); now != before[i] {
			t.Errorf("the agent is told something else of %s:\n%s", k, cmp.Diff(before[i], now))
		}
		if now := item(k); now != chains[i] {
			t.Errorf("the worker is told something else of %s:\n%s", k, cmp.Diff(chains[i], now))
		}
		if len(chains[i]) > len("null") {
			_, err := worker.Append(t.Context(), k, batch.ChainItem, "p", 0, 0, events.Claimed{Worker: "w"})
			if !errors.Is(err, broker.ErrConflict) {
				t.Errorf("a late claim of %s: %v", k, err)
			}
		}
	}
	if now := told(y, y.b, keys[0]); now != platform {
		t.Errorf("others are told something else:\n%s", cmp.Diff(platform, now))
	}
	other := testenv.BrokerAs(t, s, access.Principal{Role: access.Agent, Name: "other"}, "/agent/other")
	if _, err := other.Fold(t.Context(), keys[0]); err == nil || errors.Is(err, broker.ErrNoBatch) {
		t.Errorf("another agent reads it: %v", err)
	}
}

// TestArchivedBatchesAreListed: the index lists archived batches beside others.
func TestArchivedBatchesAreListed(t *testing.T) {
	inArchiveYard(t, func(y *archiveYard) {
		index := y.b.Index()
		for i := range 3 {
			sub := y.submit(fmt.Sprint("b", i))
			archivedShapes["answered at plan"](y, sub)
			must.OK(y, index.Change(y.Context(), broker.Entry{Agent: sub.Agent, ID: sub.ID, Session: "s",
				Workspace: "w", Status: toolyard.StatusCompleted, Place: y.place(sub.Key()), Submitted: time.Now()}))
		}
		y.acknowledge(3)
		if r, err := y.round(y.archiver(y.b, always)); err != nil || r.Batches != 3 {
			y.Fatalf("%+v, %v", r, err)
		}
		var got []string
		page, more, err := index.Page(y.Context(), broker.Filter{})
		for _, e := range page {
			got = append(got, string(e.ID))
		}
		if want := []string{"b2", "b1", "b0"}; err != nil || more || !slices.Equal(got, want) {
			y.Errorf("%q, %t, %v; want %q", got, more, err, want)
		}
	})
}
