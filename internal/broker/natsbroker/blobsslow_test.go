package natsbroker_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestAnObjectThatIsStoredSlowlyIsThereOnce: the answers to who stores an object come late, so that the request is
// repeated while the first one is under way. The store has the parts of one.
func TestAnObjectThatIsStoredSlowlyIsThereOnce(t *testing.T) {
	bubble.Run(t, smallStore, func(e *bubble.Env) {
		b, content := e.Broker("test"), contents()(1<<20)
		e.Server.DelayAnswers("test", 1500*time.Millisecond)
		ref, err := b.PutResult(e.Context(), "a", content)
		must.OK(e.T, err)
		e.Server.DelayAnswers("test", 0)
		time.Sleep(time.Minute) // of virtual time: whatever was under way has ended
		if got, err := b.Result(e.Context(), "a", ref); err != nil || !bytes.Equal(got, content) {
			e.Errorf("%d bytes of %d can be read: %v", len(got), len(content), err)
		}
		js, err := jetstream.New(e.Conn("operator"))
		must.OK(e.T, err)
		s, err := js.Stream(e.Context(), "OBJ_ty_blob")
		must.OK(e.T, err)
		const parts = 8
		if n := s.CachedInfo().State.Msgs; n != parts+1 {
			e.Errorf("the store has %d messages; an object of %d parts has one more", n, parts)
		}
	})
}
