package follow

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
)

// Report is what a running call says, or that a batch waits for its turn.
type Report = broker.Progress

// reportBytes is about how long a report is beside its texts.
const reportBytes = 256

// settleWait bounds how long a result waits for reports that were received before it. Reports may be missing.
const settleWait = time.Second

// Progress yields what the running calls of a batch report from now on, and that the batch waits for its turn, as many
// reports at a time as there are. It ends when the batch is complete. Reports may be missing.
func (r *Reader) Progress(ctx context.Context, k toolyard.BatchKey) iter.Seq2[[]Report, error] {
	return func(yield func([]Report, error) bool) {
		l, err := r.Listen(ctx, k)
		if err != nil {
			yield(nil, err)
			return
		}
		l.Stored()
		l.Progress(ctx)(yield)
	}
}

// Listening is who hears what the running calls of a batch report, maybe since before the batch was stored.
type Listening struct {
	f      *follower[Report]
	leave  func()
	stored func()
}

// Listen begins to hear a batch that may not be stored yet, before it returns. The caller calls Stored when it is, and
// then Progress, or Leave in any case.
func (r *Reader) Listen(ctx context.Context, k toolyard.BatchKey) (*Listening, error) {
	stored := make(chan struct{})
	f, leave, _ := r.reported.join(k, Report{}, func(Report) bool { return true },
		func(ctx context.Context, t *topic[Report]) error { return r.readProgress(ctx, k, stored, t) })
	l := &Listening{f, leave, sync.OnceFunc(func() { close(stored) })}
	if err := f.skip(ctx); err != nil {
		l.Leave()
		return nil, err
	}
	return l, nil
}

// Stored says that the batch is stored.
func (l *Listening) Stored() { l.stored() }

// Leave ends it. Others who hear the same batch go on, and find out themselves whether it is stored.
func (l *Listening) Leave() {
	l.stored()
	l.leave()
}

// Progress is [Reader.Progress] since it listens. It is called once.
func (l *Listening) Progress(ctx context.Context) iter.Seq2[[]Report, error] {
	return func(yield func([]Report, error) bool) {
		defer l.leave()
		for {
			got, err := l.f.take(ctx)
			if err == nil { // what is missing in it is not sent again
				if len(got.items) > 0 && !yield(got.items, nil) || got.ended && got.err == nil {
					return
				}
				err = got.err
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// readProgress fills a topic with what running calls report, until the batch is complete. It reads the batch when that
// is stored.
func (r *Reader) readProgress(ctx context.Context, k toolyard.BatchKey, stored <-chan struct{},
	t *topic[Report]) error {
	ear, err := again(ctx, r, func() (broker.Follow, error) { return r.hub.Progress(ctx, k) })
	if err != nil {
		return err
	}
	defer ear.Stop()
	t.begin()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type said struct {
		Reply
		err error
	}
	replies := make(chan said)
	go func() {
		select {
		case <-stored:
		case <-ctx.Done():
			return
		}
		for p, err := range r.Replies(ctx, k, nil) {
			select {
			case replies <- said{p, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	current := broker.Runs{}
	put := func() {
		msgs, _ := ear.Take()
		for _, m := range msgs {
			if p, ok := r.hub.ReadProgress(m); ok && (p.Waiting != nil || current.Take(p)) {
				t.put(p, reportBytes+len(p.Status)+len(p.Output))
			}
		}
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case p := <-replies:
			if p.err != nil {
				return p.err
			}
			// What was reported before the result was received before it.
			settling, done := context.WithTimeout(ctx, settleWait)
			err := r.hub.Settle(settling)
			done()
			if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			put()
			if p.Completed {
				return nil
			}
			for _, res := range p.Results {
				current.Over(res.Index)
			}
		case <-ear.News():
			put()
		}
	}
}
