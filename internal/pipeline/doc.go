// Package pipeline takes one call through the twelve phases, from its tool's name to its terminal result.
//
// # The table
//
// The phases are rows of one table (table.go), in the order of [toolyard.Phases]. Each leaves a fact. The first
// failure ends the call with its code; post_hooks run whenever execute started; emit_terminal always runs. A row
// lists the codes that its phase may end with, and any other one becomes internal_error: the set of codes is a
// promise to models and programs.
//
// # Authority
//
// The pipeline decides what a call's result is. Whether the result counts is decided in the log. [Job].Start says
// whether the call may start. [ErrLost], as its error or as the cause of the context, says that another process now
// answers for the call: then [Pipeline.Run] returns that error and no result. The class of a call is pinned at plan
// ([Job].Judgement). It is judged again here only for an input that a hook has changed, and may then not be stricter
// than the pinned class.
//
// # What runs and what is seen
//
// After parse_schema every phase works on the canonical form of the input: check, hooks, permission and the tool read
// the same bytes, whatever the model wrote twice or in another order. Hooks and watchers get a redacted copy. What a
// hook returns unchanged is restored from the original, so that a redaction mark never runs.
//
// # Failure
//
// Run never panics, and never waits for a tool that ignores its context. Foreign code runs in its own goroutine. Run
// waits for it until its context ends and for [Pipeline].Grace after that, and then abandons and counts it
// ([Pipeline.Leaked]). Such a goroutine may still act; [tool.Env].CommitPoint refuses it if it asks.
package pipeline
