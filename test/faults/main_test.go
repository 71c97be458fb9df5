//go:build unix

package faults

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv"
)

var (
	oneSeed = flag.Uint64("seed", 0, "run this seed only")
	seeds   = flag.Uint64("seeds", 0, "run the seeds from 1 to this one (default: FAULT_SEEDS, or 1)")
)

func TestMain(m *testing.M) { os.Exit(testenv.RunWaiting(m)) }

// bin builds the commands, with failpoints and without the race detector, once for all tests that need them; nextBin
// builds what stands for their next version, of those that upgrades are about.
var (
	bin = sync.OnceValues(func() (string, error) {
		return testenv.Binaries("failpoints", "cmd/dispatcher", "cmd/worker", "test/faults/ledgerworker",
			"test/faults/natsnode")
	})
	nextBin = sync.OnceValues(func() (string, error) {
		return testenv.Binaries("failpoints,nextversion", "cmd/dispatcher", "test/faults/ledgerworker",
			"test/faults/natsnode")
	})
)

// seedsWanted are the seeds to run.
func seedsWanted(t *testing.T) []uint64 {
	t.Helper()
	if *oneSeed > 0 {
		return []uint64{*oneSeed}
	}
	n := *seeds
	if env := os.Getenv("FAULT_SEEDS"); n == 0 && env != "" {
		var err error
		if n, err = strconv.ParseUint(env, 10, 64); err != nil {
			t.Fatalf("FAULT_SEEDS: %v", err)
		}
	}
	out := []uint64{1}
	for s := uint64(2); s <= n; s++ {
		out = append(out, s)
	}
	return out
}

// cell runs one cell of the matrix with each seed: play breaks the system, and says by which rules it is to be judged.
func cell(t *testing.T, id string, play func(s *system) rules) {
	t.Parallel()
	for _, seed := range seedsWanted(t) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			s := newSystem(t, id, seed)
			r := play(s)
			s.judge(r)
		})
	}
}

// random is the randomness of a cell and seed.
func random(id string, seed uint64) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // it never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}
