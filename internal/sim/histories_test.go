//go:build !race

package sim

// How many histories are played.
const (
	histories = 10_000 // of TestSimulation
	mostTeeth = 6_000  // of TestTeeth, for each fence
)
