package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/toolyard/toolyard"
)

// Progress goes out beside what a stream is for: events without an id, so that whoever comes again with Last-Event-ID goes on
// behind the last thing that is kept. What is missed of it is not sent again.

// progressEvent is the name of the events.
const progressEvent = "progress"

// progressEnd is how long what is left of the progress of a batch that is complete may take.
const progressEnd = time.Second

// telling is the progress that goes out beside something else. A nil one tells nothing.
type telling struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// sendProgress writes what running calls report until the batch is complete. Nothing else waits for it, and when it cannot go on
// the stream does.
func (s *Server) sendProgress(ctx context.Context, out *stream, k toolyard.BatchKey) *telling {
	ctx, cancel := context.WithCancel(ctx)
	t := &telling{cancel, make(chan struct{})}
	go func() {
		defer close(t.done)
		for p, err := range s.cfg.Client.Batch(k).Progress(ctx) {
			if err != nil {
				if ctx.Err() == nil {
					s.cfg.Log.Debug("progress is not told any more", "batch", k, "error", err)
				}
				return
			}
			data, err := json.Marshal(p)
			if err != nil {
				s.cfg.Log.Error("a report of progress cannot be told", "batch", k, "error", err)
				continue
			}
			if out.send("", progressEvent, data) != nil {
				return // the stream says so itself
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
