// Package sandbox says how this machine can isolate a tool's process, and is the only way to start one.
//
// # Authority
//
// # Authority
//
// Only this package decides whether a command may run on a worker: a tool that would start a process asks a [Sandbox]
// first, and runs nothing if it gets an error. Nothing in a batch, a tool's input or the environment loosens that; only
// the operator's configuration of the worker selects the backend.
//
// # The zero value is the strictest
//
// [Refuse] is the zero backend: it isolates nothing and therefore runs nothing. The zero [Capabilities] claim nothing.
// Code that selects no backend, or that ignores an error, gets a refusal and never an unprotected process.
//
// # Failure
//
// An error of Probe is about the machine and not about the call: tools report it as setup_required, with the error's
// own text (what is missing, and in one line how to get it) for the operator and a plain sentence for the model.
package sandbox
