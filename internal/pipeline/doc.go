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
// The pipeline decides what a call's result is, never whether it counts: that is the log's matter. [Job].Start says
// whether the call may start, and [ErrLost], as its error or as the cause of the context, says that somebody else
// answers for the call by now: then [Pipeline.Run] returns that error and no result. The class of a call is pinned at
// plan ([Job].Judgement); it is not judged again here, but for an input that a hook has changed, whose class may only
// be as loose as the pinned one.
//
// # What runs and what is seen
//
// Behind parse_schema everything works on the canonical form of the input: check, hooks, permission and the tool read
// the same bytes, whatever the model wrote twice or in another order. Hooks and watchers get a redacted copy; what a
// hook sends back unchanged is restored from the original, so that a redaction mark never runs.
//
// # Failure
//
// Run never panics and never waits for a tool that ignores its context: code that is not ours runs in its own
// goroutine, is waited for until its context ends and for [Pipeline].Grace after that, and is then left behind and
// counted ([Pipeline.Leaked]). Such a goroutine may still act; [tool.Env].CommitPoint refuses it, as far as it asks.
package pipeline
