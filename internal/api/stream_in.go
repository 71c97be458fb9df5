package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/outcome"
	"github.com/toolyard/toolyard/internal/provider"
	"github.com/toolyard/toolyard/internal/provider/eventstream"
)

// A model's response while it is still being written: its raw event stream comes in, and results go out at the same
// time. The batch is opened when the first call begins and closed with the stream, however that ends; so whoever has
// lost the connection finds the same batch, with all calls that were whole, under the id that the answer began with.

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
	Supersede     bool     `query:"supersede" doc:"End the calls of the session's other batches that wait for a person."`
	Repair        bool     `query:"repair" doc:"Mend inputs that are no valid JSON, where there is one way to read them, and what a worker's own repair mends."`
	DryRun        bool     `query:"dry_run" doc:"Answer each call with what would happen, and run none."`
	Snapshot      bool     `query:"snapshot" doc:"Keep the workspace as it is before each exclusive group, so that the batch can be undone."`
	Overlay       bool     `query:"overlay" doc:"Run the calls on a copy of the workspace, whose changes a person then commits or drops."`
	Tags          []string `query:"tag,explode" doc:"What the workers must have that run the calls; may be given many times."`
	Priority      string   `query:"priority" enum:"interactive,bulk" doc:"Interactive batches go before bulk ones."`
	NamedLocks    bool     `query:"named_locks" doc:"Have calls whose tools declare locks take those names in place of the whole workspace."`
	BackgroundMS  int64    `query:"background_after_ms" minimum:"1" maximum:"300000" doc:"A command that is not over after so many milliseconds goes on as a background call."`
	Fence         bool     `query:"fence" doc:"Put outputs that come from outside between delimiters that no output can forge."`
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
		return nil, newProblem(http.StatusUnsupportedMediaType, "Content-Type",
			"the body must be %s, as the provider sends it, and say so", sseType)
	}
	b := toolyard.Batch{
		ID: toolyard.BatchID(in.ID), Session: toolyard.Session(in.Session), Workspace: toolyard.Workspace(in.Workspace),
		Interactive: in.Interactive,
		Open:        true, Calls: []toolyard.Call{},
		Options: toolyard.Options{
			Partition: toolyard.Strategy(in.Partition), MaxConcurrency: in.Concurrency,
			OnError:   toolyard.OnError(in.OnError),
			TimeoutMS: in.TimeoutMS, CallTimeoutMS: in.CallTimeoutMS, Deny: in.Deny, Ask: in.Ask,
			Supersede: in.Supersede, Repair: in.Repair, DryRun: in.DryRun, Snapshot: in.Snapshot,
			Overlay: in.Overlay, NamedLocks: in.NamedLocks, BackgroundAfterMS: in.BackgroundMS,
			Priority: toolyard.Priority(in.Priority), Fence: in.Fence,
		},
	}
	for _, t := range in.Tags {
		b.Options.Tags = append(b.Options.Tags, toolyard.Tag(t))
	}
	if b.Agent, err = x.who.submits("", in.Agent); err != nil {
		return nil, err
	}
	if err := x.who.permit(&b); err != nil {
		return nil, err
	}
	if b.ID == "" {
		x.doubles = theBatch // whose id is told first
	}
	b.Normalize(s.newID(b.Agent))
	x.of(b.Key())
	if err := cmp.Or(b.Validate(), s.cfg.CheckOptions(b.Options)); err != nil {
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
	leave, err := enter(s.streams, x.who)
	if err != nil {
		return nil, err
	}
	if err := x.conn.EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) { // HTTP/2 needs no asking
		leave()
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) {
		defer leave()
		(&feeding{s: s, x: x, batch: b, format: format, opened: make(chan struct{}),
			over: make(chan struct{})}).run(d)
	}}, nil
}

// feeding is one stream under way.
type feeding struct {
	s      *Server
	x      *exchange
	batch  toolyard.Batch
	format provider.Format
	out    *stream
	calls  *client.Stream
	closed bool          // the batch is
	opened chan struct{} // closed when the batch is there

	// handed are the calls of the response, in its order, and stale the indices of those that went out before it began
	// anew. They are read when over is closed: nothing follows.
	handed []handed
	stale  []int
	over   chan struct{}
}

// handed is a call of the response: one of the batch, by its index, or one that came when the batch was closed.
type handed struct {
	index int // -1 when it came too late
	call  toolyard.Call
}

// Noted is the data of the event that tells what a response has beside the calls that are answered here.
type Noted struct {
	Items []eventstream.Note `json:"items"`
}

