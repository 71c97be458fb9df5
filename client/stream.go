package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
)

// Errors of open batches that programs act on.
var (
	// ErrClosed says that a batch takes no more calls: it was closed, or nothing came for too long.
	ErrClosed = broker.ErrClosed
	// ErrNotOpened says that a batch was submitted whole, so that nothing can be appended to it.
	ErrNotOpened = errors.New("the batch was submitted whole, not opened")
)

// Stream is an open batch: calls are appended while the model is still talking, and each starts as soon as it may. The
// groups are those that the calls would make if they had come at once. It is not safe for concurrent use; its results
// are.
type Stream struct {
	*Batch
	in     input
	closed bool
}

// input is how a transport appends to one open batch.
type input interface {
	// append adds calls behind all others, and returns the index of the first.
	append(ctx context.Context, calls []toolyard.Call) (first int, err error)
	// close says that none follow. With last it does so only if nobody else has appended since this input did.
	close(ctx context.Context, last bool) error
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
	b.Normalize(sub.key.ID)
	return &Stream{Batch: sub, in: c.t.input(sub.key, b.Calls)}, nil
}

// Reopen returns an open batch to append to that was opened before: a program that was away goes on with it. Calls that
// the batch has already may be appended again, and are found by their ids. That there is no such open batch shows when
// calls are appended or it is closed: [ErrNoBatch], [ErrNotOpened].
func (c *Client) Reopen(k toolyard.BatchKey) *Stream {
	b := c.Batch(k)
	return &Stream{Batch: b, in: c.t.input(b.key, nil)}
}

// Append adds calls. When it returns nil they are stored, and each will have its result. A call that is wrong is a
// [*toolyard.InputError], and none of them was appended; a closed batch is [ErrClosed]. When the answer is lost, the
// same calls may be appended again to the batch as [Client.Reopen] returns it, if they have ids: others are not found
// there, and would run twice.
func (s *Stream) Append(ctx context.Context, calls ...toolyard.Call) error {
	_, err := s.AppendAt(ctx, calls...)
	return err
}

// AppendAt is Append, and returns the index that the first of the calls has in the batch.
func (s *Stream) AppendAt(ctx context.Context, calls ...toolyard.Call) (first int, err error) {
	if s.closed {
		return 0, fmt.Errorf("%w: %s", ErrClosed, s.key)
	}
	if len(calls) == 0 {
		return 0, nil
	}
	if err := s.named(); err != nil {
		return 0, err
	}
	return s.in.append(ctx, calls)
}

// Close says that no calls follow. Closing a closed batch changes nothing.
func (s *Stream) Close(ctx context.Context) error { return s.close(ctx, false) }

// Release closes the batch unless somebody else has appended to it since this stream did: then it is theirs to close.
// Over HTTP it is Close.
func (s *Stream) Release(ctx context.Context) error { return s.close(ctx, true) }

func (s *Stream) close(ctx context.Context, last bool) error {
	if s.closed {
		return nil
	}
	if err := s.named(); err != nil {
		return err
	}
	err := s.in.close(ctx, last)
	s.closed = err == nil
	return err
}
