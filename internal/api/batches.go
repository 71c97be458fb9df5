package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/provider"
	"github.com/toolyard/toolyard/internal/submission"
)

// Submitting a batch, looking at it and stopping it.

// AnswerParams say what an answer about a batch looks like.
type AnswerParams struct {
	Wait   int    `query:"wait" minimum:"0" maximum:"600" doc:"Wait up to so many seconds for the batch to complete."`
	Format string `query:"format" enum:"native,anthropic,openai,openai-chat,gemini" doc:"Once the batch is complete, answer with exactly what goes back to that provider; native is the batch object."`
}

type submitInput struct {
	AnswerParams
	Open  bool   `query:"open" doc:"Open the batch: calls may be appended until it is closed, and it may begin with none."`
	Agent string `query:"agent" doc:"Whose batch it is, when neither the token nor the body says so."`
}

type BatchPath struct {
	ID    string `path:"id" doc:"The batch's id."`
	Agent string `query:"agent" doc:"Whose batch it is, when no token says so."`
}

type batchAnswer struct {
	Status   int
	Location string `header:"Location" doc:"The address of the batch."`
	// Body is a [toolyard.BatchView], or what goes back to a provider.
	Body any
}

// key is the batch that a request means.
func (x *exchange) key(p BatchPath) (toolyard.BatchKey, error) {
	if err := toolyard.CheckName("id", p.ID); err != nil {
		return toolyard.BatchKey{}, err
	}
	agent, err := x.who.meant(p.Agent)
	k := toolyard.BatchKey{Agent: agent, ID: toolyard.BatchID(p.ID)}
	x.of(k)
	return k, err
}

// location is where a batch is found.
func (x *exchange) location(k toolyard.BatchKey) string { return x.under(k, "") }

// under is a path of a batch, with the query that finds it.
func (x *exchange) under(k toolyard.BatchKey, path string) string {
	at := "/v1/batches/" + submission.PathSegment(string(k.ID)) + path
	if x.who.any && k.Agent != toolyard.DefaultAgent || !x.who.any && k.Agent != x.who.agent {
		at += "?agent=" + url.QueryEscape(string(k.Agent))
	}
	return at
}

func (s *Server) submit(ctx context.Context, x *exchange, in *submitInput) (*batchAnswer, error) {
	leave, err := s.mayWait(x, in.AnswerParams) // or nothing is stored: who is told 429 sends it again
	if err != nil {
		return nil, err
	}
	defer leave()
	sub, err := s.accept(ctx, x, in)
	if err != nil {
		return nil, err
	}
	return s.stored(x, sub, in.AnswerParams)
}

// mayWait lets a request in that waits, until leave is called. Others need no place.
func (s *Server) mayWait(x *exchange, p AnswerParams) (leave func(), err error) {
	if p.Wait == 0 {
		return func() {}, nil
	}
	return enter(s.streams, x.who)
}

// stored is the answer to who has just handed a batch in.
func (s *Server) stored(x *exchange, sub *client.Batch, p AnswerParams) (*batchAnswer, error) {
	out, err := s.answer(x, sub, p, true)
	if err != nil {
		return nil, err
	}
	out.Location = x.location(sub.Key())
	return out, nil
}

// accept reads a batch and stores it. What a body holds in memory is held by so many at a time.
func (s *Server) accept(ctx context.Context, x *exchange, in *submitInput) (*client.Batch, error) {
	leave, err := enter(s.submissions, x.who)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, data, err := x.bodyFor(ctx, MaxBodyBytes, false)
	if err != nil {
		return nil, err
	}
	b, err := decodeBatch(data)
	if err != nil {
		return nil, err
	}
	if b.Agent, err = x.who.submits(b.Agent, in.Agent); err != nil {
		return nil, err
	}
	b.Open = b.Open || in.Open
	if b.Open && b.Calls == nil {
		b.Calls = []toolyard.Call{}
	}
	return s.store(ctx, x, b, len(data))
}

// store stores a batch that the caller may hand in. bytes is how long it is.
func (s *Server) store(ctx context.Context, x *exchange, b toolyard.Batch, bytes int) (*client.Batch, error) {
	x.of(b.Key())
	handsIn(&x.did, b.Calls)
	if err := x.who.permit(&b); err != nil {
		return nil, err
	}
	if b.ID == "" {
		x.doubles = theBatches
	}
	sub, err := handIn(ctx, s, b, bytes, s.cfg.Client.Submit)
	if err == nil {
		x.of(sub.Key()) // which may have got its id there
	}
	return sub, err
}

