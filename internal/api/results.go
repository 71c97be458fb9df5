package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/follow"
)

// Results as they come. The id of an event is the index of its result, so a client that comes again with the last id
// that it saw is sent exactly those behind it; the last event, completed, has the number of results.

type StreamInput struct {
	BatchPath
	LastEventID string `header:"Last-Event-ID" doc:"The id of the last event that was seen: the stream goes on behind it."`
}

// Completed is the data of the last event of a stream of results.
type Completed struct {
	Status  toolyard.Status `json:"status"`
	Results int             `json:"results" doc:"How many results the batch has."`
}

type resultsInput struct {
	StreamInput
	Progress string `query:"progress" enum:"false,true,only" default:"false" doc:"true: events progress too, of running calls; they have no id and may be missing. only: these, and no results."`
}

func (s *Server) results(ctx context.Context, x *exchange, in *resultsInput) (*huma.StreamResponse, error) {
	k, err := x.key(in.BatchPath)
	if err != nil {
		return nil, err
	}
	next := 0
	if in.LastEventID != "" {
		last, err := strconv.Atoi(in.LastEventID)
		if err != nil || last < 0 || last > toolyard.MaxCallsPerBatch {
			return nil, newProblem(http.StatusBadRequest, "Last-Event-ID", "is no id of an event of this stream")
		}
		next = last + 1
	}
	st, err := s.fold(ctx, k)
	if err != nil && !errors.Is(err, client.ErrDamaged) { // where something is lost the replies may still be told
		return nil, err
	}
	if p := beyond(st, next); p != nil {
		return nil, p
	}
	// the end was seen: this stops a client that would ask for ever
	if st.Completed && st.Plan != nil && next == len(st.Calls)+1 {
		return &huma.StreamResponse{Body: func(huma.Context) { x.w.WriteHeader(http.StatusNoContent) }}, nil
	}
	leave, err := enter(s.streams, x.who)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) {
		defer leave()
		s.sendResults(x, k, next, in.Progress)
	}}, nil
}

// beyond refuses to go on behind an event that there cannot have been: such a stream would say nothing for ever.
func beyond(st batch.State, next int) *Problem {
	settled := st.Plan != nil && st.Closed
	if settled && (next > len(st.Calls)+1 || next == len(st.Calls)+1 && !st.Completed) {
		return newProblem(http.StatusBadRequest, "Last-Event-ID", "is %d, but the batch has %d calls", next-1,
			len(st.Calls))
	}
	return nil
}

func (s *Server) sendResults(x *exchange, k toolyard.BatchKey, next int, which string) {
	alive, end := s.alive(x)
	defer end()
	ctx, cancel := context.WithCancel(alive)
	defer cancel()
	out := openStream(ctx, x, false)
	defer out.beat(ctx, cancel)()
	send := s.sendWaiting
	if which == "true" || which == "only" {
		send = s.sendProgress
	}
	progress := send(ctx, out, k)
	defer func() { progress.stop() }()
	if which == "only" {
		next = toolyard.MaxCallsPerBatch
	}
	if err := s.writeResults(ctx, out, k, next,
		func(batch.State) error { progress.finish(); return nil }); err != nil && ctx.Err() == nil {
		s.sendProblem(x, out, err)
	}
}

// writeResults writes the results of a batch from one on, what else is to be said when all are there, and that it is
// complete. A client that is gone is no error.
func (s *Server) writeResults(ctx context.Context, out *stream, k toolyard.BatchKey, next int,
	also func(batch.State) error) error {
	seen := 0
	for r, err := range s.cfg.Reader.Replies(ctx, k, out.slow) {
		if err != nil {
			return err
		}
		seen += len(r.Results)
		entries, err := resultEntries(r, next)
		if err != nil {
			return err
		}
		if out.sendAll(entries) != nil {
			return nil
		}
	}
	asking, done := context.WithTimeout(ctx, requestTimeout)
	defer done()
	st, err := s.fold(asking, k)
	status := toolyard.StatusCompleted
	switch {
	case err == nil:
		status = st.View().Status
	case !errors.Is(err, client.ErrDamaged):
		return err
	}
	if err := also(st); err != nil {
		return err
	}
	data, err := json.Marshal(Completed{Status: status, Results: seen})
	if err != nil {
		return err
	}
	_ = out.send(strconv.Itoa(seen), "completed", data) // whoever does not get it asks again
	return nil
}

// resultEntries are the results of a reply as a stream has them, from one index on.
func resultEntries(r follow.Reply, next int) (out []entry, err error) {
	data, err := r.JSON()
	if err != nil {
		return nil, err
	}
	for i, res := range r.Results {
		if res.Index >= next {
			out = append(out, entry{id: strconv.Itoa(res.Index), name: "result", data: data[i]})
		}
	}
	return out, nil
}

// behindEvent is the name of the last event of a stream that was too slow.
const behindEvent = "behind"

// Behind is the data of an event behind.
type Behind struct {
	Detail string `json:"detail"`
}

const behindDetail = "this stream was read too slowly, so the server ended it; go on behind the last event with " +
	"Last-Event-ID"

// sendProblem ends a stream that has begun: the status is gone already.
func (s *Server) sendProblem(x *exchange, out *stream, err error) {
	if errors.Is(err, follow.ErrBehind) {
		s.sendBehind(out)
		return
	}
	data, err := json.Marshal(s.problem(x, err))
	if err != nil {
		s.cfg.Log.Error("a problem cannot be told", "error", err)
		return
	}
	_ = out.send("", "problem", data) // as above
}

// sendBehind ends a stream that was read too slowly.
func (s *Server) sendBehind(out *stream) {
	data, err := json.Marshal(Behind{behindDetail})
	if err != nil {
		s.cfg.Log.Error("the end of a slow stream cannot be told", "error", err)
		return
	}
	_ = out.send("", behindEvent, data) // whoever does not get it comes again all the same
}
