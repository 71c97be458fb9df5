// Package sandbox says what isolation this machine can put around a tool's process, and is the only way to start one.
//
// # Authority
//
// Whether a command may run on a worker is decided here and nowhere else: a tool that would start a process asks a
// [Sandbox] first and does without when it gets an error. Nothing in a batch, a tool's input or the environment loosens
// that; only the operator's own configuration of the worker chooses the backend.
//
// # The zero value is the strictest
//
// [Refuse] is the zero backend: it isolates nothing and therefore permits nothing. The zero [Capabilities] claim
// nothing. Code that forgets to choose, or that ignores an error, ends at a refusal and never at an unprotected
// process.
//
// # Failure
//
// An error of Probe is about the machine and not about the call: tools report it as setup_required, with the error's
// own text (what is missing, and in one line how to get it) for the operator and a plain sentence for the model.
package sandbox
