//go:build race

package sim

// histories is how many TestSimulation plays: fewer, since the race detector slows them down tenfold.
const histories = 1_000
