//go:build race

package sim

// The race detector makes histories ten times as slow, and finds nothing in one thread: these are fewer.
const (
	histories = 500  // of TestSimulation
	mostTeeth = 1500 // of TestTeeth, for each fence
)
