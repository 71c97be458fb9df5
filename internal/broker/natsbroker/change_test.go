package natsbroker_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// limits are how long each stream of a system keeps its messages, and its size.
func (o *other) limits() (ages map[string]time.Duration, bytes map[string]int64) {
	o.t.Helper()
	ages, bytes = map[string]time.Duration{}, map[string]int64{}
	all := o.js.ListStreams(o.t.Context())
	for info := range all.Info() {
		ages[info.Config.Name], bytes[info.Config.Name] = info.Config.MaxAge, info.Config.MaxBytes
	}
	must.OK(o.t, all.Err())
	return ages, bytes
}

// TestSettingsChangeWhileTheSystemRuns: both settings grow with batches under way, a broker that is open has the new
// ones when it looks, and one that is opened with the old ones is told what to do.
func TestSettingsChangeWhileTheSystemRuns(t *testing.T) {
	first := broker.Settings{Lifetime: 24 * time.Hour, MaxStoreBytes: 1 << 30}
	o := madeByOther(t, first, func(c *jetstream.StreamConfig) { // of a later version, which may be joined
		c.Metadata["toolyard.settings"] = strings.Replace(c.Metadata["toolyard.settings"], "{", `{"cells":4,`, 1)
	})
	b, err := o.open(first)
	must.OK(t, err)
	sub := submission("b")
	must.OK(t, b.Submit(t.Context(), sub))
	must.OK(t, b.Beat(t.Context(), broker.Worker{ID: "w", Pool: "default"}))
	if _, err := b.Archiver(t.Context(), time.Hour, nil); err != nil { // which makes the archive's stream
		t.Fatal(err)
	}
	ages, bytes := o.limits()
	want := broker.Settings{Lifetime: 48 * time.Hour, MaxStoreBytes: 2 << 30}
	was, now, err := natsbroker.Change(t.Context(), o.nc, want)
	if err != nil || was != b.Settings() || now.Lifetime != want.Lifetime || now.MaxStoreBytes != want.MaxStoreBytes {
		t.Fatalf("%+v became %+v, %v", was, now, err)
	}
	agesNow, bytesNow := o.limits()
	for name, age := range ages {
		if grown := age + 24*time.Hour; age != 0 && agesNow[name] != grown || age == 0 && agesNow[name] != 0 {
			t.Errorf("%s keeps messages for %s, and kept them for %s", name, agesNow[name], age)
		}
		if bytesNow[name] != 2*bytes[name] {
			t.Errorf("%s has %d bytes, and had %d", name, bytesNow[name], bytes[name])
		}
	}
	if text := o.batches().Metadata["toolyard.settings"]; !strings.Contains(text, `"cells":4`) {
		t.Errorf("a setting of a later version is lost: %s", text)
	}
	if _, err := b.Fold(t.Context(), sub.Key()); err != nil {
		t.Errorf("the batch is not there any more: %v", err)
	}

	other := b.As("/test/other")
	if b.Settings() != was {
		t.Errorf("the settings are %+v before they are read again", b.Settings())
	}
	if before, after, err := b.Renew(t.Context()); err != nil || before != was || after != now {
		t.Errorf("it reads %+v, then %+v, %v", before, after, err)
	}
	if b.Settings() != now || other.Settings() != now {
		t.Errorf("the settings are %+v, and %+v", b.Settings(), other.Settings())
	}
	_, err = o.open(first)
	for _, part := range []string{"batch lifetime: the system was made with 48h0m0s, not 24h0m0s",
		"dispatcher settings batch-lifetime=", "bytes of store", "dispatcher settings max-store-bytes="} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("with the old settings it opens with %v, want %q", err, part)
		}
	}
	for _, s := range []broker.Settings{{}, want} {
		if _, err := o.open(s); err != nil {
			t.Errorf("with %+v: %v", s, err)
		}
	}
	if was, now, err = natsbroker.Change(t.Context(), o.nc, want); err != nil || was != now {
		t.Errorf("once more: %+v becomes %+v, %v", was, now, err)
	}
}

