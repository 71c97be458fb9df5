// Package client is how a Go program hands batches to Toolyard and gets their results.
//
//	c, err := client.Connect(ctx, nc)
//	b, err := c.Submit(ctx, toolyard.Batch{Agent: "agent-1", Calls: calls})
//	for result, err := range b.Results(ctx) {
//		...
//	}
//
// Submit returns when the batch is stored: from then on each call gets exactly one result, whatever dies. Results come in
// emission order, each as soon as all before it are there. A program that was away asks for the same batch again, with
// [Client.Batch], and goes on where it likes.
package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// rereadAfter is how long a client trusts the live feed before it reads the stream.
const rereadAfter = time.Second

// Client submits batches over NATS. It is safe for concurrent use.
type Client struct{ b *broker.Broker }

// Connect makes a client on a connection, which stays the caller's to close. It makes nothing on the NATS system:
// [ErrNoSystem] says that no dispatcher has ever run there.
func Connect(ctx context.Context, nc *nats.Conn) (*Client, error) {
	b, err := broker.Attach(ctx, nc, "/client/"+broker.NewID())
	if err != nil {
		return nil, fmt.Errorf("connect to Toolyard: %w", err)
	}
	return &Client{b: b}, nil
}

// Errors of Submit and Results that programs act on.
var (
	// ErrOtherContent says that a batch of this id was submitted before, with other content.
	ErrOtherContent = broker.ErrOtherContent
	// ErrFull says that the system takes no more now; try again later. A [RefusedError] for want of room is one too.
	ErrFull = broker.ErrFull
	// ErrNoSystem says that no dispatcher has ever run on the NATS system.
	ErrNoSystem = broker.ErrNoSystem
	// ErrNoBatch says that there is no such batch, or no longer.
	ErrNoBatch = broker.ErrNoBatch
)

// RefusedError says that the pool could not accept a submission that was stored.
type RefusedError struct {
	Status        int
	Field, Detail string
}

func (e *RefusedError) Error() string { return "the batch was refused: " + e.Detail }

// Is makes a refusal for want of room an [ErrFull]: nothing is wrong with the batch, and under a new id it may be accepted
// later.
func (e *RefusedError) Is(target error) bool {
	return target == ErrFull && (e.Status == 429 || e.Status == 503)
}

// Submit hands a batch in and returns when it is stored. What the batch leaves out gets its default; a batch that is wrong
// is a [*toolyard.InputError], and nothing was stored; nor was it for [ErrFull]. Submitting the same batch again is answered the same.
func (c *Client) Submit(ctx context.Context, b toolyard.Batch) (*Batch, error) {
	b.Normalize(toolyard.BatchID(broker.NewID()))
	if err := b.Validate(); err != nil {
		return nil, err
	}
	if err := c.b.Submit(ctx, b); err != nil {
		return nil, err
	}
	return &Batch{c: c, key: b.Key(), submitted: true}, nil
}

// Batch returns a batch that was submitted before, by whomever.
func (c *Client) Batch(k toolyard.BatchKey) *Batch { return &Batch{c: c, key: k} }

// Batch is one batch, seen from outside.
type Batch struct {
	c   *Client
	key toolyard.BatchKey
	// submitted says that the batch is known to be there.
	submitted bool
}

// Key is the batch's identity.
func (b *Batch) Key() toolyard.BatchKey { return b.key }

// Results yields the results from the first on, in emission order, and ends after the last. It waits for those that are
// not there yet; an error ends it.
func (b *Batch) Results(ctx context.Context) iter.Seq2[toolyard.Result, error] {
	return func(yield func(toolyard.Result, error) bool) {
		if err := b.results(ctx, func(r toolyard.Result) bool { return yield(r, nil) }); err != nil {
			yield(toolyard.Result{}, err)
		}
	}
}

func (b *Batch) results(ctx context.Context, yield func(toolyard.Result) bool) (err error) {
	feed, err := b.c.b.FollowReplies(b.key)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, feed.Stop()) }()
	if !b.submitted {
		if _, err := b.View(ctx); err != nil { // to say at once that there is no such batch
			return err
		}
	}
	seen, next := uint64(0), 0
	take := func(rec batch.Record) (done bool, err error) {
		seen = rec.Seq
		switch body := rec.Body.(type) {
		case events.Refused:
			return true, &RefusedError{Status: body.Status, Field: body.Field, Detail: body.Detail}
		case events.Reply:
			for _, r := range body.Results {
				if r.Index != next {
					return true, fmt.Errorf("batch %s: the result of call %d came where that of call %d is next", b.key, r.Index, next)
				}
				next++
				if !yield(r) {
					return true, nil
				}
			}
			return body.Completed, nil
		default:
			return true, fmt.Errorf("batch %s: %T is no reply", b.key, rec.Body)
		}
	}
	catchUp := func() (done bool, err error) {
		records, err := b.c.b.Replies(ctx, b.key, seen)
		for _, rec := range records {
			if done, err := take(rec); done || err != nil {
				return true, err
			}
		}
		return err != nil, err
	}
	tick := time.NewTimer(0) // the first look is at once
	defer tick.Stop()
	for {
		var done bool
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			done, err = catchUp()
		case m := <-feed.C:
			rec, before, ferr := feed.Record(ctx, m)
			switch {
			case ferr != nil:
				return ferr
			case rec.Seq <= seen:
				continue
			case before != seen:
				done, err = catchUp()
			default:
				done, err = take(rec)
			}
		}
		if done || err != nil {
			return err
		}
		tick.Reset(rereadAfter)
	}
}

// View is the batch as it stands now: the fold of its events.
func (b *Batch) View(ctx context.Context) (toolyard.BatchView, error) {
	s, err := b.c.b.Fold(ctx, b.key)
	if err != nil {
		return toolyard.BatchView{}, err
	}
	return s.View(), nil
}

// Events yields all that is stored about the batch now, each as a CloudEvent in JSON.
func (b *Batch) Events(ctx context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		log, err := b.c.b.Log(ctx, b.key)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, l := range log {
			if e, err := l.JSON(); !yield(e, err) || err != nil {
				return
			}
		}
	}
}
