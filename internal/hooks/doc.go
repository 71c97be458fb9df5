// Package hooks runs an installation's own programs around a call: before it, after it, and after a whole batch.
//
// A hook is Go code ([Func]), a command or an HTTP endpoint (both from a [Config]). Commands and endpoints speak the
// format of the hooks of Claude Code, so that scripts which people already have run unchanged; docs/hooks.md has every
// field. A [Set] is all hooks of an installation. It matches, orders, bounds and combines them, and implements
// [pipeline.Hooks].
//
//	event ─▶ matcher, if ─▶ hook 1 ─▶ hook 2 ─▶ … ─▶ combine ─▶ verdict
//
// Order: hooks run one after the other, Go code first, then in the order of the configuration. Each sees the input, or
// the output, as the one before has left it, so what two hooks change does not depend on which was faster. All of them
// run, whatever the others said: who audits behind somebody who blocks wants to know.
//
// Together: a block beats everything, deny beats ask, ask beats allow. What hooks add for the model is put together.
//
// Frozen: a hook gets a copy, and what it changes there changes nothing. What an event was not given to change it can't
// change: such an answer is broken. So is one that sends a text back changed of which it saw only a part, because
// secrets were taken out of it or it was cut.
//
// Failure: a hook that does not start, does not answer in time, answers what cannot be read or panics is broken. What
// follows is its OnFailure, and for a hook before the call that is to block unless the operator says otherwise.
package hooks
