package natsd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestKeeper: when the server is full, when it is started again, and when it is given up.
func TestKeeper(t *testing.T) {
	const mib = 1 << 20
	begin := time.Unix(1_000_000, 0)
	broken := errors.New("no space left on device")
	k := keeper{room: Room{Dir: "/data", Reserve: 64 * mib}}
	for i, step := range []struct {
		at      time.Duration
		free    int64
		stalled error
		full    bool
		do      deed
		tried   error // what a restart says
	}{
		{at: 0, free: 100 * mib},
		{at: 1 * time.Second, free: 64 * mib},
		{at: 2 * time.Second, free: 63 * mib, full: true},
		{at: 3 * time.Second, free: 79 * mib, full: true}, // not yet a quarter above the reserve
		{at: 4 * time.Second, free: 80 * mib},
		{at: 5 * time.Second, free: 0, stalled: broken, full: true},
		{at: 6 * time.Second, free: 70 * mib, stalled: broken, full: true},
		{at: 7 * time.Second, free: 90 * mib, stalled: broken, full: true, do: restart},
		{at: 7100 * time.Millisecond, free: 90 * mib},
		{at: 7500 * time.Millisecond, free: 90 * mib, stalled: broken, full: true}, // not again at once
		{at: 8 * time.Second, free: 90 * mib, stalled: broken, full: true, do: restart},
		{at: 9 * time.Second, free: 90 * mib, stalled: broken, full: true},
		{at: 10 * time.Second, free: 90 * mib, stalled: broken, full: true, do: restart, tried: errNotWritable},
		{at: 13 * time.Second, free: 90 * mib, stalled: broken, full: true},
		{at: 14 * time.Second, free: 90 * mib, stalled: broken, full: true, do: restart},
		{at: 15 * time.Second, free: 90 * mib},
		{at: 75 * time.Second, free: 90 * mib}, // well for a minute: the next one is at once
		{at: 76 * time.Second, free: 90 * mib, stalled: broken, full: true, do: restart},
		{at: 77 * time.Second, free: 90 * mib, stalled: broken, full: true, do: restart},
	} {
		do := k.see(sight{at: begin.Add(step.at), free: step.free, stalled: step.stalled})
		if do != step.do || k.room.Full != step.full || !errors.Is(k.room.Stalled, step.stalled) {
			t.Fatalf("step %d: it does %d and the room is %+v; want %+v", i, do, k.room, step)
		}
		if do == restart && k.tried(begin.Add(step.at), step.tried) != nothing {
			t.Fatalf("step %d: it gives up", i)
		}
	}

	// A server that does not start again is given up after a while, one on a disk that takes nothing is not.
	for err, want := range map[error]deed{errors.New("it does not start"): giveUp, errNotWritable: nothing} {
		k := keeper{room: Room{Dir: "/data", Reserve: 64 * mib}}
		at, last, tries := begin, nothing, 0
		for ; at.Before(begin.Add(10*time.Minute)) && last == nothing; at = at.Add(lookEvery) {
			if k.see(sight{at: at, free: 90 * mib, stalled: err}) == restart {
				last = k.tried(at, err)
				tries++
			}
		}
		if last != want {
			t.Errorf("%v: after %s it does %d; want %d", err, at.Sub(begin), last, want)
		}
		if want == nothing && tries > 30 {
			t.Errorf("%v: %d tries in %s", err, tries, at.Sub(begin))
		}
	}
	if k := (keeper{}); k.see(sight{at: begin, gone: &GoneError{}, free: 90 * mib}) != giveUp || !k.room.Full {
		t.Errorf("a store that is gone leaves the room %+v", k.room)
	}
}

// TestReserve: what is kept of a disk when nobody says.
func TestReserve(t *testing.T) {
	for total, want := range map[int64]int64{1 << 20: MinReserve, 1 << 30: MinReserve, 20 << 30: (20 << 30) / 100,
		1 << 40: MaxReserve} {
		if got := reserveOf(0, total); got != want {
			t.Errorf("of %d bytes %d are kept; want %d", total, got, want)
		}
	}
	if got := reserveOf(5, 1<<40); got != 5 {
		t.Errorf("%d are kept; 5 were asked for", got)
	}
	r := Room{Dir: "/data", Free: 12 << 20, Reserve: 64 << 20, Full: true}
	if got, want := r.String(),
		"the disk under /data has 12 MiB free, and 64 MiB are kept for what is under way; free 68 MiB"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
	r.Stalled = errors.New("write error: no space")
	if got, want := r.String(),
		"the disk under /data has 12 MiB free, and nothing more can be stored (write error: no space); free 68 MiB"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
}

// TestAStreamThatCannotBeRecovered: a store that has lost a stream is not served, or whoever comes first would make it
// anew, empty.
func TestAStreamThatCannotBeRecovered(t *testing.T) {
	dir := filepath.Join(t.TempDir(), oddName)
	s := startServer(t, Options{StoreDir: dir})
	_, js := connect(t, s)
	for _, name := range []string{"WHOLE", "DAMAGED"} {
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name,
			Subjects: []string{name}}); err != nil {
			t.Fatal(err)
		}
		if _, err := js.Publish(t.Context(), name, []byte("acknowledged")); err != nil {
			t.Fatal(err)
		}
	}
	s.Shutdown()
	must.OK(t, os.MkdirAll(filepath.Join(dir, "jetstream", "$G", "streams", "HALF_MADE", "msgs"), 0o700))
	meta := filepath.Join(dir, "jetstream", "$G", "streams", "DAMAGED", "meta.inf")
	data := must.Read(t, meta)
	whole := append([]byte(nil), data...)
	data[len(data)/2] ^= 0x55
	must.OK(t, os.WriteFile(meta, data, 0o600))
	again, err := Start(t.Context(), Options{StoreDir: dir})
	if err == nil {
		again.Shutdown()
		t.Fatal("the server starts without one of its streams")
	}
	if !strings.Contains(err.Error(), "DAMAGED") || !strings.Contains(err.Error(), dir) {
		t.Errorf("error %v; want one that names the stream and the directory", err)
	}
	must.OK(t, os.WriteFile(meta, whole, 0o600))
	startServer(t, Options{StoreDir: dir})
}
