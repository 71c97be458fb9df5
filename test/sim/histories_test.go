//go:build !race

package sim

// How many histories TestSimulation plays, and how many of them twice.
const (
	histories   = 40
	playedTwice = 20
)
