package natsbroker_test

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/version"
)

// tomorrow is the next wire version.
var tomorrow = strconv.Itoa(version.Wire + 1)

// other is a system that another version has made.
type other struct {
	t  *testing.T
	nc *nats.Conn
	js jetstream.JetStream
}

// madeByOther creates a system and changes its batch stream to the form of another version.
func madeByOther(t *testing.T, settings broker.Settings, change func(*jetstream.StreamConfig)) *other {
	t.Helper()
	s := testenv.Server(t)
	o := &other{t: t, nc: testenv.Conn(t, s)}
	testenv.Open(t, o.nc, settings, "/test")
	o.js = testenv.JetStream(t, o.nc)
	cfg := o.batches()
	cfg.Metadata = maps.Clone(cfg.Metadata)
	change(&cfg)
	if _, err := o.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *other) batches() jetstream.StreamConfig {
	o.t.Helper()
	s := testenv.Stream(o.t, o.js, "TY_BATCH")
	return s.CachedInfo().Config
}

func (o *other) delete(streams ...string) {
	o.t.Helper()
	for _, name := range streams {
		must.OK(o.t, o.js.DeleteStream(o.t.Context(), name))
	}
}

func (o *other) has(stream string) bool {
	_, err := o.js.Stream(o.t.Context(), stream)
	return err == nil
}

func (o *other) open(want broker.Settings) (*natsbroker.Broker, error) {
	ctx, cancel := context.WithTimeout(o.t.Context(), 20*time.Second)
	defer cancel()
	return natsbroker.Open(ctx, o.nc, want, "/test")
}

// olderLayout removes from the metadata what versions before 2026-11-22 did not write.
func olderLayout(c *jetstream.StreamConfig) {
	maps.DeleteFunc(c.Metadata, func(k, _ string) bool {
		return strings.HasPrefix(k, "toolyard.") &&
			k != "toolyard.settings"
	})
}

// TestSettingsGrow: a setting that the creating version did not know has the value by which that version worked, for
// all processes, whatever a dispatcher is started with.
func TestSettingsGrow(t *testing.T) {
	o := madeByOther(t, broker.Settings{BatchAckWait: 2 * time.Second}, func(c *jetstream.StreamConfig) {
		c.Metadata["toolyard.settings"] = strings.Replace(c.Metadata["toolyard.settings"],
			`"call_ack_wait_ns":3000000000,`, "", 1)
	})
	if text := o.batches().Metadata["toolyard.settings"]; strings.Contains(text, "call_ack_wait") {
		t.Fatal(text)
	}
	if b, err := o.open(broker.Settings{CallAckWait: 9 * time.Second}); err == nil ||
		!strings.Contains(err.Error(), "call ack wait: the system was made with 3s, not 9s") {
		t.Errorf("a dispatcher that wants another value: %v, %+v", err, b)
	}
	b, err := o.open(broker.Settings{})
	must.OK(t, err)
	joined, err := natsbroker.Attach(t.Context(), o.nc, "/worker/w")
	must.OK(t, err)
	for _, s := range []broker.Settings{b.Settings(), joined.Settings()} {
		if s.CallAckWait != 3*time.Second || s.BatchAckWait != 2*time.Second {
			t.Errorf("the settings are %+v", s)
		}
	}
}

// TestASystemOfALaterVersion: only permitted versions join. The others get an error of one line with the creator's
// version, and create nothing.
func TestASystemOfALaterVersion(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*jetstream.StreamConfig)
		want   string
	}{
		"it needs a later one": {func(c *jetstream.StreamConfig) {
			c.Metadata["toolyard.min_reader"], c.Metadata["toolyard.wire_version"],
				c.Metadata["toolyard.version"] = tomorrow, "99", "v3.1.0"
		}, "was made by Toolyard v3.1.0 (wire version 99), and needs wire version " + tomorrow + "; this is"},
		"a setting that nobody may pass over": {func(c *jetstream.StreamConfig) {
			delete(c.Metadata, "toolyard.min_reader")
			c.Metadata["toolyard.settings"] = strings.Replace(c.Metadata["toolyard.settings"], "{", `{"cells":4,`, 1)
		}, "has a setting that this version does not know"},
		"a setting that may be passed over": {func(c *jetstream.StreamConfig) {
			c.Metadata["toolyard.settings"] = strings.Replace(c.Metadata["toolyard.settings"], "{", `{"cells":4,`, 1)
		}, ""},
		"a later layout that may be used": {func(c *jetstream.StreamConfig) { c.Metadata["toolyard.layout"] = "5" },
			""},
	} {
		t.Run(name, func(t *testing.T) {
			o := madeByOther(t, broker.Settings{}, c.change)
			o.delete("TY_DEAD")
			for who, join := range map[string]func() error{
				"a dispatcher": func() error { _, err := o.open(broker.Settings{}); return err },
				"a worker": func() error {
					_, err := natsbroker.Join(t.Context(), o.nc, "/worker/w",
						nil)
					return err
				},
				"a client": func() error {
					_, err := natsbroker.Attach(t.Context(), o.nc,
						"/client/c")
					return err
				},
			} {
				if c.want == "" && who != "a dispatcher" && !o.has("TY_DEAD") {
					continue // it waits for a dispatcher
				}
				err := join()
				if c.want == "" && err != nil {
					t.Errorf("%s: %v", who, err)
				}
				if c.want != "" && (!errors.Is(err, events.ErrNewer) || !strings.Contains(err.Error(), c.want) ||
					strings.Contains(err.Error(), "\n")) {
					t.Errorf("%s: %v", who, err)
				}
			}
			if made := o.has("TY_DEAD"); made != (c.want == "") {
				t.Errorf("the missing stream was made: %t", made)
			}
		})
	}
}