// TestOnlyWhatIsAskedForChanges: a change of one setting leaves alone what an operator has changed of the other.
func TestOnlyWhatIsAskedForChanges(t *testing.T) {
	o := madeByOther(t, broker.Settings{MaxStoreBytes: 1 << 30}, func(c *jetstream.StreamConfig) {
		c.MaxBytes = 12 << 20
	})
	_, bytes := o.limits()
	if _, _, err := natsbroker.Change(t.Context(), o.nc, broker.Settings{Lifetime: 100 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, now := o.limits(); !maps.Equal(now, bytes) {
		t.Errorf("the sizes are %v, and were %v", now, bytes)
	}
}

// TestALifetimeThatBecomesShorter: it is refused while somebody relies on the longer one.
func TestALifetimeThatBecomesShorter(t *testing.T) {
	o := madeByOther(t, broker.Settings{Lifetime: 24 * time.Hour}, func(*jetstream.StreamConfig) {})
	b, err := o.open(broker.Settings{})
	must.OK(t, err)
	ages, _ := o.limits()
	change := func(to time.Duration) error {
		_, _, err := natsbroker.Change(t.Context(), o.nc, broker.Settings{Lifetime: to})
		return err
	}
	refused := func(to time.Duration, because string) {
		t.Helper()
		if err := change(to); err == nil || !strings.Contains(err.Error(), because) {
			t.Errorf("to %s: %v, want %q", to, err, because)
		}
		if now, _ := o.limits(); !maps.Equal(now, ages) {
			t.Errorf("it was refused, and the streams have changed to %v", now)
		}
	}
	must.OK(t, b.Beat(t.Context(), broker.Worker{ID: "w", Pool: "default"}))
	refused(time.Hour, "stop all of them")
	must.OK(t, b.Gone(t.Context(), "w"))
	sub := submission("b")
	k := sub.Key()
	must.OK(t, b.Submit(t.Context(), sub))
	refused(time.Hour, "batches are under way")
	cons, err := o.js.Consumer(t.Context(), "TY_BATCH", "dispatchers")
	must.OK(t, err)
	m, err := cons.Next()
	must.OK(t, err)
	refused(time.Hour, "batches are under way")
	must.OK(t, m.DoubleAck(t.Context()))
	parked := broker.Entry{ID: k.ID, Agent: k.Agent, Session: "s", Workspace: "w",
		Status: toolyard.StatusWaiting, Submitted: time.Now(), Place: 1}
	must.OK(t, b.Index().Add(t.Context(), parked))
	refused(time.Hour, "batches are under way")
	parked.Status, parked.Revision = toolyard.StatusCompleted, 1
	must.OK(t, b.Index().Change(t.Context(), parked))
	must.OK(t, change(time.Hour))
	if now, _ := o.limits(); now["TY_EVENT"] != 2*time.Hour {
		t.Errorf("the streams keep messages for %v", now)
	}
	if _, err := o.open(broker.Settings{Lifetime: time.Hour}); err != nil {
		t.Error(err)
	}
}

// TestAStoreThatBecomesSmaller: it is refused when a stream has no room in it.
func TestAStoreThatBecomesSmaller(t *testing.T) {
	o := madeByOther(t, broker.Settings{MaxStoreBytes: 1 << 30}, func(*jetstream.StreamConfig) {})
	b, err := o.open(broker.Settings{})
	must.OK(t, err)
	if err := b.Beat(t.Context(), broker.Worker{ID: "w", Pool: "default"}); err != nil { // it may run
		t.Fatal(err)
	}
	for range 9 { // more than half of the events' part of 64 MiB
		if _, err := o.js.Publish(t.Context(), "ty.event.default.b._.batch", make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	_, bytes := o.limits()
	_, _, err = natsbroker.Change(t.Context(), o.nc, broker.Settings{MaxStoreBytes: 64 << 20})
	if err == nil || !strings.Contains(err.Error(), "TY_EVENT holds 94") {
		t.Errorf("without room: %v", err)
	}
	if _, now := o.limits(); !maps.Equal(now, bytes) {
		t.Errorf("it was refused, and the sizes are %v", now)
	}
	if _, _, err := natsbroker.Change(t.Context(), o.nc, broker.Settings{MaxStoreBytes: 256 << 20}); err != nil {
		t.Error(err)
	}
	if _, now := o.limits(); now["TY_EVENT"] != 64<<20 {
		t.Errorf("the sizes are %v", now)
	}
	if s, err := o.js.Stream(t.Context(), "TY_EVENT"); err != nil || s.CachedInfo().State.Msgs != 9 {
		t.Errorf("events are gone: %v", err)
	}
}

// TestAStoreThatTheServersDoNotAllow: what the servers have no room for is refused, the settings stay, and the former
// size undoes it.
func TestAStoreThatTheServersDoNotAllow(t *testing.T) {
	o := madeByOther(t, broker.Settings{MaxStoreBytes: 1 << 30}, func(*jetstream.StreamConfig) {})
	_, bytes := o.limits()
	_, _, err := natsbroker.Change(t.Context(), o.nc, broker.Settings{MaxStoreBytes: 64 << 30})
	if err == nil || !strings.Contains(err.Error(), "max_file_store") {
		t.Fatalf("more than the server has: %v", err)
	}
	if _, err := o.open(broker.Settings{MaxStoreBytes: 1 << 30}); err != nil {
		t.Errorf("the settings have changed: %v", err)
	}
	if _, _, err := natsbroker.Change(t.Context(), o.nc, broker.Settings{MaxStoreBytes: 1 << 30}); err != nil {
		t.Errorf("back: %v", err)
	}
	if _, now := o.limits(); !maps.Equal(now, bytes) {
		t.Errorf("the sizes are %v, and were %v", now, bytes)
	}
	nobody := testenv.Conn(t, testenv.Server(t))
	if _, _, err := natsbroker.Change(t.Context(), nobody, broker.Settings{}); !errors.Is(err, broker.ErrNoSystem) {
		t.Errorf("where there is no system: %v", err)
	}
}
