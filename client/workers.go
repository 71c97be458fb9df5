package client

import (
	"context"
	"time"

	"github.com/toolyard/toolyard"
)

// Worker is a live worker as it describes itself.
type Worker struct {
	ID         string               `json:"id"`
	Pool       toolyard.Pool        `json:"pool"`
	Classes    []toolyard.Class     `json:"classes"`
	Workspaces []toolyard.Workspace `json:"workspaces"`
	Isolation  string               `json:"isolation"`
	Slots      int                  `json:"slots"`
	Started    time.Time            `json:"started"`
	// Version is its program's; WireVersion is that of what it writes, and the newest that it reads.
	Version     string `json:"version"`
	WireVersion int    `json:"wire_version"`
	// Breakers says until when each dependency that the worker found to be down is not tried.
	Breakers map[string]time.Time `json:"breakers"`
}

// Workers returns the live workers, by id.
func (c *Client) Workers(ctx context.Context) ([]Worker, error) {
	return c.t.workers(ctx)
}
