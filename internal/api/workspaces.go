package api

import (
	"context"
	"net/http"

	"github.com/toolyard/toolyard"
)

const (
	// MaxWorkspaces is how many workspaces one answer has at most, and MaxTickets how many tickets of each.
	MaxWorkspaces = 1_000
	MaxTickets    = 100
)

// WorkspaceQueue is the tickets of one workspace.
type WorkspaceQueue struct {
	Workspace toolyard.Workspace `json:"workspace" doc:"The workspace's name."`
	Length    int                `json:"length" doc:"How many tickets the queue has."`
	Tickets   []WorkspaceTicket  `json:"tickets" doc:"The first ones, in order; 100 at most."`
}

// WorkspaceTicket is the place of one batch in a queue.
type WorkspaceTicket struct {
	Number  uint64           `json:"number" doc:"Its number, the fencing token of its group."`
	Agent   toolyard.Agent   `json:"agent" doc:"The agent whose batch it is."`
	Batch   toolyard.BatchID `json:"batch" doc:"The batch's id."`
	Group   int              `json:"group" doc:"The index of the group in the batch."`
	Mode    string           `json:"mode" enum:"shared,exclusive,named" doc:"Whether the group holds the workspace together with others or alone, or only what it names."`
	Granted bool             `json:"granted" doc:"It holds the workspace. The others wait."`
}

// Workspaces are those that are in use.
type Workspaces struct {
	Workspaces []WorkspaceQueue `json:"workspaces" doc:"By name; 1,000 at most."`
}

func (s *Server) workspaces(ctx context.Context, x *exchange, _ *nothing) (*struct{ Body Workspaces }, error) {
	if !x.who.any {
		return nil, newProblem(http.StatusForbidden, "",
			"workspaces may be any agent's; use an operator's token")
	}
	if s.cfg.Workspaces == nil {
		return nil, newProblem(http.StatusNotFound, "", "this server does not know the workspaces")
	}
	list, err := s.cfg.Workspaces(ctx, MaxWorkspaces)
	return &struct{ Body Workspaces }{Workspaces{append([]WorkspaceQueue{}, list...)}}, err
}
