package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/traceparent"
)

// Client submits batches, over NATS ([Connect]) or HTTP ([ConnectHTTP]). It is safe for concurrent use.
//
// An agent of a batch or a session that is left empty is [toolyard.DefaultAgent] over NATS, and over HTTP the token's;
// a session is [toolyard.DefaultSession].
type Client struct{ t transport }

// Errors of Submit and Results that programs act on.
var (
	// ErrOtherContent says that a batch of this id was submitted before, with other content.
	ErrOtherContent = broker.ErrOtherContent
	// ErrFull says that the system takes no more now; try again later. A [RefusedError] for want of room is one too.
	ErrFull = broker.ErrFull
	// ErrNoAnswer says that the system did not answer in time, or that its answer was lost. What was handed in may have
	// been stored: the same batch again, under the same id, is safe.
	ErrNoAnswer = broker.ErrNoAnswer
	// ErrDamaged says that the store behind the system has lost something of a batch: not all of its results can be
	// told.
	ErrDamaged = broker.ErrDamaged
	// ErrNoSystem says that no dispatcher has ever run on the NATS system.
	ErrNoSystem = broker.ErrNoSystem
	// ErrNoBatch says that there is no such batch, or no longer.
	ErrNoBatch = broker.ErrNoBatch
)

// RefusedError says that the pool could not accept a submission that was stored.
type RefusedError struct {
	// Status is that of the refusal. For want of room it is 429 or 503, and over HTTP 409: the id is used up.
	Status        int
	Field, Detail string
}

func (e *RefusedError) Error() string { return refusedPrefix + e.Detail }

const refusedPrefix = "the batch was refused: "

// Is makes a refusal for want of room an [ErrFull]: nothing is wrong with the batch, and under a new id it may be
// accepted later.
func (e *RefusedError) Is(target error) bool {
	return target == ErrFull && (e.Status == 429 || e.Status == 503 || e.Status == 409)
}

// Submit hands a batch in and returns when it is stored. What the batch leaves out gets its default.
//
// It fails with a [*toolyard.InputError] when the batch is wrong, with [ErrOtherContent] when another batch has its id,
// and with [ErrFull] when there is no room: nothing was stored then. It fails with [ErrNoAnswer] when the system does
// not answer, after half a minute over NATS and as long as the server waits over HTTP: the batch may have been stored.
// Submitting the same batch again, under the same id, is safe and returns the same.
func (c *Client) Submit(ctx context.Context, b toolyard.Batch) (*Batch, error) {
	return c.submit(ctx, b, false)
}

// SubmitAndListen is [Client.Submit] for who wants to know all progress: over NATS it listens before the batch is
// stored, until ctx ends, and the first [Batch.Progress] that begins before that yields what has come since. The batch
// names its agent; an empty one is the default.
func (c *Client) SubmitAndListen(ctx context.Context, b toolyard.Batch) (*Batch, error) {
	return c.submit(ctx, b, true)
}

func (c *Client) submit(ctx context.Context, b toolyard.Batch, listens bool) (*Batch, error) {
	agent := b.Agent
	b.Normalize(NewBatchID())
	if err := b.Validate(); err != nil {
		return nil, err
	}
	var l *follow.Listening
	var err error
	if listens {
		if l, err = c.t.listen(ctx, b.Key()); err != nil {
			return nil, err
		}
	}
	b.Agent = agent // who hands it in may be known otherwise
	k, err := c.t.submit(ctx, b)
	if err != nil {
		if l != nil {
			l.Leave()
		}
		return nil, err
	}
	out := &Batch{c: c, key: k, stored: time.Now()}
	if l != nil {
		l.Stored()
		out.listening.Store(l)
		out.keep = context.AfterFunc(ctx, func() {
			if l := out.listening.Swap(nil); l != nil {
				l.Leave()
			}
		})
	}
	return out, nil
}

// WithTraceParent returns a context in which batches are handed in as part of a trace: parent is a W3C trace context,
// as OpenTelemetry's propagator writes it under the name "traceparent". A text that is none changes nothing.
func WithTraceParent(ctx context.Context, parent string) context.Context {
	if parent = traceparent.Valid(parent); parent == "" {
		return ctx
	}
	return traceparent.With(ctx, traceparent.Context{Parent: parent, Baggage: traceparent.From(ctx).Baggage})
}

