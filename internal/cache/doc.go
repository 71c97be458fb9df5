// Package cache decides which calls are answered with the output of an earlier one.
//
// It has no clock and no state of its own beside what is kept: the time is an input. Package pipeline asks it where a
// call would be executed, after permission.
//
// # Why an output is still good
//
// A tool says in its declaration for how long its outputs may answer other calls, and for whom. Within that time only
// what holds the workspace exclusively changes what the tool reads. So each output is kept under the generation of the
// workspace that its call had: a call with the same generation runs under a shared ticket that no exclusive one stands
// between (package ticket). A generation that has passed does not come back. So it does not matter how late an output
// is kept: what was read after the workspace was changed is kept under a generation that nobody asks for any more.
package cache
