package natsbroker_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// smallStore are the settings of a system with room for 8 MiB of objects.
var smallStore = broker.Settings{MaxStoreBytes: 64 << 20}

// contents makes contents of which each is another one.
func contents() func(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	return func(n int) []byte {
		out := make([]byte, n)
		for i := range out {
			out[i] = byte(r.Uint32())
		}
		return out
	}
}

// fillObjects stores objects until there is no room for one more, and returns that one.
func fillObjects(t testing.TB, b *natsbroker.Broker, next func(n int) []byte) (refused []byte) {
	t.Helper()
	for {
		content := next(100 << 10)
		switch _, err := b.PutResult(t.Context(), "a", content); {
		case errors.Is(err, broker.ErrFull):
			return content
		case err != nil:
			t.Fatal(err)
		}
	}
}

// TestAnObjectForWhichThereIsNoRoom: the second try finds nothing of the first one that it would take for the object.
func TestAnObjectForWhichThereIsNoRoom(t *testing.T) {
	t.Parallel()
	b := testenv.Open(t, testenv.Conn(t, testenv.Server(t)), smallStore, "/test")
	content := fillObjects(t, b, contents())
	ref, err := b.PutResult(t.Context(), "a", content)
	if errors.Is(err, broker.ErrFull) {
		return
	}
	must.OK(t, err)
	if got, err := b.Result(t.Context(), "a", ref); err != nil || !bytes.Equal(got, content) {
		t.Errorf("it is said to be stored, and %d bytes of %d can be read: %v", len(got), len(content), err)
	}
}

// TestAFullStoreDestroysNoObject: an object is stored anew, so that it lasts, and there is no room for that. It can
// be read for as long as it would have been.
func TestAFullStoreDestroysNoObject(t *testing.T) {
	bubble.Run(t, smallStore, func(e *bubble.Env) {
		b, next := e.Broker("test"), contents()
		content := next(100 << 10)
		ref, err := b.PutResult(e.Context(), "a", content)
		must.OK(e.T, err)
		time.Sleep(b.Settings().Slack)
		fillObjects(e.T, b, next)
		if _, err := b.PutResult(e.Context(), "a", content); !errors.Is(err, broker.ErrFull) {
			e.Fatalf("stored anew: %v; want %v", err, broker.ErrFull)
		}
		if got, err := b.Result(e.Context(), "a", ref); err != nil || !bytes.Equal(got, content) {
			e.Errorf("%d bytes of %d can be read: %v", len(got), len(content), err)
		}
	})
}