// TestAStoreOfAnOlderVersion: it opens if its streams are what this version needs, and missing ones are created.
// Otherwise one line says what to do, and nothing is created.
func TestAStoreOfAnOlderVersion(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*jetstream.StreamConfig)
		want   string
	}{
		"of 2026-11-22": {olderLayout, ""},
		"without wakes": {func(c *jetstream.StreamConfig) {
			olderLayout(c)
			c.Subjects = c.Subjects[:1]
		}, "(layout 0; this version's is 2) and have no subject ty.wake.*.* (TY_BATCH): stop all dispatchers and " +
			"workers, and start one dispatcher with --migrate, once"},
		"with other subjects": {func(c *jetstream.StreamConfig) {
			olderLayout(c)
			c.Subjects = append(c.Subjects, "ty.request.*")
		}, "stream TY_BATCH was made by an older version, and has the subject ty.request.*, which this version does " +
			"not read: let that version finish"},
		"without settings": {func(c *jetstream.StreamConfig) { c.Metadata = nil },
			"stream TY_BATCH has no settings of Toolyard"},
	} {
		t.Run(name, func(t *testing.T) {
			o := madeByOther(t, broker.Settings{}, c.change)
			o.delete("TY_DEAD", "KV_ty_session", "KV_ty_index", "KV_ty_approval")
			_, err := o.open(broker.Settings{})
			if c.want == "" && err != nil || c.want != "" &&
				(err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("it opens with %v, want %q", err, c.want)
			}
			if made := o.has("TY_DEAD") && o.has("KV_ty_session"); made != (c.want == "") {
				t.Errorf("what is missing was made: %t", made)
			}
		})
	}
}

// TestMigrate changes an older store to today's layout once, keeps its content, and only runs without other
// dispatchers.
func TestMigrate(t *testing.T) {
	o := madeByOther(t, broker.Settings{MaxStoreBytes: 1 << 30}, func(c *jetstream.StreamConfig) {
		olderLayout(c)
		c.Subjects, c.MaxBytes = c.Subjects[:1], 12<<20 // an operator's
	})
	o.delete("TY_DEAD")
	old, err := natsbroker.Attach(t.Context(), o.nc, "/client/c")
	if !errors.Is(err, broker.ErrNoSystem) {
		t.Fatalf("a client finds %+v, %v", old, err)
	}
	if _, err := o.js.Publish(t.Context(), "ty.batch.a.b", []byte("a batch")); err != nil {
		t.Fatal(err)
	}
	cons, err := o.js.Consumer(t.Context(), "TY_BATCH", "dispatchers")
	must.OK(t, err)
	waiting, stop := context.WithCancel(t.Context())
	defer stop()
	first, err := cons.Next() // so that the next one waits
	must.OK(t, err)
	it, err := cons.Messages(jetstream.PullMaxMessages(1))
	must.OK(t, err)
	context.AfterFunc(waiting, it.Stop)
	go func() { _, _ = it.Next() }() // it ends with the test
	migrated := func() error { return natsbroker.Migrate(t.Context(), o.nc) }
	waits := func(want int) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; {
			info, err := cons.Info(t.Context())
			if err != nil || time.Now().After(end) {
				t.Fatalf("%+v, %v", info, err)
			}
			if info.NumWaiting == want {
				return
			}
		}
	}
	waits(1)
	if err = migrated(); err == nil || !strings.Contains(err.Error(), "another dispatcher runs") {
		t.Errorf("beside another dispatcher: %v", err)
	}
	stop()
	must.OK(t, first.Nak())
	waits(0)
	must.OK(t, migrated())
	if _, err := o.open(broker.Settings{}); err != nil {
		t.Fatal(err)
	}
	after := o.batches()
	if len(after.Subjects) != 2 || after.Metadata["toolyard.layout"] != "2" || after.MaxBytes != 12<<20 {
		t.Errorf("the stream is %+v", after)
	}
	if s, err := o.js.Stream(t.Context(), "TY_BATCH"); err != nil || s.CachedInfo().State.Msgs != 1 {
		t.Errorf("the batch is gone: %v", err)
	}
	if err := migrated(); err != nil {
		t.Errorf("once more: %v", err)
	}
	if d := cmp.Diff(after, o.batches()); d != "" {
		t.Errorf("a second time has changed something:\n%s", d)
	}
	if err := natsbroker.Migrate(t.Context(), testenv.Conn(t, testenv.Server(t))); err != nil {
		t.Errorf("where there is no system: %v", err)
	}
}