// storeMade stores a batch that was made of another one, and answers as to one that has arrived.
func (s *Server) storeMade(ctx context.Context, x *exchange, b toolyard.Batch) (*batchAnswer, error) {
	leave, err := enter(s.submissions, x.who)
	if err != nil {
		return nil, err
	}
	sub, err := s.store(ctx, x, b, toolyard.CallBytes(b.Calls))
	leave()
	if err != nil {
		return nil, err
	}
	return s.stored(x, sub, AnswerParams{})
}

// answer says how a batch stands, after a wait if one is asked for, which [Server.mayWait] has let in: 200 when it is
// complete, 202 when it is not and that was asked. Who has just handed it in, and waits for nothing, is always told
// 202.
func (s *Server) answer(x *exchange, sub *client.Batch, p AnswerParams, submitted bool) (*batchAnswer, error) {
	format, err := provider.ParseFormat(p.Format)
	if err != nil {
		return nil, err
	}
	var results []toolyard.Result
	if p.Wait > 0 {
		if results, err = s.await(x, sub, time.Duration(p.Wait)*time.Second); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), requestTimeout)
	defer cancel()
	if err := x.writeWithin(requestTimeout + writeTimeout); err != nil {
		return nil, err
	}
	st, err := s.fold(ctx, sub.Key())
	if err != nil {
		return nil, err
	}
	renders := format != "" && format != provider.Native
	asked := p.Wait > 0 || renders
	switch {
	case !st.Completed && (asked || submitted), submitted && !asked:
		return &batchAnswer{Status: http.StatusAccepted, Body: st.View()}, nil
	case !renders:
		return &batchAnswer{Status: http.StatusOK, Body: st.View()}, nil
	}
	return s.rendered(ctx, sub, st, results, format)
}

// await waits until the batch is complete, the time is over, or the server stops. It returns the results of a batch
// that is complete, and none of one that is not.
func (s *Server) await(x *exchange, sub *client.Batch, most time.Duration) ([]toolyard.Result, error) {
	if err := x.writeWithin(most + writeTimeout); err != nil {
		return nil, err
	}
	alive, end := s.alive(x)
	defer end()
	ctx, cancel := context.WithTimeout(alive, most)
	defer cancel()
	results, err := s.resultsOf(ctx, sub.Key())
	if err != nil && ctx.Err() == nil {
		return nil, err
	}
	return results, x.r.Context().Err()
}

// resultsOf waits for all results of a batch.
func (s *Server) resultsOf(ctx context.Context, k toolyard.BatchKey) ([]toolyard.Result, error) {
	var results []toolyard.Result
	for r, err := range s.cfg.Reader.Replies(ctx, k, nil) {
		if err != nil {
			return nil, err
		}
		results = append(results, r.Results...)
	}
	return results, nil
}

// rendered is what goes back to a provider. The replies are what was answered, whatever became of the batch; they are
// read when they are not known.
func (s *Server) rendered(ctx context.Context, sub *client.Batch, st batch.State, results []toolyard.Result,
	format provider.Format) (*batchAnswer, error) {
	if results == nil {
		var err error
		if results, err = s.resultsOf(ctx, sub.Key()); err != nil {
			return nil, err
		}
	}
	calls := append(append([]toolyard.Call{}, st.Submission.Calls...), st.Input...)
	if len(results) > len(calls) {
		return nil, errors.New("batch " + sub.Key().String() + " has more results than calls")
	}
	return render(ctx, sub, calls[:len(results)], results, st.Notice, format)
}

// render is what goes back to a provider about these calls of a batch, or about calls that it could not take any more.
func render(
	ctx context.Context, sub *client.Batch, calls []toolyard.Call, results []toolyard.Result, notice *toolyard.Notice,
	format provider.Format,
) (*batchAnswer, error) {
	if format != provider.Native { // a model sees images, and no references to them
		if err := sub.Fill(ctx, results); err != nil {
			return nil, err
		}
	}
	out, err := provider.Render(format, calls, results, notice)
	return &batchAnswer{Status: http.StatusOK, Body: json.RawMessage(out)}, err
}

