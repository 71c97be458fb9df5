package client

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider"
	"github.com/toolyard/toolyard/internal/provider/eventstream"
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

// Feed is the batch of a model's response that is still arriving. Its results come while it does.
type Feed struct {
	*Batch
	done chan struct{}
	err  error
}

// Feed hands in the calls of one model response while the model is still talking, each the moment its input is whole.
// r is the raw event stream that the provider's API answers with, form says whose it is ([Anthropic], [OpenAI] or
// [OpenAIChat]), and the calls are added to b.
//
// Feed returns when the first call begins and its batch is opened, and goes on reading r until its end; [Feed.Wait]
// waits for that. A response without calls has no batch: the returned feed is nil.
//
//	feed, err := c.Feed(ctx, client.Anthropic, toolyard.Batch{Agent: "agent-1"}, response.Body)
//	if err != nil || feed == nil {
//		return err
//	}
//	for result, err := range feed.Results(ctx) {
//		...
//	}
//	err = feed.Wait()
//
// A response that begins anew in the middle leaves calls of its first part in the batch: those that were whole by then.
func (c *Client) Feed(ctx context.Context, form Format, b toolyard.Batch, r io.Reader) (*Feed, error) {
	d, err := provider.Stream(form)
	if err != nil {
		return nil, err
	}
	f := &Feed{done: make(chan struct{})}
	opened := make(chan *Batch, 1)
	go func() {
		defer close(f.done)
		f.err = c.feed(ctx, d, b, r, func(b *Batch) { opened <- b })
	}()
	select {
	case f.Batch = <-opened:
		return f, nil
	case <-f.done:
	}
	select {
	case f.Batch = <-opened: // and it was read by now
		return f, nil
	default:
		return nil, f.err
	}
}

// Wait waits until the response was read and its batch is closed. It returns an error for a stream that is cut or
// broken; the batch has all calls that were whole, which go on, and those that were cut, which end as incomplete_call.
func (f *Feed) Wait() error {
	<-f.done
	return f.err
}

// feed reads a response to its end.
func (c *Client) feed(ctx context.Context, d *eventstream.Decoder, b toolyard.Batch, r io.Reader,
	opened func(*Batch)) error {
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
			if s, err = c.Open(ctx, b); err == nil {
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
		return errors.Join(err, cut)
	}
	if err != nil && !s.closed { // no call follows that could be handed in
		ctx, done := live()
		defer done()
		err = errors.Join(err, s.Close(ctx))
	}
	return errors.Join(err, cut)
}
