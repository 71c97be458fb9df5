//go:build !race && !steady

package sim

// How many histories TestSimulation plays, and how many of them twice.
const (
	histories   = 2000
	playedTwice = 100
)

// isSteady says that a history is the same each time in this build, isRaced that it looks for data races.
const isSteady, isRaced = false, false
