// Package faults breaks the real system and looks at what is left of it: the commands as processes, killed and stopped
// at named places (package failpoint), under the load of three agents, and a checker that reads what the tools did,
// what the log says and what the agents were told.
//
// One test for each cell of the fault matrix; docs/faults.md is its table. A test runs with seed 1, with those of
// -seeds N or FAULT_SEEDS, or with one of them:
//
//	go test ./test/faults -run 'TestDispatcherDiesWithAllCallsQueued$' -seed 7
//
// A failed run leaves its directory behind, with the history, the ledger and the processes' logs, and says where it is.
// The seed decides what the agents ask for and at which hit the fault happens; how the processes are scheduled it
// cannot decide, so that a run with the same seed is like another and not the same.
//
// Nothing waits for a time to pass, but where the time is the fault (a pause of three ack waits): everything else is
// asked for until it is there, or a deadline has passed.
package faults
