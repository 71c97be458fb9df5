// Package sim plays whole histories of the real code: dispatchers, workers, clients, the pipeline and the HTTP API,
// each party with its own connection of nats.go. Nothing of ours is modelled but the store of snapshots, which is in
// memory. What is fake beside it is the NATS server, the tools and the people.
//
// Some effects are wholly inside a tool, and no step of dispatcher, worker or pipeline differs for them: a WebAssembly
// module runs in its call; a shell that remembers is read by bash, and stored behind a commit point, on a disk that all
// workers of the pool see, so that a session stays with no worker; a task of an MCP server is followed by the call that
// made it, and what outlives an attempt of that is the idempotency key, which is judged here for every call. Their
// deaths are cells of test/faults.
//
// An overlay is a list of changes in that store too, and an empty directory, by which a call knows where it runs. How a
// store compares and writes files is not played: package snapshot has its tests.
//
// A seed decides the scenario (agents, batches, people), the faults and, on the server in memory, the order of all
// steps. A history runs in a bubble of testing/synctest: its clock is virtual, and it ends when nothing of it runs any
// more.
//
// Each fence of the protocol can be taken away, and some history then breaks an invariant (teeth). Where random faults
// do not get there, the history is a directed one: its faults come at chosen steps.
package sim
