package dispatchercmd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
)

// historyReaders is how many batches of history are read at a time: so many are in memory at most.
const historyReaders = 8

// period says which batches of history are meant.
type period struct {
	agent        string
	since, until string
	from, to     time.Time // what since and until say
}

func (p *period) add(f *pflag.FlagSet) {
	f.StringVar(&p.agent, "agent", "", "only batches of this agent")
	f.StringVar(&p.since, "since", "",
		"only batches that were submitted at this `TIME` or later, or at most so long ago")
	f.StringVar(&p.until, "until", "", "only batches that were submitted before this `TIME`, or longer ago")
}

func (p *period) check(now time.Time) (err error) {
	if p.agent != "" {
		if err := toolyard.CheckName("--agent", p.agent); err != nil {
			return err
		}
	}
	if p.from, err = momentOf("--since", p.since, now); err != nil {
		return err
	}
	p.to, err = momentOf("--until", p.until, now)
	return err
}

// momentOf reads a time, or how long before now it was; zero if there is none.
func momentOf(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, cli.Usagef("%s %q: use a time like %s, or how long ago, like 36h", flag, text,
			now.UTC().Format(time.RFC3339))
	}
	return t, nil
}

// inOrder reads batches, so many at a time, and yields what read makes of them in their order. It leaves out those of
// which read makes nil.
func inOrder[T any](ctx context.Context, kept iter.Seq2[natsbroker.Kept, error],
	read func(natsbroker.Kept) (*T, error)) iter.Seq2[*T, error] {
	type answer struct {
		made *T
		err  error
	}
	return func(yield func(*T, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var reading sync.WaitGroup
		defer reading.Wait()
		defer cancel()
		queue := make(chan chan answer, historyReaders-1)
		reading.Go(func() {
			defer close(queue)
			for k, err := range kept {
				a := make(chan answer, 1)
				select {
				case queue <- a:
				case <-ctx.Done():
					return
				}
				if err != nil {
					a <- answer{err: err}
					return
				}
				reading.Go(func() {
					made, err := read(k)
					a <- answer{made, err}
				})
			}
		})
		for a := range queue {
			switch got := <-a; {
			case got.err != nil:
				yield(nil, got.err)
				return
			case got.made != nil && !yield(got.made, nil):
				return
			}
		}
	}
}

// tell adds the whole log of a batch to what reads it. kept is false if the batch has expired.
func tell(ctx context.Context, b *natsbroker.Broker, k toolyard.BatchKey, log interface {
	Add(batch.Record)
	Stop(problem string)
}) (kept bool, err error) {
	for tail := b.Tail(k); ; {
		l, ok, err := tail.Next(ctx)
		if errors.Is(err, broker.ErrNoBatch) {
			return false, nil
		}
		_, unreadable := errors.AsType[*events.UnreadableError](err)
		switch {
		case unreadable, errors.Is(err, broker.ErrDamaged), errors.Is(err, events.ErrNewer):
			log.Stop(err.Error())
		case err != nil:
			return false, fmt.Errorf("read batch %s: %w", k, err)
		case ok:
			log.Add(l.Record)
			continue
		}
		return true, nil
	}
}
