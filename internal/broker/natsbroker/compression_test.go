package natsbroker_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestCompressedStore: a running system is told to compress, and its server does so from its next start on. What was
// stored before and after reads as it was, also beside messages that are deleted, as those of archived batches are, and
// after another start.
func TestCompressedStore(t *testing.T) {
	testenv.OneShard(t)
	const (
		storeBytes = 128 << 20 // blocks of events then have 8 MiB
		messages   = 100
		size       = 100_000
		oneIn      = 3 // that is deleted
	)
	s := testenv.Restartable(t)
	nc := testenv.Conn(t, s.Server)
	js := testenv.JetStream(t, nc)
	testenv.Open(t, nc, broker.Settings{MaxStoreBytes: storeBytes}, "/test")
	dir := filepath.Join(s.Options.StoreDir, "jetstream", "$G", "streams", "TY_EVENT", "msgs", "*.blk")
	onDisk := func() (sum int64) {
		files, err := filepath.Glob(dir)
		must.OK(t, err)
		for _, name := range files {
			if info, err := os.Stat(name); err == nil { // one that is replaced just now is not there
				sum += info.Size()
			}
		}
		return sum
	}
	var kept []uint64
	text := func(seq uint64) []byte {
		return bytes.Repeat(fmt.Appendf(nil, "line of %d\n", seq), size)[:size]
	}
	store := func() {
		t.Helper()
		for range messages {
			seq := uint64(len(kept)) + 1
			ack, err := js.Publish(t.Context(), fmt.Sprintf("ty.event.a.b%d._.batch", seq), text(seq))
			if err != nil || ack.Sequence != seq {
				t.Fatalf("message %d is stored as %+v, %v", seq, ack, err)
			}
			kept = append(kept, seq)
		}
	}
	read := func() {
		t.Helper()
		events := testenv.Stream(t, js, "TY_EVENT")
		for i, seq := range kept {
			switch msg, err := events.GetMsg(t.Context(), uint64(i)+1); {
			case seq == 0 && !errors.Is(err, jetstream.ErrMsgNotFound):
				t.Errorf("message %d was deleted, and reads as %v", i+1, err)
			case seq != 0 && err != nil:
				t.Errorf("message %d: %v", seq, err)
			case seq != 0 && !bytes.Equal(msg.Data, text(seq)):
				t.Errorf("message %d reads otherwise", seq)
			}
		}
	}
	restart := func() {
		t.Helper()
		s.Shutdown()
		s.Start()
		testenv.Until(t, "the connection is back", nc.IsConnected)
	}

	store()
	was, now, err := natsbroker.Change(t.Context(), nc, broker.Settings{Compression: broker.CompressionS2})
	if err != nil || was.Compression != broker.CompressionNone || now.Compression != broker.CompressionS2 {
		t.Fatalf("%+v became %+v, %v", was, now, err)
	}
	for name, want := range map[string]jetstream.StoreCompression{"TY_BATCH": jetstream.S2Compression,
		"TY_EVENT": jetstream.S2Compression, "TY_REPLY": jetstream.S2Compression,
		"OBJ_ty_blob": jetstream.S2Compression, "TY_CALL": jetstream.NoCompression,
		"KV_ty_index": jetstream.NoCompression} {
		stream, err := js.Stream(t.Context(), name)
		if err != nil || stream.CachedInfo().Config.Compression != want {
			t.Errorf("%s has another compression than %s, %v", name, want, err)
		}
	}
	restart()
	before := onDisk()
	store()
	testenv.Until(t, "a full block is compressed", func() bool { return onDisk() < before+messages*size*3/4 })
	read()
	events := testenv.Stream(t, js, "TY_EVENT")
	for i := 0; i < len(kept); i += oneIn {
		must.OK(t, events.DeleteMsg(t.Context(), kept[i]))
		kept[i] = 0
	}
	read()
	restart()
	read()
	_, now, err = natsbroker.Change(t.Context(), nc, broker.Settings{Compression: broker.CompressionNone})
	if err != nil || now.Compression != broker.CompressionNone {
		t.Errorf("back to none: %+v, %v", now, err)
	}
	restart()
	read()
	_, err = natsbroker.Open(t.Context(), nc, broker.Settings{Compression: broker.CompressionS2}, "/test")
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte("dispatcher settings store-compression=")) {
		t.Errorf("with another compression it opens with %v", err)
	}
}

func TestServersThatCompress(t *testing.T) {
	for version, want := range map[string]bool{"2.15.2": true, "2.15.3": true, "2.16.0": true, "3.0.0-beta.1": true,
		"2.15.1": false, "2.14.9": false, "1.99.99": false, "": false, "new": false, "2.15": false} {
		if got := natsbroker.ReliedOn(version); got != want {
			t.Errorf("%q may compress: %t, want %t", version, got, want)
		}
	}
}
