// Package builtin is the toolset that every pool has: read_file, glob, grep, write_file, edit_file, bash, web_fetch and
// read_result.
//
// # Authority
//
// The file tools act on the directory of the batch's workspace and on nothing else. A path goes through two fences: the
// resolver in resolve.go follows it one name at a time and says in the model's terms what is wrong with it, and
// [os.Root] then performs the operation and refuses whatever leaves the directory, also when names are swapped in
// between. Neither looks at anything outside, so no message can tell whether something exists there. What the fences do
// not stop: hard links and mounts that somebody with rights on the machine put into the directory.
//
// web_fetch reaches public addresses only; the address is checked when it is dialed, after the name was resolved. bash
// starts nothing unless internal/sandbox can isolate it.
//
// # Ordering
//
// Check is validate_values: it looks and changes nothing. Run repeats what Check found, because the world may have
// moved since. A write becomes visible by one rename, right after the worker confirmed that it may still act.
//
// # Failure
//
// What the model can mend is invalid_arguments and says how. A path or address that policy forbids is
// sandbox_violation. What only an operator can mend is setup_required. Causes, with paths of this machine, go into the
// error's Err, which the model never sees.
package builtin
