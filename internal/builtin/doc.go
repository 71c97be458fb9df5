// Package builtin is the toolset that every pool has: read_file, glob, grep, write_file, edit_file, bash, web_fetch and
// read_result.
//
// # Authority
//
// The file tools act only on the directory of the batch's workspace. Two checks protect it. The resolver in resolve.go
// follows a path one name at a time and explains errors in the model's terms. [os.Root] then performs the operation and
// refuses everything that leaves the directory, even if names are replaced in between. Neither accesses anything
// outside, so no message reveals whether something exists there. They do not stop hard links and mounts that a user of
// the machine put into the directory.
//
// web_fetch reaches public addresses only; the address is checked when it is dialed, after the name was resolved. bash
// starts nothing unless internal/sandbox can isolate it.
//
// # Ordering
//
// Check is validate_values: it reads and changes nothing. Run repeats Check's work, because files may have changed
// since. A write becomes visible by one rename, directly after the worker confirmed that it may still act.
//
// # Failure
//
// An error that the model can correct is invalid_arguments and says how. A path or address that policy forbids is
// sandbox_violation. An error that only an operator can correct is setup_required. Causes, with paths of this machine,
// go into the error's Err, which the model never sees.
package builtin
