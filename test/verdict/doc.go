// Package verdict holds what is left of a run against the invariants of the design: what the tools did (package
// ledger), what the log says, and what the agents saw. It judges real processes (test/faults) and simulated ones
// (test/sim) alike.
package verdict
