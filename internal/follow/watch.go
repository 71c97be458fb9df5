package follow

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
)

// Happening is an event of any batch as it comes, or that events are missing.
type Happening struct {
	Key toolyard.BatchKey
	broker.Logged
	// Data is the CloudEvent in JSON.
	Data []byte
	// Gap, if it is not empty, says that events are missing here. Then there is no event.
	Gap string
}

// Why events are missing.
const (
	gapLost = "events are missing: they came faster than they were read, or the connection to NATS was lost for a while"
	gapSlow = "events are missing: this stream is read too slowly"
	gapBad  = "an event cannot be read: "
)

// gap says that events are missing by now.
func gap(why string) Happening {
	h := Happening{Gap: why}
	h.Time = time.Now()
	return h
}

// Everything follows all batches of an agent, of all agents if it is empty. It has begun when it returns: what is
// stored from then on is yielded, as many events at a time as there are, until ctx ends or the connection is closed.
// leave is for when nobody loops any more.
func (r *Reader) Everything(ctx context.Context, agent toolyard.Agent) (_ iter.Seq2[[]Happening, error], leave func(),
	err error) {
	f, leave, _ := r.everything.join(agent, Happening{}, func(Happening) bool { return true },
		func(ctx context.Context, t *topic[Happening]) error { return r.readEverything(ctx, agent, t) })
	if err := f.skip(ctx); err != nil {
		leave()
		return nil, nil, err
	}
	return func(yield func([]Happening, error) bool) {
		for {
			got, err := f.take(ctx)
			if got.behind {
				got.items = append([]Happening{gap(gapSlow)}, got.items...)
			}
			if len(got.items) > 0 && !yield(got.items, nil) {
				return
			}
			if err == nil && got.ended { // behind what had come before
				err = got.err
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}, leave, nil
}

// readEverything fills a topic with what happens to all batches of an agent, of all agents if it is empty.
func (r *Reader) readEverything(ctx context.Context, agent toolyard.Agent, t *topic[Happening]) error {
	setup, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	ear, err := r.hub.Everything(setup, agent)
	if err != nil {
		return err
	}
	defer ear.Stop()
	t.begin()
	put := func(h Happening) { t.put(h, len(h.Data)) }
	for {
		msgs, lost := ear.Take()
		if lost {
			put(gap(gapLost))
			// A connection that is closed does not come back. One that is lost may, and then news come.
			if err := r.Present(ctx); err != nil && !errors.Is(err, broker.ErrNoAnswer) {
				return err
			}
		}
		for _, m := range msgs {
			var h Happening
			var err error
			if h.Key, h.Logged, err = r.hub.Read(ctx, m); err == nil {
				h.Data, err = h.JSON()
			}
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case err != nil:
				h = gap(gapBad + err.Error())
			}
			put(h)
		}
		if len(msgs) > 0 || lost {
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ear.News():
		}
	}
}
