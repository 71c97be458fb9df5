package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/provider"
	"github.com/toolyard/toolyard/internal/provider/eventstream"
)

// A model's response while it is still being written: its raw event stream comes in, and results go out at the same time. The
// batch is opened when the first call begins and closed with the stream, however that ends; so whoever has lost the connection
// finds the same batch, with all calls that were whole, under the id that the answer began with.

// batchHeader tells the batch's id before there is any event.
const batchHeader = "Toolyard-Batch"

type feedInput struct {
	Provider      string   `path:"provider" enum:"anthropic,openai,openai-chat" doc:"Whose event stream it is."`
	ID            string   `query:"id" doc:"The batch's id. The same stream under the same id is the same batch. One is made when it is left out."`
	Agent         string   `query:"agent" doc:"Whose batch it is, when no token says so."`
	Session       string   `query:"session" doc:"The conversation."`
	Workspace     string   `query:"workspace" doc:"Where the calls act."`
	Interactive   bool     `query:"interactive" doc:"A person can be asked: calls that need one wait."`
	Partition     string   `query:"partition" enum:"consecutive,safe_first,sequential,ordered_halt" doc:"How calls become groups."`
	Concurrency   int      `query:"max_concurrency" minimum:"1" maximum:"1000" doc:"How many calls are in flight."`
	OnError       string   `query:"on_error" enum:"cancel_group,continue" doc:"What a call that fails while executing does to its group."`
	TimeoutMS     int64    `query:"timeout_ms" minimum:"1" doc:"Bounds the batch."`
	CallTimeoutMS int64    `query:"call_timeout_ms" minimum:"1" doc:"Caps each call."`
	Deny          []string `query:"deny,explode" doc:"A rule for what must not run; may be given many times."`
	Ask           []string `query:"ask,explode" doc:"A rule for what a person is asked about; may be given many times."`
	Format        string   `query:"format" enum:"native,anthropic,openai,openai-chat,gemini" doc:"The form of the event reply; left out, it is that of the stream's provider."`
}

// Began is the data of the first event of an answer to a stream.
type Began struct {
	ID      string `json:"id" doc:"The batch's id."`
	Agent   string `json:"agent" doc:"Whose it is."`
	Results string `json:"results" doc:"Where the results go on when this connection is lost, with Last-Event-ID. It is there when the first call has begun."`
}

func (s *Server) feed(ctx context.Context, x *exchange, in *feedInput) (*huma.StreamResponse, error) {
	kind, _, err := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	if err != nil || kind != sseType { // a page of another site cannot say so without asking first
		return nil, newProblem(http.StatusUnsupportedMediaType, "Content-Type", "the body must be %s, as the provider sends it, and say so", sseType)
	}
	b := toolyard.Batch{
		ID: toolyard.BatchID(in.ID), Session: toolyard.Session(in.Session), Workspace: toolyard.Workspace(in.Workspace), Interactive: in.Interactive,
		Open: true, Calls: []toolyard.Call{},
		Options: toolyard.Options{
			Partition: toolyard.Strategy(in.Partition), MaxConcurrency: in.Concurrency, OnError: toolyard.OnError(in.OnError),
			TimeoutMS: in.TimeoutMS, CallTimeoutMS: in.CallTimeoutMS, Deny: in.Deny, Ask: in.Ask,
		},
	}
	if b.Agent, err = x.who.submits("", in.Agent); err != nil {
		return nil, err
	}
	if err := x.who.permit(&b); err != nil {
		return nil, err
	}
	b.Normalize(toolyard.BatchID(broker.NewID()))
	if err := b.Validate(); err != nil {
		return nil, err
	}
	if err := s.takesNew(ctx, b.Key()); err != nil { // before anything was said
		return nil, err
	}
	format := provider.Format(in.Format)
	if format == "" {
		format = provider.Format(in.Provider)
	}
	d, err := provider.Stream(provider.Format(in.Provider))
	if err != nil {
		return nil, err
	}
	leave, err := s.streams.enter(x.who)
	if err != nil {
		return nil, err
	}
	if err := x.conn.EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) { // HTTP/2 needs no asking
		leave()
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) {
		defer leave()
		(&feeding{s: s, x: x, batch: b, made: in.ID == "", format: format, opened: make(chan struct{})}).run(d)
	}}, nil
}

// feeding is one stream under way.
type feeding struct {
	s      *Server
	x      *exchange
	batch  toolyard.Batch
	made   bool // the id is ours: nobody else has such a batch
	format provider.Format
	out    *stream
	calls  appender
	opened chan struct{} // closed when the batch is there
}

