package brokertest_test

import (
	"flag"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/internal/broker/brokertest"
	"github.com/toolyard/toolyard/internal/broker/membroker"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

func connect(t *testing.T, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, opts...)
	must.OK(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// seeds are those of the runs on membroker: 0 takes steps in the order in which they came.
var seeds = []uint64{0, 1, 2}

func TestInMemory(t *testing.T) {
	for _, seed := range seeds {
		for _, replicas := range []int{1, 3} {
			brokertest.Run(t, func(t *testing.T, do func(*testing.T, brokertest.Target)) {
				membroker.Bubble(t, func(t *testing.T) {
					s := membroker.New(membroker.Options{Settle: synctest.Wait, Seed: seed, Clustered: replicas > 1})
					t.Cleanup(s.Close)
					do(t, brokertest.Target{
						Replicas: replicas,
						Connect: func(t *testing.T, party string, opts ...nats.Option) *nats.Conn {
							t.Helper()
							return connect(t, "", append(opts, nats.InProcessServer(s.Dial(party)))...)
						},
					})
				})
			})
		}
	}
}

// cluster has the suite run on three servers. On a busy machine those take so long to agree that waits are over early,
// so make check does without.
var cluster = flag.Bool("cluster", false, "run the cases on a cluster of three servers in place of one")

// TestRealServer: the cases hold on nats-server, so they are facts.
func TestRealServer(t *testing.T) {
	if *cluster {
		runOnCluster(t)
		return
	}
	s, err := natsd.Start(t.Context(), natsd.Options{
		StoreDir: testenv.StoreDir(t), Listen: "127.0.0.1:0", Open: true, Logger: slog.New(slog.DiscardHandler),
	})
	must.OK(t, err)
	t.Cleanup(s.Shutdown)
	brokertest.Keep(t, connect(t, s.ClientURL()))
	brokertest.Run(t, func(t *testing.T, do func(*testing.T, brokertest.Target)) {
		do(t, brokertest.Target{
			Replicas: 1,
			Connect: func(t *testing.T, _ string, opts ...nats.Option) *nats.Conn {
				t.Helper()
				return connect(t, s.ClientURL(), opts...)
			},
		})
	})
}

// TestEachFactHasACaseOrAReason holds the table of facts to the cases.
func TestEachFactHasACaseOrAReason(t *testing.T) {
	var named []string
	for _, f := range brokertest.Facts {
		if (len(f.Cases) == 0) == (f.Without == "") {
			t.Errorf("%q has to have cases or a reason why it has none", f.Is)
		}
		named = append(named, f.Cases...)
	}
	for _, c := range brokertest.Cases {
		if !slices.Contains(named, c.Name) {
			t.Errorf("case %s holds no fact", c.Name)
		}
	}
	for _, name := range named {
		if !slices.ContainsFunc(brokertest.Cases, func(c brokertest.Case) bool { return c.Name == name }) {
			t.Errorf("there is no case %s", name)
		}
	}
}
