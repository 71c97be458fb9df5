package client

import (
	"context"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/registry"
)

// Worker is a live worker as it describes itself.
type Worker struct {
	ID         string               `json:"id"`
	Pool       toolyard.Pool        `json:"pool"`
	Classes    []toolyard.Class     `json:"classes"`
	Workspaces []toolyard.Workspace `json:"workspaces"`
	// Tags are what batches and tools may ask of it.
	Tags []toolyard.Tag `json:"tags,omitempty"`
	// Isolation is what the worker puts around commands; none is nothing. NoIsolation says why, and what its operator
	// can do; an agent's token does not see it. Unsandboxed says that commands run there without isolation.
	Isolation   string `json:"isolation"`
	NoIsolation string `json:"no_isolation,omitempty"`
	Unsandboxed bool   `json:"unsandboxed,omitempty"`
	Slots       int    `json:"slots"`
	// Busy is how many of the slots had a call at the last heartbeat, and Tools how many tools the worker offers.
	Busy  int `json:"busy"`
	Tools int `json:"tools"`
	// Host is the name of the machine it runs on. An agent's token does not see it.
	Host    string    `json:"host,omitempty"`
	Started time.Time `json:"started"`
	// Version is its program's; WireVersion is that of what it writes, and the newest that it reads.
	Version     string `json:"version"`
	WireVersion int    `json:"wire_version"`
	// Shards are those that it takes calls of, if these are not all.
	Shards []int `json:"shards,omitempty"`
	// Breakers says until when each dependency that the worker found to be down is not tried.
	Breakers map[string]time.Time `json:"breakers"`
	// Remarks say which tools the worker leaves out or has altered, 64 at most. An agent's token does not see them.
	Remarks []Remark `json:"remarks,omitempty"`
	// Conflicts says of each name of its tools that another pool, or another origin, offers too who does.
	Conflicts []string `json:"conflicts"`
}

// Remark says that a tool is not offered, or not as its author declared it, and why.
type Remark struct {
	Tool    string `json:"tool"`
	LeftOut bool   `json:"left_out,omitempty"`
	Why     string `json:"why"`
}

// String is the remark as one line.
func (r Remark) String() string { return registry.Remark(r).String() }

// Workers returns the live workers, by id.
func (c *Client) Workers(ctx context.Context) ([]Worker, error) {
	return c.t.workers(ctx)
}
