//go:build steady

package sim

// What TestSimulation plays says who starts it.
const histories, playedTwice = 0, 0

const isSteady, isRaced = true, false
