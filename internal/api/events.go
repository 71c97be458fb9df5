package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/toolyard/toolyard/client"
)

// A batch's events come out of two streams, and where they are merged is not the same at every reading. So the id of an
// event on the wire is how far both were read, and going on behind it leaves none out and sends none twice.

// cursor is how far the streams of events and of replies were read. The zero cursor is behind the submission.
type cursor struct{ event, reply uint64 }

// before reports whether whoever has read up to d has read what is up to c.
func (c cursor) before(d cursor) bool { return c.event <= d.event && c.reply <= d.reply }

func (c cursor) String() string { return fmt.Sprintf("%d.%d", c.event, c.reply) }

func parseCursor(id string) (c cursor, err error) {
	_, err = fmt.Sscanf(id, "%d.%d", &c.event, &c.reply)
	if err == nil && c.String() != id {
		err = errors.New("it is written otherwise")
	}
	return c, err
}

// pass moves the cursor over an event, or a reply, and reports whether it was behind the cursor.
func (c *cursor) pass(isReply bool, seq uint64) bool {
	at := &c.event
	if isReply {
		at = &c.reply
	}
	if seq <= *at {
		return false
	}
	*at = seq
	return true
}

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
	at, resumed := cursor{}, in.LastEventID != ""
	if resumed {
		if at, err = parseCursor(in.LastEventID); err != nil {
			return nil, newProblem(http.StatusBadRequest, "Last-Event-ID", "is no id of an event of this stream")
		}
	}
	if err := s.cfg.Broker.Find(ctx, k); errors.Is(err, client.ErrNoBatch) {
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
		out := openStream(x, lines)
		defer out.beat(ctx, cancel)()
		var progress *telling
		if in.Progress == "true" && in.Follow != "false" {
			progress = s.sendProgress(ctx, out, k)
		}
		defer func() { progress.stop() }()
		err := s.followEvents(ctx, out, k, at, resumed, in.Follow != "false")
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

// wantsLines reads an Accept header: lines of JSON, unless server-sent events are asked for.
func wantsLines(accept string) (bool, error) {
	lower := strings.ToLower(accept)
	switch {
	case strings.Contains(lower, sseType):
		return false, nil
	case lower == "", strings.Contains(lower, "*/*"), strings.Contains(lower, "application/"):
		return true, nil
	}
	return false, newProblem(http.StatusNotAcceptable, "Accept", "events come as %s or %s", ndjsonType, sseType)
}
