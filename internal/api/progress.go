package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/follow"
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
	go func() {
		defer close(t.done)
		for reports, err := range s.cfg.Reader.Progress(ctx, k) {
			var entries []entry
			if err == nil {
				entries, err = reportEntries(reports, all)
			}
			if err != nil && ctx.Err() == nil {
				s.cfg.Log.Debug("progress is not told any more", "batch", k, "error", err)
			}
			if err != nil || out.sendAll(entries) != nil { // of the stream it says so itself
				return
			}
		}
	}()
	return t
}

// reportEntries are reports as a stream has them: all, or only those that say that the batch waits.
func reportEntries(reports []follow.Report, all bool) (out []entry, err error) {
	for _, p := range reports {
		e, said := entry{name: progressEvent}, any(client.Progress{Index: p.Index, CallID: p.CallID, Tool: p.Tool,
			Worker: p.Worker, Attempt: p.Attempt, Progress: p.Progress, LostBytes: p.LostBytes})
		switch {
		case p.Waiting != nil:
			e.name, said = waitingEvent, client.Waiting{Running: p.Waiting.Running, Waiting: p.Waiting.Waiting}
		case !all:
			continue
		}
		if e.data, err = json.Marshal(said); err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
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