// TestLookingAtALaterVersion: an owner must know all events of its batch, and a reader skips unknown ones, as far as
// the rest makes sense.
func TestLookingAtALaterVersion(t *testing.T) {
	b := testenv.Broker(t, testenv.Server(t), "/test")
	sub := submission("b")
	k := sub.Key()
	must.OK(t, b.Submit(t.Context(), sub))
	put := func(expected uint64, body events.Body) uint64 {
		t.Helper()
		rec, err := b.Append(t.Context(), k, batch.ChainBatch, "", 0, expected, body)
		must.OK(t, err)
		return rec.Seq
	}
	later := func(expected uint64) uint64 {
		t.Helper()
		m := nats.NewMsg("ty.event.default.b._.batch")
		for name, v := range map[string]string{
			"ce-specversion": "1.0", "ce-id": broker.NewID(), "ce-source": "/later",
			"ce-type": "dev.toolyard.batch.noted.v1", "ce-subject": "default/b",
			"ce-time": "2026-11-22T00:00:00Z", "ce-tyversion": tomorrow,
		} {
			m.Header.Set(name, v)
		}
		m.Data = []byte(`{"note":"seen"}`)
		seq, err := b.AppendMessage(t.Context(), "TY_EVENT", expected, m)
		must.OK(t, err)
		return seq
	}
	last := put(later(put(0, planned(1))), events.Started{Group: 0, Ticket: 3})
	chain := nats.NewMsg("ty.event.default.b._.decision") // one that only the later version has
	for name, v := range map[string]string{"ce-specversion": "1.0", "ce-id": "y", "ce-source": "/later",
		"ce-type": string(events.CallDecided), "ce-tyversion": tomorrow} {
		chain.Header.Set(name, v)
	}
	chain.Data = []byte(`{"decision":"allow"}`)
	if _, err := b.AppendMessage(t.Context(), "TY_EVENT", 0, chain); err != nil {
		t.Fatal(err)
	}

	if _, err := b.Fold(t.Context(), k); !errors.Is(err, events.ErrNewer) ||
		!strings.Contains(err.Error(), `"dev.toolyard.batch.noted.v1"`) ||
		!strings.Contains(err.Error(), "wire version "+tomorrow) {
		t.Errorf("who would own it reads %v", err)
	}
	st, err := b.Look(t.Context(), k)
	if err != nil || st.Started[0] != 3 || st.BatchSeq != last || st.View().NewerEvents != 1 {
		t.Errorf("who looks at it sees %+v, %v", st.View(), err)
	}
	log, err := b.Log(t.Context(), k)
	if err != nil || len(log) != 5 || log[4].Body.EventType() != events.CallDecided {
		t.Fatalf("the log has %d events, %v", len(log), err)
	}
	text, err := log[2].JSON()
	if err != nil || !strings.Contains(string(text), `"note":"seen"`) ||
		!strings.Contains(string(text), `"tyversion":"`+tomorrow+`"`) {
		t.Errorf("the event is shown as %s, %v", text, err)
	}
	if err := b.Cancel(t.Context(), k, "no longer needed"); err != nil {
		t.Errorf("it cannot be canceled: %v", err)
	}

	other := nats.NewMsg("ty.batch.default.c") // a submission that only a later version can read is found all the same
	for name, v := range map[string]string{"ce-specversion": "1.0", "ce-id": "x", "ce-source": "/later",
		"ce-type": "dev.toolyard.batch.submitted.v2", "ce-tyversion": tomorrow} {
		other.Header.Set(name, v)
	}
	if _, err := b.AppendMessage(t.Context(), "TY_BATCH", 0, other); err != nil {
		t.Fatal(err)
	}
	c := submission("c")
	if _, err := b.Look(t.Context(), c.Key()); !errors.Is(err, events.ErrNewer) {
		t.Errorf("a submission of a later version: %v", err)
	}
	if err := b.Cancel(t.Context(), c.Key(), "no longer needed"); err != nil {
		t.Errorf("it cannot be canceled: %v", err)
	}
	if err := b.Submit(t.Context(), c); !errors.Is(err, events.ErrNewer) || errors.Is(err, broker.ErrOtherContent) {
		t.Errorf("the same id again: %v", err)
	}

	put(later(last), events.Started{Group: 7}) // of a group that only the later version knows
	if _, err := b.Look(t.Context(), k); !errors.Is(err, events.ErrNewer) {
		t.Errorf("a log that makes no sense without the event: %v", err)
	}
}