// fold reads a batch; one that was refused is the problem that it was refused with.
func (s *Server) fold(ctx context.Context, k toolyard.BatchKey) (batch.State, error) {
	st, err := s.cfg.Reader.State(ctx, k)
	if errors.Is(err, client.ErrNoBatch) {
		return st, s.missing(k, err)
	}
	if err != nil {
		return st, s.unread(ctx, k, err)
	}
	if st.Refused != nil {
		err = &follow.RefusedError{Refused: *st.Refused}
	}
	return st, err
}

// unread is what is said of a batch that cannot be read: what it was refused with, if its submission is the reason.
func (s *Server) unread(ctx context.Context, k toolyard.BatchKey, err error) error {
	if _, bad := errors.AsType[*events.UnreadableError](err); !bad {
		return err
	}
	replies, unanswered := s.cfg.Reader.RepliesFrom(ctx, k, 0, 1)
	if unanswered != nil || len(replies) == 0 {
		return err
	}
	if refused, ok := replies[0].Body.(events.Refused); ok {
		return &follow.RefusedError{Refused: refused}
	}
	return err
}

// missing says of a batch that is not there whether it is there no longer. Only an id that we made says when.
func (s *Server) missing(k toolyard.BatchKey, err error) error {
	id, bad := uuid.Parse(string(k.ID))
	if bad != nil || id.Version() != 7 {
		return err
	}
	made := time.Unix(id.Time().UnixTime())
	if lifetime := s.cfg.Reader.Settings().Lifetime; time.Since(made) > lifetime {
		return typed(err, http.StatusGone, "id", "batches are kept for %s, and this id is of %s", lifetime,
			made.UTC().Format(time.RFC3339))
	}
	return err
}

type showInput struct {
	BatchPath
	AnswerParams
}

func (s *Server) show(ctx context.Context, x *exchange, in *showInput) (*batchAnswer, error) {
	k, err := x.key(in.BatchPath)
	if err != nil {
		return nil, err
	}
	if in.Wait > 0 { // nothing is waited for that is not there
		if _, err := s.fold(ctx, k); err != nil {
			return nil, err
		}
	}
	leave, err := s.mayWait(x, in.AnswerParams)
	if err != nil {
		return nil, err
	}
	defer leave()
	return s.answer(x, s.cfg.Client.Batch(k), in.AnswerParams, false)
}

