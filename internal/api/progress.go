package api

import (
	"context"
	"time"

	"github.com/toolyard/toolyard"
)

// Progress goes out beside what a stream is for: events without an id, so that whoever comes again with Last-Event-ID
// goes on behind the last thing that is kept. What is missed of it is not sent again.

// progressEvent is the name of the events, and waitingEvent of those that say that the batch waits for its turn.
const (
	progressEvent = "progress"
	waitingEvent  = "waiting"
)

// progressEnd is how long what is left of the progress of a batch that is complete may take.
const progressEnd = time.Second

// telling is the progress that goes out beside something else.
type telling struct {
	cancel context.CancelFunc
	done   chan struct{}
	// endless says that it does not end by itself when the batch is complete.
	endless bool
}

// sendProgress writes what running calls report until the batch is complete, and that it waits for its turn while it
// does. Nothing else waits for it, and when it cannot go on the stream does.
func (s *Server) sendProgress(ctx context.Context, out *stream, k toolyard.BatchKey) *telling {
	return s.sendReports(ctx, out, k, true)
}

// sendWaiting writes that the batch waits for its turn, while it does, and nothing else.
func (s *Server) sendWaiting(ctx context.Context, out *stream, k toolyard.BatchKey) *telling {
	return s.sendReports(ctx, out, k, false)
}

func (s *Server) sendReports(ctx context.Context, out *stream, k toolyard.BatchKey, all bool) *telling {
	ctx, cancel := context.WithCancel(ctx)
	t := &telling{cancel: cancel, done: make(chan struct{}), endless: !all}
	f, leave, _ := s.reported.join(k.String(), report{}, func(report) bool { return true },
		func(ctx context.Context, t *topic[report]) error { return s.readProgress(ctx, k, t) })
	go func() {
		defer close(t.done)
		defer leave()
		if f.skip(ctx) != nil {
			return
		}
		for {
			got, err := f.take(ctx) // what is missing in it is not sent again
			if err != nil {
				return
			}
			var entries []entry
			for _, r := range got.items {
				if all || r.name == waitingEvent {
					entries = append(entries, entry{name: r.name, data: r.data})
				}
			}
			if out.sendAll(entries) != nil {
				return // the stream says so itself
			}
			if got.ended {
				if got.err != nil && ctx.Err() == nil {
					s.cfg.Log.Debug("progress is not told any more", "batch", k, "error", got.err)
				}
				return
			}
		}
	}()
	return t
}

// finish lets what is left go out: the batch is complete. After it, nothing does.
func (t *telling) finish() {
	if t == nil {
		return
	}
	if t.endless {
		t.stop()
		return
	}
	late := time.AfterFunc(progressEnd, t.cancel)
	defer late.Stop()
	<-t.done
}

// stop ends it at once.
func (t *telling) stop() {
	if t != nil {
		t.cancel()
		<-t.done
	}
}
