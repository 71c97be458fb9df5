package broker

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/shard"
)

// Worker is a worker's entry: the value of its registry key.
type Worker struct {
	ID         string               `json:"id"`
	Pool       toolyard.Pool        `json:"pool"`
	Classes    []toolyard.Class     `json:"classes"`
	Workspaces []toolyard.Workspace `json:"workspaces"`
	// Tags are what calls may ask for.
	Tags      []toolyard.Tag `json:"tags,omitempty"`
	Isolation string         `json:"isolation"`
	// NoIsolation says why it cannot isolate, and what an operator can do about that. Unsandboxed says that its
	// operator lets it run everything anyway.
	NoIsolation string `json:"no_isolation,omitempty"`
	Unsandboxed bool   `json:"unsandboxed,omitempty"`
	// Toolset is the hash of its tools' declarations, stored as a surface.
	Toolset string `json:"toolset"`
	// Remarks say which tools it leaves out or has altered, at most [registry.MaxRemarks].
	Remarks []registry.Remark `json:"remarks,omitempty"`
	Slots   int               `json:"slots"`
	// Busy is how many of the slots had a call when the heartbeat was sent.
	Busy    int       `json:"busy,omitempty"`
	Started time.Time `json:"started"`
	// Host is the name of the machine it runs on, and Tools how many tools it offers.
	Host  string `json:"host,omitempty"`
	Tools int    `json:"tools,omitempty"`
	// Version and WireVersion are those of its program. Beat sets them.
	Version     string `json:"version,omitempty"`
	WireVersion int    `json:"wire_version,omitempty"`
	// Shards is how many shards it knows of; 0 is 1. Only are those that it takes calls of; nil: all. Beat sets both.
	Shards int       `json:"shards,omitempty"`
	Only   shard.Set `json:"only_shards,omitempty"`
	// Breakers says until when each dependency is not tried that this worker found to be down.
	Breakers map[string]time.Time `json:"breakers,omitempty"`
	// Stalls is how many calls were in the queue for over a second although this worker had room and had asked for
	// calls.
	Stalls int `json:"stalls,omitempty"`
}

// maxWorkerCount bounds each number of an entry, so that the sums over all workers are numbers, whatever a broken or
// hostile worker says.
const maxWorkerCount = 1 << 30

// Bound takes numbers that no worker has for the nearest ones that one may have. Who reads an entry does it first.
func (w *Worker) Bound() {
	for _, n := range []*int{&w.Slots, &w.Busy, &w.Tools, &w.Stalls, &w.Shards} {
		*n = min(max(0, *n), maxWorkerCount)
	}
}

// WorkerChange is an event of a watch of the registry. One of ID and State is set.
type WorkerChange struct {
	ID string
	// Worker is the entry; nil if the worker is gone, or its entry cannot be read.
	Worker *Worker
	// Revision is that of the entry: it grows with each heartbeat. 0 if the entry vanished while there was no watch.
	Revision uint64
	State    WatchState
}

// WatchState says whether the reports of a watch are complete.
type WatchState string

// The states of a watch.
const (
	// WatchDeaf: the connection is lost, or the watch restarts. Earlier reports may be outdated, and missing ones mean
	// nothing.
	WatchDeaf WatchState = "deaf"
	// WatchCaughtUp: everything that existed when the watch started or restarted has been reported.
	WatchCaughtUp WatchState = "caught up"
)

// Youngest returns of each pool the worker that was started last, by pool. Where the workers of a pool differ, as while
// it is being replaced, it speaks for the pool.
func Youngest(live iter.Seq[Worker]) []Worker {
	of := map[toolyard.Pool]Worker{}
	for w := range live {
		y, ok := of[w.Pool]
		if !ok || cmp.Or(w.Started.Compare(y.Started), cmp.Compare(w.ID, y.ID)) > 0 {
			of[w.Pool] = w
		}
	}
	return slices.SortedFunc(maps.Values(of), func(x, y Worker) int { return cmp.Compare(x.Pool, y.Pool) })
}
