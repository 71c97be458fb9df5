package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/display"
	"github.com/toolyard/toolyard/internal/replay"
)

// What a person sees of one batch: its log, folded up to any event.

// aroundEvents is how many events a timeline has in words: those before and at the event that was asked for.
const aroundEvents = 12

type timelineInput struct {
	BatchPath
	At    int `query:"at" minimum:"0" default:"0" doc:"Show the batch as its first so many events leave it. 0: as it is now."`
	Since int `query:"since" minimum:"0" default:"0" doc:"Only the calls that changed after so many events."`
}

// Timeline is a batch at one event of its log.
type Timeline struct {
	Events int           `json:"events" doc:"How many events the log has now."`
	At     int           `json:"at" doc:"How many of them this shows."`
	Batch  replay.Shape  `json:"batch" doc:"The batch at that event."`
	Rows   []replay.Row  `json:"rows" doc:"The calls that changed after since, or all."`
	Around []replay.Step `json:"around" doc:"The last events that this shows, in words."`
}

func (s *Server) timeline(ctx context.Context, x *exchange, in *timelineInput) (*struct{ Body Timeline }, error) {
	var out Timeline
	err := s.look(ctx, x, in.BatchPath, in.At, func(fold *replay.Replay, events []replay.Step) error {
		out.Events, out.At = len(events), len(events)
		if in.At > 0 {
			out.At = min(in.At, len(events))
		}
		out.Batch, out.Rows = fold.Shape(in.Since)
		out.Around = slices.Clone(events[max(0, out.At-aroundEvents):out.At])
		return nil
	})
	return &struct{ Body Timeline }{out}, err
}

type callInput struct {
	CallPath
	At      int `query:"at" minimum:"0" default:"0" doc:"As the first so many events leave it. 0: as it is now."`
	Columns int `query:"columns" minimum:"40" maximum:"400" default:"80" doc:"The width of the lines."`
}

// CallLook is one call with its input in lines.
type CallLook struct {
	replay.CallDetail
	Lines []string `json:"lines" doc:"The input as a person is asked about it: every character shows."`
	Part  string   `json:"part,omitempty" doc:"Why there are no lines."`
}

func (s *Server) call(ctx context.Context, x *exchange, in *callInput) (*struct{ Body CallLook }, error) {
	out := CallLook{Lines: []string{}}
	err := s.look(ctx, x, in.BatchPath, in.At, func(fold *replay.Replay, _ []replay.Step) error {
		detail, ok := fold.Call(in.Index)
		if !ok {
			return typed(client.ErrNoCall, http.StatusNotFound, "index", "the batch has no call %d", in.Index)
		}
		out.CallDetail = detail
		return nil
	})
	if err != nil || out.Input == nil {
		return &struct{ Body CallLook }{out}, err
	}
	lines, err := display.Lines(out.Input, display.Options{Columns: in.Columns})
	if err != nil {
		out.Part = err.Error()
		return &struct{ Body CallLook }{out}, nil
	}
	out.Lines = lines
	return &struct{ Body CallLook }{out}, nil
}

// look folds the log of a batch. So many at a time hold logs in memory.
func (s *Server) look(ctx context.Context, x *exchange, p BatchPath, at int,
	use func(*replay.Replay, []replay.Step) error) error {
	k, err := x.key(p)
	if err != nil {
		return err
	}
	leave, err := enter(s.looks, x.who)
	if err != nil {
		return err
	}
	defer leave()
	if err := s.logs.Look(ctx, k, at, use); err != nil {
		if known(err) != nil {
			return s.missing(k, err)
		}
		return s.unread(ctx, k, err)
	}
	return nil
}

type approvalLookInput struct {
	ID      string `path:"id" doc:"The approval's id, as the list has it."`
	Columns int    `query:"columns" minimum:"40" maximum:"400" default:"80" doc:"The width of the lines."`
}

// ApprovalLook is a call that waits for a person, as the person sees it.
type ApprovalLook struct {
	client.Approval
	Lines     []string `json:"lines" doc:"The whole input: every character shows, and an edit is a comparison."`
	DiffLines []string `json:"diff_lines" doc:"What the call would have changed when it was asked about."`
	Part      string   `json:"part,omitempty" doc:"Why the input cannot be shown whole. Such a call cannot be allowed as it is."`
}

func (s *Server) approval(ctx context.Context, x *exchange, in *approvalLookInput) (*struct{ Body ApprovalLook },
	error) {
	k, _, err := client.ParseApprovalID(in.ID)
	if err != nil {
		return nil, err
	}
	gone := typed(client.ErrNoApproval, http.StatusNotFound, "id", "no such approval is waited for")
	if !x.who.speaksFor(k.Agent) {
		return nil, gone
	}
	list, err := s.cfg.Client.Approvals(ctx, k.Agent)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(a client.Approval) bool { return a.ID == in.ID })
	if i < 0 {
		return nil, gone
	}
	out := ApprovalLook{Approval: list[i], Lines: []string{}, DiffLines: []string{}}
	lines, err := display.Lines(out.Input, display.Options{Columns: in.Columns, SHA256: out.InputSHA256,
		Form: out.Form})
	if err != nil {
		out.Part = err.Error()
		return &struct{ Body ApprovalLook }{out}, nil
	}
	out.Lines = lines
	if out.Diff != "" {
		out.DiffLines = display.DiffLines(out.Diff, in.Columns, display.MaxDiffLines)
	}
	return &struct{ Body ApprovalLook }{out}, nil
}
