package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/toolyard/toolyard"
)

// Progress goes out beside what a stream is for: events without an id, so that whoever comes again with Last-Event-ID goes on
// behind the last thing that is kept. What is missed of it is not sent again.

// progressEvent is the name of the events, and waitingEvent of those that say that the batch waits for its turn.
const (
	progressEvent = "progress"
	waitingEvent  = "waiting"
)

// progressEnd is how long what is left of the progress of a batch that is complete may take.
const progressEnd = time.Second

// telling is the progress that goes out beside something else. A nil one tells nothing.
type telling struct {
	cancel context.CancelFunc
	done   chan struct{}
	// endless says that it does not end by itself when the batch is complete.
	endless bool
}

// sendProgress writes what running calls report until the batch is complete, and that it waits for its turn while it does.
// Nothing else waits for it, and when it cannot go on the stream does.
func (s *Server) sendProgress(ctx context.Context, out *stream, k toolyard.BatchKey) *telling {
	ctx, cancel := context.WithCancel(ctx)
	t := &telling{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		for p, err := range s.cfg.Client.Batch(k).Progress(ctx) {
			if err != nil {
				if ctx.Err() == nil {
					s.cfg.Log.Debug("progress is not told any more", "batch", k, "error", err)
				}
				return
			}
			name, said := progressEvent, any(p)
			if p.Waiting != nil {
				name, said = waitingEvent, p.Waiting
			}
			if s.tell(out, name, said) != nil {
				return // the stream says so itself
			}
		}
	}()
	return t
}

// sendWaiting writes that the batch waits for its turn, while it does, and nothing else.
func (s *Server) sendWaiting(ctx context.Context, out *stream, k toolyard.BatchKey) *telling {
	feed, err := s.cfg.Broker.FollowProgress(k)
	if err != nil {
		s.cfg.Log.Debug("it is not told whether a batch waits", "batch", k, "error", err)
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	t := &telling{cancel: cancel, done: make(chan struct{}), endless: true}
	go func() {
		defer close(t.done)
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case m := <-feed.C:
				if p, ok := feed.Read(m); ok && p.Waiting != nil && s.tell(out, waitingEvent, p.Waiting) != nil {
					cancel() // the stream says so itself
				}
			}
		}
		if err := feed.Stop(); err != nil {
			s.cfg.Log.Debug("a feed was not stopped", "batch", k, "error", err)
		}
	}()
	return t
}

// tell writes an event without an id.
func (s *Server) tell(out *stream, name string, said any) error {
	data, err := json.Marshal(said)
	if err != nil {
		s.cfg.Log.Error("a report of progress cannot be told", "error", err)
		return nil
	}
	return out.send("", name, data)
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
