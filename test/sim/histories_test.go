//go:build !race

package sim

// How many histories TestSimulation plays, and how many of them twice.
const (
	histories   = 60
	playedTwice = 20
)
