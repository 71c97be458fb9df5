package dispatchercmd

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestTwoSystemsInOneAccount: a dispatcher that wants other settings than the system in its account has is told which,
// and that another system needs another account.
func TestTwoSystemsInOneAccount(t *testing.T) {
	s := testenv.Server(t)
	testenv.Broker(t, s, "/test")
	n, err := startNode(t.Context(), testenv.Log(t), nodeConfig{url: s.ClientURL(), reach: &cli.Reach{},
		settings: broker.Settings{Lifetime: time.Hour}, observed: cli.NewObserved()})
	if err == nil {
		n.close()
		t.Fatal("it starts")
	}
	for _, want := range []string{"batch lifetime", "was made with 72h0m0s, not 1h0m0s", "an account of its own"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
}

// TestDecisionsNeedProofsWhereWorkersHaveAccounts: a dispatcher whose credentials are ours asks for proofs of
// decisions, also where the NATS system is not in its process. Where nobody is asked for credentials it does not.
func TestDecisionsNeedProofsWhereWorkersHaveAccounts(t *testing.T) {
	start := func(url string, reach cli.Reach) {
		n, err := startNode(t.Context(), testenv.Log(t), nodeConfig{url: url, reach: &reach,
			observed: cli.NewObserved()})
		must.OK(t, err)
		t.Cleanup(n.close)
	}
	guarded := testenv.Guarded(t)
	creds, _ := guarded.Creds()
	before := time.Now().Add(-2 * time.Second)
	start(guarded.ClientURL(), cli.Reach{Creds: creds})
	js := testenv.JetStream(t, testenv.ConnAs(t, guarded, access.Principal{Role: access.Operator}))
	if at := proofsSince(t, js); at.Before(before) {
		t.Errorf("proofs are asked for from %s on; want from about now", at)
	}
	open := testenv.Server(t)
	start(open.ClientURL(), cli.Reach{Creds: creds}) // those of another system, which this user has here
	js = testenv.JetStream(t, testenv.Conn(t, open))
	if at := proofsSince(t, js); !at.IsZero() {
		t.Errorf("without accounts proofs are asked for from %s on", at)
	}
}

// proofsSince is when decisions began to need proofs, as it is stored.
func proofsSince(t *testing.T, js jetstream.JetStream) (at time.Time) {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), "ty_session")
	must.OK(t, err)
	e, err := kv.Get(t.Context(), "_.guarded")
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return time.Time{}
	}
	if err == nil {
		at, err = time.Parse(time.RFC3339Nano, string(e.Value()))
	}
	must.OK(t, err)
	return at
}
