package membroker

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// watched is a bucket, and a watch of it by another party.
func watched(t *testing.T, s *Server, fill func(jetstream.KeyValue)) (jetstream.KeyValue, jetstream.KeyWatcher) {
	t.Helper()
	js, err := jetstream.New(connect(t, s, "writer"))
	must.OK(t, err)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b"})
	must.OK(t, err)
	fill(kv)
	js2, err := jetstream.New(connect(t, s, "watcher"))
	must.OK(t, err)
	kv2, err := js2.KeyValue(t.Context(), "b")
	must.OK(t, err)
	w, err := kv2.WatchAll(t.Context())
	must.OK(t, err)
	return kv, w
}

func TestAWatchOutlivesSilenceAndARestart(t *testing.T) {
	Bubble(t, func(t *testing.T) {
		s := start(t, Options{Settle: synctest.Wait, Seed: 5})
		kv, w := watched(t, s, func(jetstream.KeyValue) {})
		if e := <-w.Updates(); e != nil {
			t.Fatalf("an empty bucket has %v", e)
		}
		see := func(key string) {
			t.Helper()
			if _, err := kv.Put(t.Context(), key, nil); err != nil {
				t.Fatal(err)
			}
			if e := <-w.Updates(); e == nil || e.Key() != key {
				t.Errorf("the watch tells of %v, not of %q", e, key)
			}
		}
		time.Sleep(time.Hour) // but for heartbeats
		see("silence")
		s.Drop("watcher")
		time.Sleep(time.Minute)
		see("cut")
		s.Kill() // the watch's consumer is in memory, and lost
		time.Sleep(time.Second)
		s.Start()
		time.Sleep(time.Minute)
		see("restart")
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
	})
}

func TestFlowControl(t *testing.T) {
	const keys, length = 60, 200_000 // several windows
	Bubble(t, func(t *testing.T) {
		s := start(t, Options{Settle: synctest.Wait, Seed: 5})
		_, w := watched(t, s, func(kv jetstream.KeyValue) {
			for i := range keys {
				if _, err := kv.Put(t.Context(), fmt.Sprint("k", i), make([]byte, length)); err != nil {
					t.Fatal(err)
				}
			}
		})
		for i := range keys {
			if e := <-w.Updates(); e == nil || e.Key() != fmt.Sprint("k", i) || len(e.Value()) != length {
				t.Fatalf("in place %d stands %v", i, e)
			}
		}
		s.mu.Lock()
		answers := s.js.streams[0].consumers[0].flow.number
		s.mu.Unlock()
		if answers == 0 {
			t.Error("the watcher was never asked what it has")
		}
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
	})
}
