package sim

import (
	"flag"
	"testing"
)

var (
	seed  = flag.Uint64("seed", 0, "the history that TestSeed plays")
	seeds = flag.Uint64("seeds", histories, "how many histories TestSimulation plays")
)

// TestSeed plays one history and prints it.
func TestSeed(t *testing.T) {
	r := Run(*seed, Options{Trace: true})
	t.Log("\n" + r.String())
	if r.Failure != nil {
		t.Fail()
	}
}

// TestSimulation plays many histories.
func TestSimulation(t *testing.T) {
	var sum Report
	for n := range *seeds {
		r := Run(n, Options{})
		if r.Failure != nil {
			again := Run(n, Options{Trace: true})
			t.Fatalf("\n%s", again)
		}
		sum.Steps += r.Steps
		sum.Batches += r.Batches
		sum.Calls += r.Calls
		sum.Executions += r.Executions
		sum.Faults += r.Faults
		sum.End += r.End
	}
	t.Logf("%d histories: %d batches, %d calls, %d executions, %d faults, %d steps, %s", *seeds, sum.Batches, sum.Calls, sum.Executions, sum.Faults, sum.Steps, sum.End)
}
