package dispatcher

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/version"
)

// archived is how many objects the archive has.
func (y *yard) archived() uint64 {
	y.Helper()
	js, err := jetstream.New(y.Conn("reader"))
	must.OK(y.T, err)
	s, err := js.Stream(y.Context(), "TY_ARCHIVE")
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0
	}
	must.OK(y.T, err)
	return s.CachedInfo().State.Msgs
}

// TestADispatcherArchives: it archives its batches when they have been over for a while, and none while an older worker
// is there. Two do so side by side.
func TestADispatcherArchives(t *testing.T) {
	inYard(t, func(y *yard) {
		const after = time.Minute
		key, err := nkeys.CreateUser()
		must.OK(y.T, err)
		public, err := key.PublicKey()
		must.OK(y.T, err)
		archives := func(c *Config) { c.ArchiveAfter, c.SigningKey = after, key }
		y.work()
		y.dispatcher("d1", archives)
		y.dispatcher("d2", archives)
		js, err := jetstream.New(y.Conn("older"))
		must.OK(y.T, err)
		older := must.JSON(y.T, broker.Worker{ID: "older", Pool: "other", WireVersion: version.Archives - 1})
		beat := func() { // for a little longer than its TTL
			if _, err := js.Publish(y.Context(), "$KV.ty_worker.older", older, jetstream.WithMsgTTL(
				y.b.Settings().WorkerTTL)); err != nil {
				y.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		var keys []toolyard.BatchKey
		for range 5 {
			keys = append(keys, y.submit("read", "write"))
		}
		for begun := time.Now(); time.Since(begun) < 3*after; {
			beat()
		}
		if n := y.archived(); n > 0 {
			y.Errorf("beside an older worker there are %d objects", n)
		}
		time.Sleep(3 * after)
		n := y.archived()
		if n == 0 {
			y.Error("nothing is archived")
		}
		for _, k := range keys {
			if s := y.fold(k); !s.Completed || len(s.View().Results) != 2 {
				y.Errorf("batch %s reads as %+v", k, s.View())
			}
			p, err := y.b.Prove(y.Context(), k)
			if err == nil {
				err = p.Entry.Verify([]string{public})
			}
			if err != nil || p.Entry.Signed.By != "d1" && p.Entry.Signed.By != "d2" {
				y.Errorf("batch %s is signed %+v: %v", k, p.Entry.Signed, err)
			}
		}
		if ran := y.ran.Load(); ran != int32(2*len(keys)) {
			y.Errorf("%d calls have run, want %d", ran, 2*len(keys))
		}
		time.Sleep(3 * after)
		if again := y.archived(); again != n {
			y.Errorf("what is archived is archived again: %d objects, and %d before", again, n)
		}
	})
}
