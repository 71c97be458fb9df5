package client

import (
	"context"
	"fmt"
	"slices"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/submission"
)

// ErrClosed says that a batch takes no more calls: it was closed, or nothing came for too long.
var ErrClosed = broker.ErrClosed

// Stream is an open batch: calls are appended while the model is still talking, and each starts as soon as it may. The
// groups are those that the calls would make if they had come at once. It is not safe for concurrent use; its results
// are.
type Stream struct {
	*Batch
	seq    uint64
	input  submission.Input
	closed bool
}

// Open hands in a batch that calls can be appended to; it may begin with none. Close it when the model is done: silence
// past the dispatcher's idle limit (5 minutes by default) does so too.
func (c *Client) Open(ctx context.Context, b toolyard.Batch) (*Stream, error) {
	b.Open = true
	if b.Calls == nil {
		b.Calls = []toolyard.Call{}
	}
	sub, err := c.Submit(ctx, b)
	if err != nil {
		return nil, err
	}
	b.Calls = slices.Clone(b.Calls) // which are the caller's
	toolyard.NormalizeCalls(b.Calls, 0)
	s := &Stream{Batch: sub}
	s.input.Add(b.Calls)
	return s, nil
}

// Append adds calls. When it returns nil they are stored, and each will have its result. A call that is wrong is a
// [*toolyard.InputError], and none of them was appended.
func (s *Stream) Append(ctx context.Context, calls ...toolyard.Call) error {
	if s.closed {
		return fmt.Errorf("%w: %s", ErrClosed, s.key)
	}
	if len(calls) == 0 {
		return nil
	}
	calls, err := s.input.Fit(calls)
	if err != nil {
		return err
	}
	seq, err := s.c.t.append(ctx, s.key, s.seq, calls)
	s.seq = seq
	if err != nil {
		return err
	}
	s.input.Add(calls)
	return nil
}

// Close says that no calls follow.
func (s *Stream) Close(ctx context.Context) error {
	if s.closed {
		return nil
	}
	seq, err := s.c.t.closeInput(ctx, s.key, s.seq)
	s.seq, s.closed = seq, err == nil
	return err
}
