// Package hooks runs an installation's own programs around a call: before it, after it, and after a whole batch.
//
// A hook is Go code ([Func]), a command, an HTTP endpoint or a tool of an MCP server (these from a [Config], in the
// format of Claude Code's hooks, so that existing scripts run unchanged). docs/hooks.md has every field. A [Set] is all
// hooks of an installation. It matches, orders, bounds and combines them, and implements [pipeline.Hooks].
//
//	event ─▶ matcher, if ─▶ hook 1 ─▶ hook 2 ─▶ … ─▶ combine ─▶ verdict
//
// Order: hooks run one after the other, Go code first, then in the order of the configuration. Each sees the input or
// output as the one before has left it, so that the result does not depend on which hook is faster. All of them run,
// whatever the others answered, because an audit hook must also see calls that another hook blocks.
//
// Combination: a block beats everything, deny beats ask, ask beats allow. What hooks add for the model is joined.
//
// Copies: a hook gets a copy, and changing the copy has no effect. An answer that changes what its event does not
// permit is broken. So is one that changes a string of which the hook saw only a part, because secrets were removed
// from it or it was cut.
//
// Failure: a hook that does not start, does not answer in time, gives an unreadable answer or panics is broken. Its
// OnFailure says what happens then; a broken hook before the call blocks it unless the operator says otherwise.
package hooks
