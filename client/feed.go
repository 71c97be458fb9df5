package client

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider"
)

// ErrCut is wrapped by [Client.Feed] for a stream that stopped before its end. A stream that is broken otherwise is a
// [*toolyard.InputError]; one in which the provider says that it failed wraps [ErrProvider].
var (
	ErrCut      = provider.ErrCut
	ErrProvider = provider.ErrProvider
)

// feedEnd bounds the handing in of what is left of a stream when its context is over.
const feedEnd = 10 * time.Second

// Format is a provider's form. [Client.Feed] reads those below.
type Format = provider.Format

// The formats of event streams.
const (
	Anthropic  = provider.Anthropic  // Anthropic Messages
	OpenAI     = provider.OpenAI     // OpenAI Responses
	OpenAIChat = provider.OpenAIChat // OpenAI Chat Completions
)

// Feed reads the raw event stream of one model response to its end and hands in its calls, each the moment its input is
// whole, while the model is still talking. The form is [Anthropic], [OpenAI] or [OpenAIChat], and r what the
// provider's API answers with, as it comes.
//
// The batch is b, to which the calls are added. It is opened when the first call begins: a response without calls makes
// none, and the returned batch is nil. opened, unless it is nil, is called with the batch then; whoever wants results
// while the stream goes on reads them in a goroutine of its own from there. When Feed returns the batch is closed.
//
// A response that begins anew in the middle leaves calls of its first part in the batch: those that were whole by then.
//
// A stream that is cut or broken is an error, and the batch that is returned beside it has all calls that were whole,
// which go on, and those that were cut, which end as incomplete_call.
func (c *Client) Feed(ctx context.Context, form Format, b toolyard.Batch, r io.Reader, opened func(*Batch)) (*Batch,
	error) {
	d, err := provider.Stream(form)
	if err != nil {
		return nil, err
	}
	live := func() (context.Context, context.CancelFunc) {
		if ctx.Err() != nil { // what was whole is handed in all the same
			return context.WithTimeout(context.WithoutCancel(ctx), feedEnd)
		}
		return ctx, func() {}
	}
	var s *Stream
	anew := false // the response has begun anew: the same calls may come again
	cut, err := provider.Pump(d, r, provider.Sink{
		Begin: func() (err error) {
			if s, err = c.Open(ctx, b); err == nil && opened != nil {
				opened(s.Batch)
			}
			return err
		},
		Append: func(calls []toolyard.Call) error {
			ctx, done := live()
			defer done()
			if !anew {
				return s.Append(ctx, calls...)
			}
			for _, call := range calls { // some of which may be there
				if err := s.Append(ctx, call); err != nil {
					return err
				}
			}
			return nil
		},
		Anew: func() {
			if anew = true; s != nil {
				s.in = c.t.input(s.key, nil)
			}
		},
		Close: func(error) error {
			if s == nil {
				return nil
			}
			ctx, done := live()
			defer done()
			return s.Close(ctx)
		},
	})
	if s == nil {
		return nil, errors.Join(err, cut)
	}
	if err != nil && !s.closed { // no call follows that could be handed in
		ctx, done := live()
		defer done()
		err = errors.Join(err, s.Close(ctx))
	}
	return s.Batch, errors.Join(err, cut)
}