// run reads the stream in this goroutine and sends results in another: a client that does not read holds up results alone.
func (f *feeding) run(d *eventstream.Decoder) {
	// A body that is silent for too long ends the request's own context, and its client waits for results all the same.
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.x.r.Context()))
	defer cancel()
	defer context.AfterFunc(f.s.stopping, cancel)()
	defer f.x.who.whenRevoked(cancel)()
	k := f.batch.Key()
	f.x.w.Header().Set(batchHeader, string(k.ID))
	f.out = openStream(f.x, false)
	defer f.out.beat(ctx, cancel)()
	f.say("batch", Began{ID: string(k.ID), Agent: string(k.Agent), Results: f.x.under(k, "/results")})

	silent := make(chan struct{}) // closed when the stream is over and has no batch
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		select {
		case <-f.opened:
			f.sendResults(ctx)
		case <-silent:
			f.say("completed", Completed{Status: toolyard.StatusCompleted})
		case <-ctx.Done():
		}
	}()
	gone := func() bool { return false }
	body := &feedBody{x: f.x, idle: f.s.cfg.FeedIdle, until: time.Now().Add(maxFeed), ended: func() {
		gone = context.AfterFunc(f.x.r.Context(), cancel)
	}}
	defer func() { gone() }()
	unneeded := context.AfterFunc(ctx, body.stop)
	_, err := provider.Pump(d, body, provider.Sink{
		Begin:  f.open,
		Append: f.append,
		Close: func(cut error) error {
			body.drain() // what comes behind the last event is not waited for as long
			f.tellCut(cut)
			if !f.isOpen() {
				close(silent)
			}
			return f.close()
		},
	})
	unneeded()
	if err != nil {
		f.s.sendProblem(f.x, f.out, err)
		if err := f.close(); err != nil { // the idle limit will
			f.s.cfg.Log.Warn("the batch of a stream was not closed", "batch", k.String(), "error", err)
		}
	}
	if body.lost || err != nil && !f.isOpen() {
		cancel() // nobody listens, or there is nothing to say
	}
	<-sent
}

// isOpen reports whether the batch is there.
func (f *feeding) isOpen() bool {
	select {
	case <-f.opened:
		return true
	default:
		return false
	}
}

// work bounds a step that is taken whether or not the client is still there.
func (f *feeding) work() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(f.x.r.Context()), requestTimeout)
}

// open stores the batch, which has no calls yet: it is planned while the first call's input is still coming.
func (f *feeding) open() error {
	ctx, done := f.work()
	defer done()
	if _, err := f.s.handIn(ctx, f.batch, 0); err != nil {
		return err
	}
	f.calls = appender{s: f.s, k: f.batch.Key(), known: f.made}
	if err := f.calls.read(ctx); err != nil {
		return err
	}
	close(f.opened)
	return nil
}

func (f *feeding) append(calls []toolyard.Call) error {
	if err := f.x.who.calls(calls); err != nil {
		return err
	}
	ctx, done := f.work()
	defer done()
	_, err := f.calls.append(ctx, calls)
	return err
}

// close says that no calls follow, to a batch that is there.
func (f *feeding) close() error {
	if !f.isOpen() {
		return nil
	}
	ctx, done := f.work()
	defer done()
	_, err := f.s.cfg.Broker.Input(ctx, f.batch.Key(), f.calls.st.InputSeq, events.Closed{By: "agent"})
	return err
}

// tellCut says why the stream is not whole. The results of its calls come all the same.
func (f *feeding) tellCut(cut error) {
	if cut == nil {
		return
	}
	p := newProblem(http.StatusBadRequest, "", "%v", cut)
	if in, ok := errors.AsType[*toolyard.InputError](cut); ok {
		p.Field = in.Field
	}
	if errors.Is(cut, provider.ErrProvider) {
		p.Status, p.Title = http.StatusBadGateway, http.StatusText(http.StatusBadGateway)
	}
	f.say("cut", p)
}

// sendResults sends the results and, when all are there, what goes back to the provider.
func (f *feeding) sendResults(ctx context.Context) {
	sub := f.s.cfg.Client.Batch(f.batch.Key())
	err := f.s.writeResults(ctx, f.out, f.batch.Key(), 0, func(st batch.State) error {
		if len(st.Calls) == 0 {
			return nil
		}
		if f.format == provider.Native {
			f.say("reply", st.View())
			return nil
		}
		answer, err := f.s.rendered(ctx, sub, st, nil, f.format)
		if err == nil {
			f.say("reply", answer.Body)
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		f.s.sendProblem(f.x, f.out, err)
	}
}

// say sends an event. Whoever does not get it asks for the batch again.
func (f *feeding) say(name string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		f.s.sendProblem(f.x, f.out, err)
		return
	}
	_ = f.out.send("", name, data)
}

// feedBody is a body that may be silent for a while and go on for longer, and no more than that.
type feedBody struct {
	x    *exchange
	idle time.Duration
	// ended is called at its end: from then on the request's context says when the client is gone. Before, reading does.
	ended func()
	lost  bool // the connection is gone

	mu      sync.Mutex
	until   time.Time
	stopped bool
}

var errStopped = errors.New("nobody waits for it any more")

// Read returns io.EOF at the body's end, and an error when it takes too long.
func (p *feedBody) Read(b []byte) (int, error) {
	if err := p.wait(); err != nil {
		return 0, err
	}
	n, err := p.x.r.Body.Read(b)
	switch {
	case err == nil:
	case err == io.EOF:
		// What comes later on this connection is the end of the client's interest, and may come at any time.
		if err := deadlines(p.x.conn.SetReadDeadline(time.Time{})); err != nil {
			return n, err
		}
		p.ended()
	case p.isStopped():
		err = errStopped
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("nothing came for %s, or it took longer than %s", p.idle, maxFeed)
	default:
		p.lost = true
	}
	return n, err
}

func (p *feedBody) wait() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return errStopped
	}
	at := time.Now().Add(p.idle)
	if p.until.Before(at) {
		at = p.until
	}
	return deadlines(p.x.conn.SetReadDeadline(at))
}

func (p *feedBody) isStopped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopped
}

// stop ends a read that waits, and all others.
func (p *feedBody) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	_ = p.x.conn.SetReadDeadline(time.Unix(1, 0)) // it may be closed already
}

// drain bounds what is left of the body.
func (p *feedBody) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := time.Now().Add(feedDrain); at.Before(p.until) {
		p.until = at
	}
}
