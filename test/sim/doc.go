// Package sim plays whole histories of the real code: dispatchers, workers, clients, the pipeline and the HTTP API,
// each party with its own connection of nats.go. Nothing of ours is modelled. What is fake is the NATS server, the
// tools and the people.
//
// A seed decides the scenario (agents, batches, people), the faults and, on the server in memory, the order of all
// steps. A history runs in a bubble of testing/synctest: its clock is virtual, and it ends when nothing of it runs any
// more.
//
// Each fence of the protocol can be taken away, and some history then breaks an invariant (teeth). Where random faults
// do not get there, the history is a directed one: its faults come at chosen steps.
package sim
