// Package partition turns the calls of a batch and their classes into groups: runs of calls that may execute together.
//
// A group is either safe (its calls are all READ_ONLY, and share the workspace's ticket) or holds one exclusive call.
// Groups run one after the other; that barrier is the dispatcher's work.
//
// The package is pure: classes in, groups out.
package partition

import (
	"slices"

	"github.com/toolyard/toolyard"
)

// Group is a run of calls that may execute together.
type Group struct {
	// Safe says that every call of the group is READ_ONLY, so that it can share the workspace. Whether calls run side
	// by side is a matter of length: the sequential strategies make groups of one call, safe or not. The zero value
	// is the strict one: alone in the workspace.
	Safe bool
	// Calls are indexes into the batch, in emission order. Never empty in a group that this package made.
	Calls []int
}

// Groups partitions a whole batch. classes[i] is the class of call i; anything but exactly READ_ONLY is exclusive. An
// unknown strategy, the empty one too, means sequential: the one that runs nothing beside anything. (The empty
// strategy of a batch is filled in by its Normalize, long before.) No calls make no groups.
func Groups(strategy toolyard.Strategy, classes []toolyard.Class) []Group {
	var groups []Group
	first := Group{Safe: true} // of safe_first
	for i, class := range classes {
		last := len(groups) - 1
		switch {
		case strategy == toolyard.SafeFirst && class.Safe():
			first.Calls = append(first.Calls, i)
		case strategy == toolyard.Consecutive && class.Safe() && last >= 0 && groups[last].Safe:
			groups[last].Calls = append(groups[last].Calls, i)
		default: // sequential and ordered_halt differ in when they stop, not in their groups
			groups = append(groups, Group{Safe: class.Safe(), Calls: []int{i}})
		}
	}
	if len(first.Calls) > 0 {
		groups = slices.Insert(groups, 0, first)
	}
	return groups
}
