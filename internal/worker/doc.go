// Package worker takes calls from the work queues of its pool and runs them: the shell around package pipeline.
//
// Authority: the log. A worker may execute a call that needs a claim only after its own claimed event is stored, and
// its result counts only when its finished event is: both are appended behind what the worker was told, and a
// conflict means that somebody else has answered. Being handed a message gives no right to anything.
//
//	take ─▶ resolve … permission ─▶ claim ─▶ execute … persist ─▶ finished ─▶ acknowledge
//	└──────────── lease: kept by answered heartbeats, checked at commit points ───────────┘
//
// One message goes through these files:
//
//	take      asks a lane for messages while slots are free, and runs their calls in slots (slots), or gives them back.
//	run       takes a call to its result: it looks whether this worker can run it, has the pipeline run it, and decides
//	          what is stored.
//	drain     settles a call that this worker had to give up.
//	message   keeps a message's lease, and acknowledges it, or gives it back, when all of its calls are over.
//	job       says to the pipeline what the call is. The pipeline calls back for the claim and at commit points.
//	finish    appends what came of the call, and makes the results that no tool made.
//	claim     finds out what became of the call before, and claims it.
//	lease     says whether the worker may act for the call, and proves it again.
//	call      is a call that this worker has, and which it has.
//	chain     is the chain of events of a message's item. It makes one append at a time: results that become ready
//	          meanwhile go together.
//
// Calls go down this list only; internal/archtest holds the order. register keeps the worker itself registered.
//
// Ordering: each class has slots, and each slot runs one call at a time. Agents queue in lanes, which are served
// side by side: each holds a few messages at most that wait for a slot, and slots are given to the agents of these in
// turn.
//
// Failure: when the worker dies, the message is delivered to another, who finds the claim or runs the call. When the
// worker cannot renew its delivery, it stops the tool before anyone else may act.
package worker
