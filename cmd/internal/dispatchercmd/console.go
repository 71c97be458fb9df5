package dispatchercmd

import (
	"context"
	"net/http"

	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/console"
)

// openConsole has the HTTP API's server answer with the pages of the web console too.
func openConsole(s *api.Server) error {
	files, err := console.Files()
	if err != nil {
		return err
	}
	for path, answer := range files {
		s.Open(http.MethodGet, path, answer)
	}
	return nil
}

// workspaces reads who holds and waits for each workspace.
func (n *node) workspaces(ctx context.Context, most int) ([]api.WorkspaceQueue, error) {
	list, err := n.broker.AllTickets(ctx, most)
	if err != nil {
		return nil, err
	}
	out := make([]api.WorkspaceQueue, len(list))
	for i, q := range list {
		out[i] = api.WorkspaceQueue{Workspace: q.Workspace, Length: len(q.Tickets), Tickets: []api.WorkspaceTicket{}}
		for _, t := range q.Tickets[:min(len(q.Tickets), api.MaxTickets)] {
			_, granted := q.Granted(t.Holder, t.Mode)
			out[i].Tickets = append(out[i].Tickets, api.WorkspaceTicket{Number: t.N, Agent: t.Agent, Batch: t.Batch,
				Group: t.Group, Mode: string(t.Mode), Granted: granted})
		}
	}
	return out, nil
}
