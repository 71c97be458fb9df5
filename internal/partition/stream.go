package partition

import (
	"slices"

	"github.com/toolyard/toolyard"
)

// Partitioner groups calls as they come. Each group of [Partitioner.Groups] is in one of three states, and the states
// come in this order along the list:
//
//   - final: no later call can extend it or come before it. There are [Partitioner.Final] of them.
//   - startable, still open: its calls may start now, and later calls may join it. It is safe, and there is at most
//     one. [Partitioner.Startable] counts it and the final ones.
//   - pending: a later call may still come before it. Only safe_first has such groups, and only until
//     [Partitioner.Close].
//
// The place of a startable group in the list never changes, and its calls never leave it. After Close every group is
// final, and the groups are those that the function [Groups] gives for all the calls.
//
// A Partitioner is not safe for concurrent use.
type Partitioner struct {
	strategy toolyard.Strategy
	calls    int
	closed   bool

	// groups is the result so far; under safe_first it holds the exclusive groups only, and safe the one safe group.
	groups []Group
	safe   Group
}

// New returns an empty Partitioner. An unknown strategy, the empty one too, means sequential.
func New(strategy toolyard.Strategy) *Partitioner {
	switch strategy {
	case toolyard.Consecutive, toolyard.SafeFirst:
	default: // sequential and ordered_halt differ in when they stop, not in their groups
		strategy = toolyard.Sequential
	}
	return &Partitioner{strategy: strategy, safe: Group{Safe: true}}
}

// Add takes the next call and returns its index, counted from 0. It panics after Close: a closed batch takes no calls,
// and whoever adds one has lost track.
func (p *Partitioner) Add(class toolyard.Class) int {
	if p.closed {
		panic("partition: Add after Close")
	}
	i := p.calls
	p.calls++
	last := len(p.groups) - 1
	switch {
	case p.strategy == toolyard.SafeFirst && class.Safe():
		p.safe.Calls = append(p.safe.Calls, i)
	case p.strategy == toolyard.Consecutive && class.Safe() && last >= 0 && p.groups[last].Safe:
		p.groups[last].Calls = append(p.groups[last].Calls, i)
	default:
		p.groups = append(p.groups, Group{Safe: class.Safe(), Calls: []int{i}})
	}
	return i
}

// Close says that no more calls come: every group becomes final. Closing again does nothing.
func (p *Partitioner) Close() { p.closed = true }

// Len is the number of groups so far.
func (p *Partitioner) Len() int { return p.before() + len(p.groups) }

// Group returns the group at place i, 0 to Len-1. Its Calls are a view that later calls do not change: an open group
// that grows has to be read again.
func (p *Partitioner) Group(i int) Group {
	g := p.safe
	if n := p.before(); i >= n {
		g = p.groups[i-n]
	}
	g.Calls = slices.Clip(g.Calls)
	return g
}

// Groups returns all groups so far; nil when there are none. It is what the function [Groups] gives for the calls so
// far.
func (p *Partitioner) Groups() []Group {
	var all []Group
	for i := range p.Len() {
		all = append(all, p.Group(i))
	}
	return all
}

// Final is how many groups, from the first, no later call can extend or precede.
func (p *Partitioner) Final() int {
	n := p.Len()
	switch {
	case p.closed || n == 0 || p.strategy == toolyard.Sequential:
		return n
	case p.strategy == toolyard.SafeFirst:
		return 0 // a safe call may still come, and goes to the front
	case p.groups[n-1].Safe:
		return n - 1 // a safe call may still join it
	default:
		return n
	}
}

// Startable is how many groups, from the first, may be started now, each after the one before it is done. It is at
// least Final: the one more is the open safe group. Its calls may start; that it is done is known only when it is
// final.
func (p *Partitioner) Startable() int {
	if p.strategy == toolyard.SafeFirst && !p.closed {
		return p.before()
	}
	return p.Len()
}

// before is 1 when the safe group of safe_first stands before the others.
func (p *Partitioner) before() int {
	if len(p.safe.Calls) > 0 {
		return 1
	}
	return 0
}
