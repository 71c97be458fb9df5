package api

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/replay"
)

// What is kept of a session, and what an operator looks at.

type sessionAnswer struct{ Body client.Session }

// named is the session that a request means.
func (x *exchange) named(p sessionPath) (toolyard.Agent, toolyard.Session, error) {
	if err := toolyard.CheckName("id", p.ID); err != nil {
		return "", "", err
	}
	agent, err := x.who.meant(p.Agent)
	x.did.Agent, x.did.Session = string(agent), p.ID
	return agent, toolyard.Session(p.ID), err
}

func (s *Server) session(ctx context.Context, x *exchange, in *sessionPath) (*sessionAnswer, error) {
	agent, name, err := x.named(*in)
	if err != nil {
		return nil, err
	}
	v, err := s.cfg.Client.Session(ctx, agent, name)
	return &sessionAnswer{whole(v)}, err
}

// SessionChange is what may be changed of a session. What is left out stays.
type SessionChange struct {
	Unattended *bool    `json:"alone,omitempty" doc:"Whether nobody is there to ask. Only an operator's token says that somebody is."`
	Forget     bool     `json:"forget,omitempty" doc:"Ask again for all that people have allowed in the session."`
	Load       []string `json:"load,omitempty" doc:"Deferred tools that the model has seen the schemas of."`
}

func (s *Server) changeSession(ctx context.Context, x *exchange, in *sessionPath) (*sessionAnswer, error) {
	agent, name, err := x.named(*in)
	if err != nil {
		return nil, err
	}
	ctx, data, err := x.bodyFor(ctx, MaxSmallBodyBytes, false)
	if err != nil {
		return nil, err
	}
	change, err := decodeSessionChange(data)
	if err != nil {
		return nil, err
	}
	if change.Unattended != nil && !*change.Unattended &&
		!x.who.interactive() { // with somebody to ask, more is possible
		return nil, newProblem(http.StatusForbidden, "alone",
			"an agent does not say that somebody is there; use an operator's token")
	}
	v, err := s.cfg.Client.Session(ctx, agent, name)
	if err == nil && len(change.Load) > 0 { // first: a name that is none changes nothing
		v, err = s.cfg.Client.LoadTools(ctx, agent, name, change.Load...)
	}
	if err == nil && change.Unattended != nil {
		v, err = s.cfg.Client.SetUnattended(ctx, agent, name, *change.Unattended)
	}
	if err == nil && change.Forget {
		v, err = s.cfg.Client.Forget(ctx, agent, name)
	}
	return &sessionAnswer{whole(v)}, err
}

// whole puts empty lists where there are none: a reader of JSON counts what is there.
func whole(v client.Session) client.Session {
	v.Loaded, v.Remembered = append([]string{}, v.Loaded...), append([]string{}, v.Remembered...)
	if v.Context == nil {
		v.Context = map[string]string{}
	}
	return v
}

func decodeSessionChange(data []byte) (c SessionChange, err error) {
	o, err := object(data, "alone", "forget", "load")
	if err != nil {
		return c, err
	}
	if o.Given("alone") {
		alone, err := o.OptionalBool("alone")
		if err != nil {
			return c, err
		}
		c.Unattended = &alone
	}
	if c.Load, err = o.OptionalStrings("load"); err != nil {
		return c, err
	}
	c.Forget, err = o.OptionalBool("forget")
	return c, err
}

type deadInput struct {
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"How many to list at most."`
}

// DeadLetters are messages that could not be used.
type DeadLetters struct {
	DeadLetters []client.DeadLetter `json:"dead_letters" doc:"The newest first."`
}

func (s *Server) dead(ctx context.Context, x *exchange, in *deadInput) (*struct{ Body DeadLetters }, error) {
	if !x.who.any {
		return nil, newProblem(http.StatusForbidden, "", "dead letters may be any agent's; use an operator's token")
	}
	list, err := s.cfg.Client.DeadLetters(ctx, in.Limit)
	return &struct{ Body DeadLetters }{DeadLetters{append([]client.DeadLetter{}, list...)}}, err
}

type happeningInput struct {
	Agent string `query:"agent" doc:"Only batches of this agent."`
}

// Happening is an event of any batch, as it comes. What follows one batch misses nothing; what follows all says what it
// missed.
type Happening struct {
	Agent toolyard.Agent   `json:"agent,omitempty"`
	Batch toolyard.BatchID `json:"batch,omitempty"`
	Time  time.Time        `json:"time"`
	What  string           `json:"what,omitempty" doc:"What happened, in one line for a person."`
	Gap   string           `json:"gap,omitempty" doc:"Events are missing before this one, or may be. Without an event it says nothing else."`
	Event json.RawMessage  `json:"event,omitempty" doc:"The CloudEvent."`
}

func (s *Server) happening(_ context.Context, x *exchange, in *happeningInput) (*huma.StreamResponse, error) {
	agent, err := x.who.listed(in.Agent)
	if err != nil {
		return nil, err
	}
	leave, err := enter(s.streams, x.who)
	if err != nil {
		return nil, err
	}
	alive, end := s.alive(x)
	ctx, cancel := context.WithCancel(alive)
	stored, left, err := s.cfg.Reader.Everything(ctx, agent)
	if err != nil { // the answer's headers say that it has begun
		cancel()
		end()
		leave()
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) {
		defer leave()
		defer left()
		defer end()
		defer cancel()
		out := openStream(ctx, x, false)
		defer out.beat(ctx, cancel)()
		for all, err := range stored {
			var entries []entry
			if err == nil {
				entries, err = happeningEntries(all)
			}
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				s.sendProblem(x, out, err)
				return
			}
			if out.sendAll(entries) != nil {
				return
			}
		}
	}}, nil
}

func happeningEntries(all []follow.Happening) ([]entry, error) {
	out := make([]entry, len(all))
	for i, h := range all {
		said := Happening{Agent: h.Key.Agent, Batch: h.Key.ID, Time: h.Time, Gap: h.Gap, Event: h.Data}
		if h.Gap == "" {
			said.What = cmp.Or(replay.Words(h.Record, nil), string(h.Body.EventType()))
		}
		data, err := json.Marshal(said)
		if err != nil {
			return nil, err
		}
		out[i] = entry{name: "cloudevent", data: data}
	}
	return out, nil
}
