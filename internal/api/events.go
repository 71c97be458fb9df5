package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/negotiation"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/follow"
)

// endEvent is the name of the last event of an event stream that has said all, for who asks for it.
const endEvent = "end"

type eventsInput struct {
	StreamInput
	Follow string `query:"follow" enum:"true,false" default:"true" doc:"false: what is stored now, and no more."`
	// Progress is for event streams: lines of JSON are CloudEvents.
	Progress string `query:"progress" enum:"false,true" default:"false" doc:"true: events progress too, of running calls; they have no id and may be missing. With text/event-stream only."`
	End      bool   `query:"end" doc:"Say with an event end that all was sent: without it the connection was lost. With text/event-stream only."`
	Accept   string `header:"Accept" doc:"application/x-ndjson (the default), or text/event-stream."`
}

func (s *Server) events(ctx context.Context, x *exchange, in *eventsInput) (*huma.StreamResponse, error) {
	k, err := x.key(in.BatchPath)
	if err != nil {
		return nil, err
	}
	lines, err := wantsLines(in.Accept)
	if err != nil {
		return nil, err
	}
	if lines && in.Progress == "true" {
		return nil, newProblem(http.StatusBadRequest, "progress", "comes in %s only; ask for that in Accept", sseType)
	}
	from := follow.From{Resumed: in.LastEventID != ""}
	if from.Resumed {
		if from.After, err = follow.ParseCursor(in.LastEventID); err != nil {
			return nil, newProblem(http.StatusBadRequest, "Last-Event-ID", "is no id of an event of this stream")
		}
	}
	if err := s.cfg.Reader.Find(ctx, k); errors.Is(err, client.ErrNoBatch) {
		return nil, s.missing(k, err)
	} else if err != nil {
		return nil, err
	}
	leave, err := enter(s.streams, x.who)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) {
		defer leave()
		alive, end := s.alive(x)
		defer end()
		ctx, cancel := context.WithCancel(alive)
		defer cancel()
		out := openStream(ctx, x, lines)
		defer out.beat(ctx, cancel)()
		var progress *telling
		if in.Progress == "true" && in.Follow != "false" {
			progress = s.sendProgress(ctx, out, k)
		}
		defer func() { progress.stop() }()
		err := s.sendEvents(ctx, out, k, from, in.Follow != "false")
		if err == nil {
			progress.finish()
		}
		switch {
		case ctx.Err() != nil: // the client is gone, or goes on with another server
		case err != nil:
			s.sendProblem(x, out, err)
		case in.End && !lines:
			_ = out.send("", endEvent, []byte("{}")) // whoever does not get it asks again
		}
	}}, nil
}

// sendEvents writes the events of a batch: those that are stored, and with live all others to the last.
func (s *Server) sendEvents(ctx context.Context, out *stream, k toolyard.BatchKey, from follow.From, live bool) error {
	for stored, err := range s.cfg.Reader.Events(ctx, k, from, live, out.slow) {
		if err != nil {
			return s.unread(ctx, k, err)
		}
		entries := make([]entry, len(stored))
		for i, e := range stored {
			entries[i] = entry{id: e.At.String(), name: "cloudevent", data: e.Data}
		}
		if err := out.sendAll(entries); err != nil {
			return err
		}
	}
	return nil
}

// wantsLines reads an Accept header: lines of JSON, unless server-sent events are asked for.
func wantsLines(accept string) (bool, error) {
	lower := strings.ToLower(accept)
	switch named := negotiation.SelectQValue(lower, []string{ndjsonType, sseType}); {
	case named != "":
		return named == ndjsonType, nil
	case lower == "", strings.Contains(lower, "*/*"), strings.Contains(lower, "application/"):
		return true, nil
	case strings.Contains(lower, "text/*"):
		return false, nil
	}
	return false, newProblem(http.StatusNotAcceptable, "Accept", "events come as %s or %s", ndjsonType, sseType)
}
