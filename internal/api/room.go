package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/broker"
)

// takesNew is why no new batch is taken now. One that is stored already is answered as ever.
func (s *Server) takesNew(ctx context.Context, k toolyard.BatchKey) error {
	room := s.cfg.Room()
	if !room.Full {
		return nil
	}
	if k.ID != "" {
		if k.Agent == "" {
			k.Agent = toolyard.DefaultAgent
		}
		if stored, err := s.cfg.Broker.Submitted(ctx, k); err != nil || stored {
			return err
		}
	}
	return &broker.NoRoomError{Reason: room.Reason}
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

// handIn stores a batch that a request of so many bytes holds, or says soon that it could not.
func (s *Server) handIn(ctx context.Context, b toolyard.Batch, bytes int) (*client.Batch, error) {
	if err := s.takesNew(ctx, b.Key()); err != nil {
		return nil, err
	}
	within := submitWithin(bytes)
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf(
		"%w: the batch was not acknowledged within %s. The same one again, under the same id, is safe", client.ErrNoAnswer, within))
	defer cancel()
	sub, err := s.cfg.Client.Submit(ctx, b)
	if errors.Is(err, client.ErrNoAnswer) {
		if room := s.cfg.Room(); room.Stalled { // by now it is known why
			err = &broker.NoRoomError{Reason: room.Reason, Unsure: true}
		}
	}
	return sub, err
}