// run reads the stream in this goroutine and sends results in another: a client that does not read holds up results
// alone.
func (f *feeding) run(d *eventstream.Decoder) {
	// A body that is silent for too long ends the request's own context, and its client waits for results all the same.
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.x.r.Context()))
	defer cancel()
	defer context.AfterFunc(f.s.stopping, cancel)()
	defer f.x.who.whenRevoked(cancel)()
	k := f.batch.Key()
	f.x.w.Header().Set(batchHeader, string(k.ID))
	f.out = openStream(ctx, f.x, false)
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
	over := sync.OnceFunc(func() { close(f.over) })
	_, err := provider.Pump(d, body, provider.Sink{
		Begin:  f.open,
		Append: f.append,
		Anew:   f.anew,
		Close: func(cut error) error {
			body.drain() // what comes behind the last event is not waited for as long
			f.tellCut(cut)
			if notes := d.Notes(); len(notes) > 0 {
				f.say("note", Noted{notes})
			}
			over()
			if !f.isOpen() {
				close(silent)
			}
			return f.close(body.lost)
		},
	})
	unneeded()
	over()
	if err != nil {
		f.s.sendProblem(f.x, f.out, err)
		if err := f.close(body.lost); err != nil { // the idle limit will
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
	var err error
	if f.calls, err = handIn(ctx, f.s, f.batch, 0, f.s.cfg.Client.Open); err != nil {
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
	first, err := f.calls.AppendAt(ctx, calls...)
	if len(calls) > 1 && errors.Is(err, client.ErrClosed) { // some of them may be there
		for i := range calls {
			if err := f.append(calls[i : i+1]); err != nil {
				return err
			}
		}
		return nil
	}
	if errors.Is(err, client.ErrClosed) && len(f.handed)+len(f.stale) > 0 { // it was cut before, and is sent again
		f.handed = append(f.handed, handed{-1, calls[0]})
		return nil
	}
	if err != nil {
		return err
	}
	for i, c := range calls {
		f.handed = append(f.handed, handed{first + i, toolyard.Call{ID: c.ID, Tool: c.Tool}})
	}
	return nil
}

// anew forgets what went out of a response that begins anew. The batch is read again: the same calls may come again.
func (f *feeding) anew() {
	for _, h := range f.handed {
		if h.index >= 0 {
			f.stale = append(f.stale, h.index)
		}
	}
	f.handed = nil
	if f.isOpen() {
		f.calls = f.s.cfg.Client.Reopen(f.batch.Key())
	}
}

// close says that no calls follow, to a batch that is there and open. When the connection is lost and somebody else has
// appended to it, such as the same client that has come again, it is the other's to close.
func (f *feeding) close(lost bool) (err error) {
	if !f.isOpen() || f.closed {
		return nil
	}
	ctx, done := f.work()
	defer done()
	if stale := f.superseded(); len(stale) > 0 {
		if err := f.calls.Cancel(ctx, "the model's response began anew", stale...); err != nil {
			f.s.cfg.Log.Warn("calls of a response that began anew were not canceled", "batch", f.calls.Key(), "error",
				err)
		}
	}
	if lost {
		err = f.calls.Release(ctx)
	} else {
		err = f.calls.Close(ctx)
	}
	f.closed = err == nil
	return err
}

// superseded are the calls that went out and are not in the response as it ended.
func (f *feeding) superseded() []int {
	return slices.DeleteFunc(slices.Clone(f.stale), func(i int) bool {
		return slices.ContainsFunc(f.handed, func(h handed) bool { return h.index == i })
	})
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
		select { // what the response has is known at its end
		case <-f.over:
		case <-ctx.Done():
			return ctx.Err()
		}
		if late := f.late(); late > 0 {
			f.say("cut", newProblem(http.StatusConflict, "id",
				"%d of the calls came when the batch was closed, and have not run; the reply says so", late))
		}
		if len(f.handed) == 0 {
			return nil
		}
		if f.format == provider.Native {
			f.say("reply", st.View())
			return nil
		}
		answer, err := f.reply(ctx, sub, st.Notice)
		if err == nil {
			f.say("reply", answer.Body)
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		f.s.sendProblem(f.x, f.out, err)
	}
}

// late is how many calls came when the batch was closed.
func (f *feeding) late() (n int) {
	for _, h := range f.handed {
		if h.index < 0 {
			n++
		}
	}
	return n
}

// reply is what goes back to the provider: an answer to each call of the response.
func (f *feeding) reply(ctx context.Context, sub *client.Batch, notice *toolyard.Notice) (*batchAnswer, error) {
	have, err := f.s.resultsOf(ctx, sub.Key())
	if err != nil {
		return nil, err
	}
	calls, results := make([]toolyard.Call, len(f.handed)), make([]toolyard.Result, len(f.handed))
	for i, h := range f.handed {
		calls[i] = h.call
		switch {
		case h.index < 0:
			results[i] = outcome.NotRun(i, h.call, toolyard.IncompleteCall,
				"The call came when its batch was closed already, and nothing was run. Make the call again.",
				"the batch was closed")
		case h.index < len(have):
			results[i] = have[h.index]
		default:
			return nil, fmt.Errorf("batch %s has no result of call %d", sub.Key(), h.index)
		}
		results[i].Index = i
	}
	return render(ctx, sub, calls, results, notice, f.format)
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
	// ended is called at its end: from then on the request's context says when the client is gone. Before, reading
	// does.
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
