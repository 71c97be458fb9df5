//go:build !race

package sim

// histories is how many TestSimulation plays.
const histories = 10_000
