// Package sim plays whole histories of dispatchers, workers and agents over a model of JetStream, one for each seed: in
// one thread, without a clock, the same each time. What decides is the real code: batch.Machine, the fold of
// batch.State, and ticket.Queue, with the times of broker.Settings. What is modelled is what stands around them.
//
//	agents ── submit, append, cancel, follow ──┐
//	dispatchers ── accept, run, desk, roster ──┼── ask ──▶ server: streams, consumers, buckets, feeds, broadcasts
//	workers ── pull, claim, execute, finish ───┤
//	people ── watch the list, decide, wake ────┘
//	                     │
//	                     └──▶ ledger: what the tools did, which the invariants are judged by
//
// The parties are the shells of packages dispatcher and worker, and the append primitive and fold of package broker,
// written as steps: each request is one event at the server and one when its answer is back. Between any two of them
// the scheduler may lose, delay or repeat the message, or crash, pause or cut off a party, or stop the server. When a
// shell changes, its model here must change with it: the names are the same, so that they can be read side by side.
//
// A fence ([Fence]) is a guard of the design. Each can be taken away, and a test holds that some history then fails.
//
// # What is checked
//
// I1, I2, I3, I5 and I7 of the design are checked at every event, I4 over the ledger at the end; Q3, Q4, Q7 and Q10 are
// the finer ones of the same kind. "liveness" is that everything comes to rest within two minutes after the last fault,
// every batch complete, every message acknowledged, though deadlines are ten minutes away. "outcome_unknown" is that no
// result says so unless something happened to the call's worker, or to its messages.
//
// "approval" is that a call which needs a person begins only when one has allowed it, on the input that was allowed;
// "asked once" that nobody is asked about what was decided. "parked" is that an owner has given its ticket back when it
// parks a batch, that nothing of the batch is on its way then, and that a parked batch stands in nobody's way for long.
// I8 is that a batch which is not parked is kept by a message that nobody has acknowledged, so that it goes on whoever
// dies.
//
// # What exclusivity means here
//
// An exclusive execution lasts from its beginning, which is checked like a commit point, to its last passed commit
// point. What a tool does between two commit points, or between the last one and its return, is not counted: a worker
// that is paused there and wakes up may do it at any time. An execution that only reads lasts from its beginning to its
// end, whether its result was accepted or not. One whose result was refused does not count when its worker was paused
// meanwhile: nobody sees what it read.
//
// # What is not modelled
//
// Real planning and the pipeline's phases but as one delay and the question whether a person is needed; admission and
// lanes; sessions, what they remember, and the index; full streams, expired messages and batches, retention; clocks
// that differ; large objects; several pools and lanes; replicas that disagree (stale reads of tickets are, the rest is
// read through the leader); loss of what was acknowledged (a server that is killed forgets its last deliveries, and
// nothing else); a batch that is given up after many deliveries.
package sim