// WithTraceState returns a context with what tracing systems have noted of the trace that [WithTraceParent] put into
// it: state is a W3C "tracestate" of at most 512 bytes and 32 members. A text that is none, or is longer, changes
// nothing, and so does any where ctx has no trace.
func WithTraceState(ctx context.Context, state string) context.Context {
	c := traceparent.From(ctx)
	if state = traceparent.State(state); state == "" || c.Parent == "" {
		return ctx
	}
	c.State = state
	return traceparent.With(ctx, c)
}

// WithBaggage returns a context in which batches are handed in with W3C "baggage", of at most 2,048 bytes and 64
// members. It goes to all tools that the batch calls, and to the services that they ask. A text that is none, or is
// longer, changes nothing.
func WithBaggage(ctx context.Context, baggage string) context.Context {
	c := traceparent.From(ctx)
	if baggage = traceparent.Baggage(baggage); baggage == "" {
		return ctx
	}
	c.Baggage = baggage
	return traceparent.With(ctx, c)
}

// NewBatchID makes an id that no other batch has: for a program that wants to know it before it submits the batch.
func NewBatchID() toolyard.BatchID { return toolyard.BatchID(broker.NewID()) }

// Batch returns a batch that was submitted before, by this program or another. It asks nothing: that there is no such
// batch shows when it is used, as [ErrNoBatch]. An empty agent is the one that [Client.Submit] takes.
func (c *Client) Batch(k toolyard.BatchKey) *Batch {
	k.Agent = c.t.whose(k.Agent)
	return &Batch{c: c, key: k}
}

// Batch is a batch that was submitted. It is safe for concurrent use.
type Batch struct {
	c   *Client
	key toolyard.BatchKey
	// stored is when this client learned that the batch is stored; zero: it is not known to be there.
	stored time.Time
	// listening hears what is reported since before the batch was stored, until somebody takes it or the context of the
	// submission ends. keep stops the latter.
	listening atomic.Pointer[follow.Listening]
	keep      func() bool
}

// named says at once that there is no batch of a name that none can have: an empty one is part of no subject and of no
// URL, so that nobody would answer.
func (b *Batch) named() error {
	if n := len(b.key.ID); n == 0 || n > toolyard.MaxNameBytes {
		return fmt.Errorf("%w: its id has %d bytes; want 1 to %d", ErrNoBatch, n, toolyard.MaxNameBytes)
	}
	if n := len(b.key.Agent); n > toolyard.MaxNameBytes {
		return fmt.Errorf("%w: its agent has %d bytes; at most %d are allowed", ErrNoBatch, n, toolyard.MaxNameBytes)
	}
	return nil
}

// follow is that of the transport.
func (b *Batch) follow(ctx context.Context, live bool, see func(logged) error) error {
	if err := b.named(); err != nil {
		return err
	}
	return b.c.t.follow(ctx, b.key, live, see)
}

// Key is the batch's identity.
func (b *Batch) Key() toolyard.BatchKey { return b.key }

// Results yields the results in the order of the calls, from the first on, and ends after the last. It waits for those
// that are not there yet. An error ends it: [ErrNoBatch], [ErrDamaged], a [*RefusedError], or that ctx has ended.
func (b *Batch) Results(ctx context.Context) iter.Seq2[toolyard.Result, error] {
	return func(yield func(toolyard.Result, error) bool) {
		err := b.named()
		if err == nil {
			err = b.c.t.results(ctx, b.key, b.stored, func(r toolyard.Result) bool { return yield(r, nil) })
		}
		if err != nil && !errors.Is(err, errLeft) {
			yield(toolyard.Result{}, err)
		}
	}
}

// View returns the batch as it stands now, with the results that are there.
func (b *Batch) View(ctx context.Context) (toolyard.BatchView, error) {
	if err := b.named(); err != nil {
		return toolyard.BatchView{}, err
	}
	return b.c.t.view(ctx, b.key)
}

// Events yields the events of the batch that are stored now, each as a CloudEvent in JSON.
func (b *Batch) Events(ctx context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		err := b.follow(ctx, false, func(l logged) error {
			if !yield(l.json, nil) {
				return errLeft
			}
			return nil
		})
		if err != nil && !errors.Is(err, errLeft) {
			yield(nil, err)
		}
	}
}

// errLeft says that the loop was left: nothing may be yielded any more.
var errLeft = errors.New("the loop was left")
