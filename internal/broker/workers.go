package broker

import (
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/registry"
)

// Worker is what a worker says of itself: the value of its registry key.
type Worker struct {
	ID         string               `json:"id"`
	Pool       toolyard.Pool        `json:"pool"`
	Classes    []toolyard.Class     `json:"classes"`
	Workspaces []toolyard.Workspace `json:"workspaces"`
	Isolation  string               `json:"isolation"`
	// NoIsolation says why it isolates nothing, and what an operator can do about that; Unsandboxed that its operator
	// has it run everything all the same.
	NoIsolation string `json:"no_isolation,omitempty"`
	Unsandboxed bool   `json:"unsandboxed,omitempty"`
	// Toolset is the hash of its tools' declarations, stored as a surface.
	Toolset string `json:"toolset"`
	// Remarks say which tools it leaves out or has altered, at most [registry.MaxRemarks].
	Remarks []registry.Remark `json:"remarks,omitempty"`
	Slots   int               `json:"slots"`
	Started time.Time         `json:"started"`
	// Version and WireVersion are those of its program. Beat fills them in.
	Version     string `json:"version,omitempty"`
	WireVersion int    `json:"wire_version,omitempty"`
	// Breakers says until when each dependency that this worker found to be down is not tried.
	Breakers map[string]time.Time `json:"breakers,omitempty"`
	// Stalls is how many calls it has found to have lain in the queue for over a second, though it had room and asked
	// for calls.
	Stalls int `json:"stalls,omitempty"`
}

// WorkerChange is what a watch of the registry tells. One of ID and State is set.
type WorkerChange struct {
	ID string
	// Worker is the entry; nil when the worker is gone, or its entry cannot be read.
	Worker *Worker
	// Revision is that of the entry: it grows with each heartbeat. 0 when the entry has vanished while nobody watched.
	Revision uint64
	State    WatchState
}

// WatchState says how far what a watch has told can be trusted.
type WatchState string

// The states of a watch.
const (
	// WatchDeaf: the connection is lost, or the watch is begun anew. What it told may be out of date, and what it did
	// not tell means nothing.
	WatchDeaf WatchState = "deaf"
	// WatchCaughtUp: all that was there when the watch began, or began anew, was told.
	WatchCaughtUp WatchState = "caught up"
)
