// Package follow reads what is stored about batches, for all who follow them in one process.
//
//	live copies (broker.Hub) -> one goroutine for each batch that is followed -> a window of what came last -> followers
//
// A follower first reads what is stored, a piece at a time. Then it takes from the window of its batch, which one
// goroutine fills however many follow. A follower that falls behind the window reads what is stored again, unless its
// own slowness is the reason and it says so: then it ends with [ErrBehind], and whoever it was for comes again.
//
// Live copies are hints: some may be missing, so what is stored is also read every second while nothing comes. When the
// connection to NATS is lost, followers wait until it is there again.
//
// All methods of a [Reader] are safe for concurrent use.
package follow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// Limits of reading.
const (
	// MaxAgentReads is how many requests and streams of a shared reader read what is stored about one agent's batches
	// at the same moment: the others wait for their turn.
	MaxAgentReads = 2
	// maxPieceEvents, maxPieceBytes and maxPieceReplies are how much of what is stored is read in one turn.
	maxPieceEvents  = 64
	maxPieceBytes   = 256 << 10
	maxPieceReplies = 16
	// maxKeptBytes is how much of batches' logs a shared reader keeps for other followers, and maxKeptAge for how long.
	maxKeptBytes = 32 << 20
	maxKeptAge   = 30 * time.Second
	// reread is how long live copies are trusted before what is stored is read.
	reread = time.Second
	// moment is for how long a batch that was handed in has no reply, most likely.
	moment = time.Millisecond
	// readTimeout bounds a read that several wait for.
	readTimeout = 30 * time.Second
)

// ErrBehind ends a follower that is too slow.
var ErrBehind = errors.New("the stream was read too slowly")

// RefusedError ends the replies of a batch that was stored and then refused.
type RefusedError struct{ events.Refused }

func (e *RefusedError) Error() string { return "the batch was refused: " + e.Detail }

// Store is what is read.
type Store interface {
	broker.Log
	broker.History
	broker.Live
	broker.Link
}

// Options say for whom a reader reads.
type Options struct {
	// Shared says that many follow, for many agents: the reader subscribes once to the live copies of all batches,
	// gives each agent turns at reading, and keeps for a while what it has read. The zero value is for one program: it
	// subscribes to what it follows.
	Shared bool
}

// Reader reads for all who follow in one process.
type Reader struct {
	Store
	shared     bool
	hub        broker.Hub
	happened   topics[toolyard.BatchKey, Event]
	answered   topics[toolyard.BatchKey, Reply]
	reported   topics[toolyard.BatchKey, Report]
	everything topics[toolyard.Agent, Happening]
	folds      flights[toolyard.BatchKey, batch.State]
	pieces     pieces
	turns      *turns[toolyard.Agent]
}

// New makes a reader.
func New(s Store, o Options) *Reader {
	most := 0
	if o.Shared {
		most = MaxAgentReads
	}
	return &Reader{Store: s, shared: o.Shared, hub: s.Hub(o.Shared), turns: newTurns[toolyard.Agent](most)}
}

// Turn waits for one of an agent's turns at reading, which lasts until done is called. It fails only when ctx ends. Who
// has a turn must not wait for another one, such as with [Reader.State]: all who have one could wait for each other.
func (r *Reader) Turn(ctx context.Context, agent toolyard.Agent) (done func(), err error) {
	return r.turns.take(ctx, agent)
}

// State reads the fold of a batch. All who ask while it is read share the next one.
func (r *Reader) State(ctx context.Context, k toolyard.BatchKey) (batch.State, error) {
	return r.folds.do(ctx, k, func(ctx context.Context) (batch.State, error) {
		done, err := r.Turn(ctx, k.Agent)
		if err != nil {
			return batch.State{}, err
		}
		defer done()
		return r.Look(ctx, k)
	})
}

// Submission reads how a batch was handed in.
func (r *Reader) Submission(ctx context.Context, k toolyard.BatchKey) (toolyard.Batch, error) {
	first, _, err := r.Tail(k).Next(ctx)
	if err != nil {
		return toolyard.Batch{}, err
	}
	sub, ok := first.Body.(events.Submitted)
	if !ok {
		return toolyard.Batch{}, fmt.Errorf("batch %s begins with %T", k, first.Body)
	}
	return sub.Batch, nil
}

// again calls read until it succeeds, or fails so that it will not succeed later. NATS may be away for longer than a
// read lasts.
func again[T any](ctx context.Context, link broker.Link, read func() (T, error)) (T, error) {
	for {
		v, err := read()
		if err == nil || ctx.Err() != nil || !link.MayPass(err) {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, context.Cause(ctx)
		case <-time.After(reread):
		}
	}
}

// storedFollower is a [broker.Follower] or [broker.ReplyFollower].
type storedFollower[T any] interface {
	News() <-chan struct{}
	Next(ctx context.Context) (T, bool, error)
	Reread()
}

// fill puts all that f reads about a batch, until put says that nothing follows. When f has no more it waits for news;
// after a long time without any it reads what is stored, since a server may have answered as if it had nothing.
// reply is how far the replies were read.
func fill[T any](
	ctx context.Context, r *Reader, k toolyard.BatchKey, f storedFollower[T], reply *uint64,
	put func(T) (over bool, err error),
) error {
	tick, quiet := time.NewTicker(reread), broker.Quiet{}
	defer tick.Stop()
	type read struct {
		v  T
		ok bool
	}
	for {
		n, err := again(ctx, r, func() (n read, err error) {
			done, err := r.Turn(ctx, k.Agent)
			if err != nil {
				return n, err
			}
			defer done()
			n.v, n.ok, err = f.Next(ctx)
			return n, err
		})
		if err != nil {
			return err
		}
		if n.ok {
			if over, err := put(n.v); over || err != nil {
				return err
			}
			quiet = broker.Quiet{}
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-f.News():
		case <-tick.C:
			if !quiet.Long() {
				continue
			}
			if err := r.forsaken(ctx, k, *reply); err != nil {
				return err
			}
			f.Reread()
		}
	}
}

// forsaken is the error of a batch that nobody goes on with, asked for now and then while nothing comes.
func (r *Reader) forsaken(ctx context.Context, k toolyard.BatchKey, reply uint64) error {
	done, err := r.Turn(ctx, k.Agent)
	if err != nil {
		return err
	}
	defer done()
	if err := r.Forsaken(ctx, k, reply); err != nil && !r.MayPass(err) {
		return err
	}
	return nil
}
