package main

import (
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/testenv"
)

// TestTwoSystemsInOneAccount: a dispatcher that wants other settings than the system in its account has is told which,
// and that another system needs another account.
func TestTwoSystemsInOneAccount(t *testing.T) {
	s := testenv.Server(t)
	testenv.Broker(t, s, "/test")
	n, err := startNode(t.Context(), testenv.Log(t), nodeConfig{url: s.ClientURL(), reach: &cli.Reach{},
		settings: broker.Settings{Lifetime: time.Hour}})
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
