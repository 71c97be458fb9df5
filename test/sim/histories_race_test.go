//go:build race

package sim

// The race detector makes histories slow, and runs goroutines in any order on purpose.
const (
	histories   = 10 // of TestSimulation
	playedTwice = 0
)

const isSteady, isRaced = false, true
