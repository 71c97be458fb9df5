// Package stage is the inside of a sandbox: the first process of its namespaces, which builds the root, takes every
// right away from itself, starts the command, and ends with it.
//
// It is this very program, executed again under the name [Name] with a socket as file descriptor [Socket]. Go runs a
// package's init before anything in main, and that of a package with few imports before those of nearly all others:
// that is why the stage lives here, in an init of its own, and not behind a call in main. Started from main, it would
// first wait for the initialisation of everything that the commands link, which takes longer than all else it does.
//
// Under the name [SpawnerName] it is a small process beside the worker that starts stages, and nothing else.
//
// # Authority
//
// None. What it does is spelled out in the [Spec] that the worker sends; it decides nothing and reads nothing else: no
// argument, no environment, no file.
//
// # Ordering
//
//	read the spec ─▶ mounts ─▶ drop rights ─▶ Landlock, filter ─▶ look at itself ─▶ say that all is ready ─▶ wait for the word
//	─▶ start the command ─▶ reap, meter ─▶ say how it ended
//
// Nothing of the command runs before the look at itself has found everything in place, that is reported, and the worker
// has said to start it. So who has not said that knows that nothing has run.
//
// # Failure
//
// A step that fails is reported by its name and error, and nothing runs. When the socket closes, the worker is dead and
// the stage exits; the kernel then kills every process of its namespace.
package stage
