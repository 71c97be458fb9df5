// Package stage is the inside of a sandbox: the first process of its namespaces, which builds the root, drops all
// rights, starts the command, and ends with it.
//
// It is this program, executed again under the name [Name] with a socket as file descriptor [Socket]. Go runs a
// package's init before anything in main, and that of a package with few imports before nearly all others. For this
// reason the stage runs in this package's init and not behind a call in main. From main, it would first wait for the
// initialisation of everything that the commands link, which takes longer than all its own work.
//
// Under the name [SpawnerName] it is a small process beside the worker that only starts stages.
//
// # Authority
//
// None. It does what the worker's [Spec] says; it decides nothing and reads nothing else: no argument, no environment,
// no file.
//
// # Ordering
//
//	read the spec ─▶ mounts ─▶ drop rights ─▶ Landlock, filter ─▶ verify the layers ─▶ unpack what was kept ─▶
//	report ready ─▶ wait for Go ─▶ start the command ─▶ reap, meter ─▶ kill the rest ─▶ pack what is kept ─▶ report
//	how it ended
//
// The command starts only after the layers are verified and reported, and the worker has sent [Go]. So a worker that
// has not sent it knows that nothing has run.
//
// # Failure
//
// If a step fails, the stage reports its name and error, and runs nothing. When the socket closes, the worker is dead
// and the stage exits; the kernel then kills every process of its namespace.
package stage
