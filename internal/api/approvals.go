package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/toolyard/toolyard/client"
)

type approvalsInput struct {
	Agent string `query:"agent" doc:"Only calls of this agent."`
}

// Approvals are the calls that wait for a person.
type Approvals struct {
	Approvals []client.Approval `json:"approvals" doc:"The newest first, by when they were asked about; 10,000 at most."`
}

func (s *Server) approvals(ctx context.Context, x *exchange, in *approvalsInput) (*struct{ Body Approvals }, error) {
	agent, err := x.who.listed(in.Agent)
	if err != nil {
		return nil, err
	}
	list, err := s.cfg.Client.Approvals(ctx, agent)
	return &struct{ Body Approvals }{Approvals{append([]client.Approval{}, list...)}}, err
}

// WaitingCalls is how many calls wait for a person.
type WaitingCalls struct {
	Calls int `json:"calls" doc:"How many calls listApprovals would return."`
}

func (s *Server) waiting(ctx context.Context, x *exchange, in *approvalsInput) (*struct{ Body WaitingCalls }, error) {
	agent, err := x.who.listed(in.Agent)
	if err != nil {
		return nil, err
	}
	if s.cfg.Waiting == nil {
		return nil, newProblem(http.StatusNotFound, "", "this server does not count the calls that wait")
	}
	n, err := s.cfg.Waiting(ctx, agent)
	return &struct{ Body WaitingCalls }{WaitingCalls{n}}, err
}

type approvalPath struct {
	ID string `path:"id" doc:"The approval's id, as the list has it."`
}

// Decided says what was stored.
type Decided struct {
	ID       string         `json:"id"`
	Decision client.Verdict `json:"decision"`
}

func (s *Server) decide(ctx context.Context, x *exchange, in *approvalPath) (*struct{ Body Decided }, error) {
	k, index, err := client.ParseApprovalID(in.ID)
	if err != nil {
		return nil, err
	}
	x.of(k)
	x.did.Call, x.did.Approval = &index, in.ID
	if !x.who.speaksFor(k.Agent) {
		return nil, typed(client.ErrNoApproval, http.StatusNotFound, "id", "no such approval is waited for")
	}
	ctx, data, err := x.bodyFor(ctx, MaxSmallBodyBytes, false)
	if err != nil {
		return nil, err
	}
	d, err := decodeDecision(data)
	if err != nil {
		return nil, err
	}
	x.did.Decision, x.did.Reason = string(d.Verdict), d.Reason
	if d.Verdict == client.Allow && !x.who.any { // what runs the model may hold the agent's token
		return nil, newProblem(http.StatusForbidden, "",
			"an agent does not allow its own calls; use an operator's token")
	}
	d.By = x.who.name
	err = s.cfg.Client.Decide(ctx, in.ID, d)
	if errors.Is(err, client.ErrNoApproval) {
		st, ferr := s.fold(ctx, k)
		switch {
		case errors.Is(ferr, client.ErrNoBatch): // nor has it a call that waits
		case ferr != nil:
			return nil, ferr
		case index >= len(st.Calls) || st.Calls[index].Asked == nil && st.Calls[index].Result == nil: // it never waited
		case st.Calls[index].Result != nil:
			err = typed(err, http.StatusGone, "id", "%v", err)
		default:
			err = typed(err, http.StatusConflict, "id", "%v", err)
		}
	}
	if err != nil {
		return nil, err
	}
	return &struct{ Body Decided }{Decided{in.ID, d.Verdict}}, nil
}
