// Package version has the version of what this build writes for other processes, and that of the build itself.
package version

import "runtime/debug"

// Wire is the version of what this build writes for other processes to read: events, work messages, keys and
// settings. Each event names the version that wrote it, and so do the streams' metadata and the workers' entries. A
// build reads what its own and every older version wrote; what a newer one wrote and it does not know it leaves to one
// that does (docs/adr/0023).
//
// Whoever changes what is written raises it in the same commit, and adds a line. TestWireForms finds it when that was
// forgotten.
//
//	1  2026-11-22  The first that is written down. What names no version was written before, since 2026-11-21.
//	2  2026-11-22  A worker's entry says which tools it leaves out or has altered.
//	3  2026-11-22  Calls carry the name that the model used, judgements why there is none, waiting calls what they would
//	               change, and surfaces which tools the operator defers.
//	               The operator's rules in a plan, which older dispatchers would drop; the decision that supersedes; checks of edits.
//	4  2026-11-23  Calls are queued and end in items: a start lists them, and events of an item name their calls.
//	5  2026-11-23  A worker's entry says its host, how many tools it offers, and how many of its slots have a call.
//	6  2026-11-23  A ticket may be for several groups, and a plan may start its first group under one.
//	7  2026-11-23  Workers have tags; batches, tools and calls to run ask for them. Batches have a priority.
//	8  2026-11-23  A session says how far it was interrupted. Plans have inputs that were mended.
//	9  2026-11-23  The chains of an archived batch end in fences, and its batch chain names the object that has its log.
const Wire = 9 + yetToCome

// Archives is the version from which on a process can read archived batches.
const Archives = 9

const modulePath = "github.com/toolyard/toolyard"

// Build is the version of Toolyard in this program, as the build has it: a tag, or a time and a commit. It is "(devel)"
// when the build does not say.
func Build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(devel)"
	}
	return buildOf(info)
}

// buildOf looks for this module: it is the program's own, or one that the program is made with.
func buildOf(info *debug.BuildInfo) string {
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Replace != nil {
			m = &debug.Module{Path: m.Path, Version: m.Replace.Version}
		}
		if m.Path == modulePath && m.Version != "" {
			return m.Version
		}
	}
	return "(devel)"
}
