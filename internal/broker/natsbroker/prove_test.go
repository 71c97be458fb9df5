package natsbroker_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/archive"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestProve: a batch is proven from when it is archived, for as long as its log is what it was and nothing of it was
// stored beside that.
func TestProve(t *testing.T) {
	inArchiveYard(t, func(y *archiveYard) {
		key, err := nkeys.CreateUser()
		must.OK(t, err)
		public, err := key.PublicKey()
		must.OK(t, err)
		signer, err := archive.NewSigner(key, "d1")
		must.OK(t, err)
		for name, shape := range archivedShapes {
			shape(y, y.submit(name))
		}
		for name := range archivedShapes {
			k := toolyard.BatchKey{Agent: "a.b", ID: toolyard.BatchID(name)}
			if _, err := y.b.Prove(y.Context(), k); !errors.Is(err, natsbroker.ErrNotArchived) {
				t.Errorf("%s, before it is archived: %v", name, err)
			}
		}
		if _, err := y.b.Prove(y.Context(), toolyard.BatchKey{Agent: "a.b", ID: "nowhere"}); !errors.Is(err,
			broker.ErrNoBatch) {
			t.Errorf("a batch that is not there: %v", err)
		}
		y.acknowledge(len(archivedShapes))
		a, err := y.b.Archiver(y.Context(), y.after, signer)
		must.OK(t, err)
		if r, err := y.round(a); err != nil || r.Batches != len(archivedShapes) {
			t.Fatalf("%+v, %v", r, err)
		}
		var last toolyard.BatchKey
		for name := range archivedShapes {
			k := toolyard.BatchKey{Agent: "a.b", ID: toolyard.BatchID(name)}
			p, err := y.b.Prove(y.Context(), k)
			if err != nil || len(p.Strange) > 0 || p.Messages == 0 || p.Last.Before(p.First) {
				t.Errorf("%s: %+v, %v", name, p, err)
			}
			if err := p.Entry.Verify([]string{public}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			last = k
		}
		// Somebody who may write anywhere stores one more event.
		if _, err := y.js.PublishMsg(y.Context(), &nats.Msg{Data: []byte("{}"),
			Subject: "ty.event." + broker.KeyTokens(last) + ".p.0"}); err != nil {
			t.Fatal(err)
		}
		if p, err := y.b.Prove(y.Context(), last); err != nil || len(p.Strange) != 1 {
			t.Errorf("with an event that is not of its log: %q, %v", p.Strange, err)
		}
		// Somebody takes the object away.
		s, err := y.js.Stream(y.Context(), "TY_ARCHIVE")
		if err == nil {
			err = s.Purge(y.Context())
		}
		must.OK(t, err)
		if _, err := y.broker("fresh").Prove(y.Context(), last); err == nil {
			t.Error("without its object it is proven")
		}
	})
}
