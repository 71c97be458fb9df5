package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/broker"
)

// takesNew is why no new batch is taken now. One that is stored already is answered as ever. A refusal is counted: no
// dispatcher hears of the submission.
func (s *Server) takesNew(ctx context.Context, k toolyard.BatchKey) error {
	status, err := s.refusesNew(ctx, k)
	if status != 0 {
		s.cfg.Refused(status)
	}
	return err
}

// refusesNew returns the status with which a new batch is refused now, and the reason; without a status, why that is
// not known.
func (s *Server) refusesNew(ctx context.Context, k toolyard.BatchKey) (status int, err error) {
	if k.Agent == "" {
		k.Agent = toolyard.DefaultAgent
	}
	room, crowded, unserved := s.cfg.Room(), s.cfg.Crowded(k.Agent), ""
	if k.ID != "" { // a batch without an id gets one that is served
		unserved = s.cfg.Unserved(k)
	}
	if !room.Full && crowded == "" && unserved == "" {
		return 0, nil
	}
	if k.ID != "" {
		if stored, err := s.cfg.Reader.Submitted(ctx, k); err != nil || stored {
			return 0, err
		}
	}
	if room.Full {
		return http.StatusServiceUnavailable, &broker.NoRoomError{Reason: room.Reason}
	}
	if unserved != "" {
		return http.StatusServiceUnavailable, typed(client.ErrNoAnswer, http.StatusServiceUnavailable, "",
			"%s. Nothing was stored: the same again, under the same id, later", unserved).again()
	}
	return http.StatusTooManyRequests, typed(client.ErrFull, http.StatusTooManyRequests, "",
		"%s. Nothing was stored: the same again, under the same id, later", crowded).again()
}

// maxNewIDs bounds the ids that are tried for one batch: where one of 16 shards is served, one of 16 ids belongs there.
const maxNewIDs = 256

// newID makes the id of a batch that came without one. Where some shards have no dispatcher, it is one of the others.
func (s *Server) newID(agent toolyard.Agent) (id toolyard.BatchID) {
	if agent == "" {
		agent = toolyard.DefaultAgent
	}
	for range maxNewIDs {
		if id = client.NewBatchID(); s.cfg.Unserved(toolyard.BatchKey{Agent: agent, ID: id}) == "" {
			break
		}
	}
	return id
}

// stores is why nothing can be stored now.
func (s *Server) stores() error {
	if room := s.cfg.Room(); room.Stalled {
		return &broker.NoRoomError{Reason: room.Reason}
	}
	return nil
}

// submitWithin is how long it may take to store a batch of so many bytes.
func submitWithin(bytes int) time.Duration {
	return submitTimeout + time.Duration(bytes>>20)*submitPerMiB
}

// handIn has submit store a batch that a request of so many bytes holds, or says soon that it could not.
func handIn[T any](ctx context.Context, s *Server, b toolyard.Batch, bytes int,
	submit func(context.Context, toolyard.Batch) (T, error)) (sub T, err error) {
	if s.cfg.Trace != nil {
		traced, end := s.cfg.Trace(ctx, "http")
		defer func() { end(err) }()
		ctx = traced
	}
	if err := s.takesNew(ctx, b.Key()); err != nil {
		return sub, err
	}
	if err := s.cfg.CheckOptions(b.Options); err != nil {
		return sub, err
	}
	if b.ID == "" {
		b.ID = s.newID(b.Agent)
	}
	within := submitWithin(bytes)
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf(
		"%w: the batch was not acknowledged within %s. The same one again, under the same id, is safe",
		client.ErrNoAnswer, within))
	defer cancel()
	sub, err = submit(ctx, b)
	if errors.Is(err, client.ErrNoAnswer) {
		if room := s.cfg.Room(); room.Stalled { // by now it is known why
			err = &broker.NoRoomError{Reason: room.Reason, Unsure: true}
		}
	}
	return sub, err
}
