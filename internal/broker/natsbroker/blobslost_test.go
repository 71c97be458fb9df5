package natsbroker_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestAnObjectWithoutItsParts: who reads an object of which the store has lost all parts is told so, as of one that has
// lost some, and before the call that reads it is over. Who has its content stores it again.
func TestAnObjectWithoutItsParts(t *testing.T) {
	for what, lose := range map[string]func(s jetstream.Stream, e *bubble.Env) error{
		"all": func(s jetstream.Stream, e *bubble.Env) error {
			return s.Purge(e.Context(), jetstream.WithPurgeSubject("$O.ty_blob.C.>"))
		},
		"one": func(s jetstream.Stream, e *bubble.Env) error { return s.DeleteMsg(e.Context(), 1) },
	} {
		t.Run(what, func(t *testing.T) {
			bubble.Run(t, smallStore, func(e *bubble.Env) {
				b := e.Broker("test")
				content := []byte(strings.Repeat("x", 300<<10))
				ref, err := b.PutResult(e.Context(), "a", content)
				must.OK(e.T, err)
				js, err := jetstream.New(e.Conn("operator"))
				must.OK(e.T, err)
				s, err := js.Stream(e.Context(), "OBJ_ty_blob")
				if err == nil {
					err = lose(s, e)
				}
				must.OK(e.T, err)
				began := time.Now()
				_, err = b.Result(e.Context(), "a", ref)
				if took := time.Since(began); !errors.Is(err, broker.ErrDamaged) || took > 5*time.Second {
					t.Errorf("after %s: %v; want at once that the object is damaged", took, err)
				}
				again, err := b.PutResult(e.Context(), "a", content)
				if err != nil || again != ref {
					t.Errorf("stored again as %q: %v; want %q", again, err, ref)
				}
				if got, err := b.Result(e.Context(), "a", ref); !bytes.Equal(got, content) {
					t.Errorf("when it is stored again, it is %d bytes: %v", len(got), err)
				}
			})
		})
	}
}
