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
	// Breakers says until when each dependency that the worker found to be down is not tried.
	Breakers map[string]time.Time `json:"breakers"`
}

// Workers returns the live workers, by id.
func (c *Client) Workers(ctx context.Context) ([]Worker, error) {
	live, err := c.b.Workers(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Worker, len(live))
	for i, w := range live {
		out[i] = Worker{
			ID: w.ID, Pool: w.Pool, Classes: w.Classes, Workspaces: w.Workspaces, Isolation: w.Isolation,
			Slots: w.Slots, Started: w.Started, Breakers: w.Breakers,
		}
	}
	return out, nil
}