type listInput struct {
	Listed
	After uint64 `query:"after" doc:"Go on behind this place: the next of the page before. 0 begins with the newest."`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"How many batches a page has at most."`
}

// Listed says which batches of the index are meant.
type Listed struct {
	Agent   string `query:"agent" doc:"Only batches of this agent."`
	Session string `query:"session" doc:"Only batches of this session."`
	Status  string `query:"status" enum:"open,running,waiting,completed,canceled" doc:"Only batches that stand so."`
}

// filter is what the index is asked for. A caller lists only what it may see.
func (in *Listed) filter(who caller) (f client.Filter, err error) {
	if f.Agent, err = who.listed(in.Agent); err == nil && in.Session != "" {
		err = toolyard.CheckName("session", in.Session)
	}
	f.Session, f.Status = toolyard.Session(in.Session), toolyard.Status(in.Status)
	return f, err
}

// Page is a part of the list of batches.
type Page struct {
	Batches []client.BatchInfo `json:"batches" doc:"The newest first, in the order of submission. The list may be a moment behind."`
	Next    uint64             `json:"next,omitempty" doc:"The after of the next page; left out when this is the last."`
}

func (s *Server) list(ctx context.Context, x *exchange, in *listInput) (*struct{ Body Page }, error) {
	f, err := in.filter(x.who)
	if err != nil {
		return nil, err
	}
	f.After, f.Limit = in.After, in.Limit
	page, more, err := s.cfg.Client.Batches(ctx, f)
	if err != nil {
		return nil, err
	}
	out := Page{Batches: append([]client.BatchInfo{}, page...)}
	if more && len(page) > 0 {
		out.Next = page[len(page)-1].Cursor
	}
	return &struct{ Body Page }{out}, nil
}

func (s *Server) cancelBatch(ctx context.Context, x *exchange, in *BatchPath) (*batchAnswer, error) {
	ctx, data, err := x.bodyFor(ctx, MaxSmallBodyBytes, true)
	if err != nil {
		return nil, err
	}
	reason, calls, err := decodeCancel(data)
	if err != nil {
		return nil, err
	}
	out, err := s.cancel(ctx, x, *in, reason, calls...)
	if errors.Is(err, client.ErrNoCall) { // the body names it, and no path does
		err = typed(err, http.StatusNotFound, "calls", "%v", err)
	}
	return out, err
}

type CallPath struct {
	BatchPath
	Index int `path:"index" minimum:"0" doc:"The call's place in the batch."`
}

func (s *Server) cancelCall(ctx context.Context, x *exchange, in *CallPath) (*batchAnswer, error) {
	ctx, data, err := x.bodyFor(ctx, MaxSmallBodyBytes, true)
	if err != nil {
		return nil, err
	}
	reason, err := decodeReason(data)
	if err != nil {
		return nil, err
	}
	return s.cancel(ctx, x, in.BatchPath, reason, in.Index)
}

// cancel asks for calls to end, without any for all, and says how the batch stands then.
func (s *Server) cancel(ctx context.Context, x *exchange, p BatchPath, reason string, calls ...int) (*batchAnswer,
	error) {
	k, err := x.key(p)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Client.Batch(k).Cancel(ctx, reason, calls...); err != nil {
		if errors.Is(err, client.ErrNoBatch) {
			err = s.missing(k, err)
		}
		return nil, err
	}
	st, err := s.fold(ctx, k)
	return &batchAnswer{Status: http.StatusAccepted, Body: st.View()}, err
}

// undoBatch hands in a batch that undoes another.
func (s *Server) undoBatch(ctx context.Context, x *exchange, in *BatchPath) (*batchAnswer, error) {
	ctx, data, err := x.bodyFor(ctx, MaxSmallBodyBytes, true)
	if err != nil {
		return nil, err
	}
	how, err := decodeUndo(data)
	if err != nil {
		return nil, err
	}
	return s.actOn(ctx, x, in, how.Batch)
}

// useOverlay hands in a batch that shows, commits or drops the overlay of another.
func (s *Server) useOverlay(ctx context.Context, x *exchange, in *BatchPath) (*batchAnswer, error) {
	ctx, data, err := x.bodyFor(ctx, MaxSmallBodyBytes, false)
	if err != nil {
		return nil, err
	}
	how, err := decodeOverlayUse(data)
	if err != nil {
		return nil, err
	}
	return s.actOn(ctx, x, in, how.Batch)
}

// actOn hands in a batch that acts on another.
func (s *Server) actOn(ctx context.Context, x *exchange, in *BatchPath,
	made func(of toolyard.BatchView) (toolyard.Batch, error)) (*batchAnswer, error) {
	k, err := x.key(*in)
	if err != nil {
		return nil, err
	}
	st, err := s.fold(ctx, k)
	if err != nil {
		return nil, err
	}
	b, err := made(st.View())
	if err != nil {
		return nil, err
	}
	return s.storeMade(ctx, x, b)
}

type sessionPath struct {
	ID    string `path:"id" doc:"The session's name."`
	Agent string `query:"agent" doc:"Whose session it is, when no token says so."`
}

// Interrupted says how many batches were asked to stop, or what was ended with resolve.
type Interrupted struct {
	Batches int `json:"batches"`
	Calls   int `json:"calls"`
}

type interruptAnswer struct {
	Status int
	Body   Interrupted
}

func (s *Server) interrupt(ctx context.Context, x *exchange, in *sessionPath) (*interruptAnswer, error) {
	if err := toolyard.CheckName("id", in.ID); err != nil {
		return nil, err
	}
	agent, err := x.who.meant(in.Agent)
	if err != nil {
		return nil, err
	}
	x.did.Agent, x.did.Session, x.doubles = string(agent), in.ID, theSession
	ctx, data, err := x.bodyFor(ctx, MaxSmallBodyBytes, true)
	if err != nil {
		return nil, err
	}
	how, err := decodeInterruption(data)
	if err != nil {
		return nil, err
	}
	session := toolyard.Session(in.ID)
	if how.Resolve {
		done, err := s.cfg.Client.Resolve(ctx, agent, session, x.who.name, how.Reason)
		return &interruptAnswer{Status: http.StatusAccepted, Body: Interrupted(done)}, err
	}
	n, err := s.cfg.Client.Interrupt(ctx, agent, session, how.Reason)
	return &interruptAnswer{Status: http.StatusAccepted, Body: Interrupted{Batches: n}}, err
}
