// Package dispatcher takes batches and runs them: the shell around package batch.
//
// Authority: the log. A dispatcher owns a batch from its own planned or adopted event until another's adopted event;
// it learns that it lost one by an append that conflicts, and then it stops. It holds nothing that the
// log does not say, so that any dispatcher can go on with any batch.
//
//	submission ─▶ admit ─▶ take ─▶ plan ─▶ [ drive ─▶ observe ]* ─▶ settle or park
//
// Each step has a file of its name:
//
//	admit    receives a delivery; its batch waits for its agent's turn, or is rejected. It starts the batch in take.
//	take     decides what the delivery asks for, becomes the owner, and hands the batch to drive. How that ended
//	         decides whether the batch is over here, tried again, left to a newer dispatcher, or given up.
//	drive    is the loop: it steps the batch's machine, performs the effects in their order, and waits for news.
//	observe  returns the news: live copies of events, what the log has beyond them, what became of workers.
//	plan     returns the event that plans a batch, for take, or calls that were appended to it, for drive.
//	park     releases a batch that waits for a person, and wakes such batches.
//	settle   releases a batch that is complete, or ends one that cannot go on.
//
// Calls go down this list only, and from it to what the steps share: keep (the delivery by which a batch is kept),
// queue, store, workers and planner. What a step finds out goes back as a result. internal/archtest holds the order.
//
// Ordering: agents take turns at starting batches; those that were planned before go first. One goroutine a batch;
// effects are performed in the machine's order, each before the next.
//
// Failure: whatever happens to a dispatcher, its submissions are delivered to another when the ack wait is over. An
// error that is not a loss stops one batch and is logged; the batch is tried again by redelivery.
package dispatcher
