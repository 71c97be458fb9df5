package api

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/provider"
)

// Open batches. No process holds one: each request reads what was appended so far, and appends behind exactly that.

// Appended says where appended calls stand in the batch.
type Appended struct {
	ID    toolyard.BatchID `json:"id" doc:"The batch's id."`
	First int              `json:"first" doc:"The index of the first of these calls."`
	Calls int              `json:"calls" doc:"How many calls the batch has up to and with these."`
}

type appendAnswer struct {
	Status int
	Body   Appended
}

func (s *Server) appendCalls(ctx context.Context, x *exchange, in *BatchPath) (*appendAnswer, error) {
	k, err := x.key(*in)
	if err != nil {
		return nil, err
	}
	leave, err := enter(s.submissions, x.who)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, data, err := x.bodyFor(ctx, MaxBodyBytes, false)
	if err != nil {
		return nil, err
	}
	calls, form, err := decodeCalls(data)
	if err != nil {
		return nil, err
	}
	handsIn(&x.did, calls)
	if err := x.who.calls(calls); err != nil {
		return nil, err
	}
	unnamed := func(c toolyard.Call) bool { return c.ID == "" }
	if slices.ContainsFunc(calls, unnamed) || provider.Unnamed(form, calls) {
		x.doubles = theBatch
	}
	// Ids that were made for calls without one are this request's own. Had they counted on behind the calls of the
	// batch, another server could count the same, and one append would be taken for the other, sent again.
	provider.Rename(form, calls, uuid.NewString())
	done, err := s.cfg.Reader.Turn(ctx, k.Agent)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := s.appends(ctx, x.who, k); err != nil {
		return nil, err
	}
	first, err := s.cfg.Client.Reopen(k).AppendAt(ctx, calls...)
	if err != nil {
		return nil, s.unopened(k, err)
	}
	return &appendAnswer{http.StatusAccepted, Appended{ID: k.ID, First: first, Calls: first + len(calls)}}, nil
}

// appends refuses to append to a batch in a workspace that the token may not use.
func (s *Server) appends(ctx context.Context, who caller, k toolyard.BatchKey) error {
	if len(who.grant.workspaces) == 0 {
		return nil
	}
	sub, err := s.cfg.Reader.Submission(ctx, k)
	if err != nil {
		return s.unopened(k, err)
	}
	return who.workspace(sub.Workspace)
}

// unopened is the answer to an append that failed.
func (s *Server) unopened(k toolyard.BatchKey, err error) error {
	switch {
	case errors.Is(err, client.ErrNoBatch):
		return s.missing(k, err)
	case errors.Is(err, client.ErrNotOpened):
		return typed(err, http.StatusConflict, "id", "batch %s was submitted whole, not opened", k)
	}
	return err
}

func (s *Server) closeBatch(ctx context.Context, x *exchange, in *BatchPath) (*batchAnswer, error) {
	k, err := x.key(*in)
	if err != nil {
		return nil, err
	}
	ctx, data, err := x.bodyFor(ctx, MaxSmallBodyBytes, true)
	if err != nil {
		return nil, err
	}
	if _, err := object(data); err != nil {
		return nil, err
	}
	done, err := s.cfg.Reader.Turn(ctx, k.Agent)
	if err != nil {
		return nil, err
	}
	err = s.cfg.Client.Reopen(k).Close(ctx)
	done()
	if err != nil {
		return nil, s.unopened(k, err)
	}
	whole, err := s.fold(ctx, k)
	return &batchAnswer{Status: http.StatusAccepted, Body: whole.View()}, err
}
