// Package membroker is a NATS server with JetStream in memory, for simulations in testing/synctest bubbles and for fast
// tests. It speaks the client protocol, so nats.go and all of our code above it run on it unchanged. The real
// nats-server decides how it behaves: package brokertest runs the same cases on both.
//
// Authority: the server's one lock guards everything: streams, consumers, subscriptions and what is on its way.
//
// Ordering: what clients send and what the server sends to them are steps. A scheduler waits until every party is
// blocked, sorts what is pending by party and connection, picks one by a seed, performs it, and begins again. So a run
// depends on its seed and not on which goroutine ran first. The steps of one connection and direction keep their order,
// as NATS promises. Everything that follows from an operation at the server (storing, answering, republishing,
// delivering to consumers) belongs to its step; each delivery to a client is a step of its own.
//
// Failure: the server fails only as it is told to: see the methods in faults.go. A limit that is passed ends the run.
//
// In a bubble, every party, server and timer must be of that bubble. nats.go keeps timers in a pool of the process,
// and a timer of one bubble must not be used in another: [Bubble] runs a test in a bubble by itself, with that pool
// empty. What nats.go chooses at random from the process's source stays random: give connections
// nats.CustomReconnectDelay where a run with lost connections is to be repeated exactly.
package membroker
