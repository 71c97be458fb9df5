package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/submission"
)

// Open batches. No process holds one: each request reads what was appended so far, and appends behind exactly that.

// Appended says where appended calls stand in the batch.
type Appended struct {
	ID    toolyard.BatchID `json:"id"`
	First int              `json:"first" doc:"The index of the first of these calls."`
	Calls int              `json:"calls" doc:"How many calls the batch has up to and with these."`
}

type appendAnswer struct {
	Status int
	Body   Appended
}

func (s *Server) appendCalls(ctx context.Context, x *exchange, in *BatchPath) (*appendAnswer, error) {
	k, err := x.key(*in)
	if err != nil {
		return nil, err
	}
	leave, err := enter(s.submissions, x.who)
	if err != nil {
		return nil, err
	}
	defer leave()
	data, err := x.body(MaxBodyBytes, false)
	if err != nil {
		return nil, err
	}
	calls, err := decodeCalls(data)
	if err != nil {
		return nil, err
	}
	if err := x.who.calls(calls); err != nil {
		return nil, err
	}
	to := &appender{s: s, k: k}
	if err := to.read(ctx); err != nil {
		return nil, err
	}
	if err := x.who.workspace(to.st.Submission.Workspace); err != nil {
		return nil, err
	}
	out, err := to.append(ctx, calls)
	if err != nil {
		return nil, err
	}
	return &appendAnswer{http.StatusAccepted, out}, nil
}

// appender appends calls to one batch. It remembers what it has read and appended, and reads again when somebody else
// was there.
type appender struct {
	s *Server
	k toolyard.BatchKey
	// known says that the following is how the batch stood.
	known bool
	have  []toolyard.Call // without the inputs of those that were appended here
	input submission.Input
	st    batch.State
	own   map[string]bool // the ids of calls that were appended here
}

// append adds calls behind all others, or finds those that are there already: a client that saw no answer sends them
// again.
func (a *appender) append(ctx context.Context, calls []toolyard.Call) (Appended, error) {
	for range maxAppendTries {
		if err := a.read(ctx); err != nil {
			return Appended{}, err
		}
		out := Appended{ID: a.k.ID, First: len(a.have), Calls: len(a.have) + len(calls)}
		if at, again := repeated(a.have, calls); again && !a.own[calls[0].ID] {
			out.First, out.Calls = at, at+len(calls)
			return out, nil
		}
		if a.st.InputClosed {
			return out, fmt.Errorf("%w: %s", client.ErrClosed, a.k)
		}
		fresh, err := a.input.Fit(calls)
		if err != nil {
			return out, err
		}
		rec, err := a.s.cfg.Broker.Append(ctx, a.k, batch.ChainInput, "", 0, a.st.InputSeq,
			events.Appended{Calls: fresh})
		if errors.Is(err, broker.ErrConflict) {
			a.known = false
			continue
		}
		if err != nil {
			return out, err
		}
		a.st.InputSeq = rec.Seq
		a.input.Add(fresh)
		for _, c := range fresh {
			a.have = append(a.have, toolyard.Call{ID: c.ID, Tool: c.Tool})
			if a.own == nil {
				a.own = map[string]bool{}
			}
			a.own[c.ID] = true
		}
		return out, nil
	}
	return Appended{}, newProblem(http.StatusTooManyRequests, "",
		"%d others appended to this batch first; try again later", maxAppendTries).again()
}

// read finds out how the batch stands, unless that is known.
func (a *appender) read(ctx context.Context) (err error) {
	if a.known {
		return nil
	}
	if a.have, a.st, err = a.s.input(ctx, a.k); err != nil {
		return err
	}
	a.known, a.input = true, submission.Input{}
	a.input.Add(a.have)
	return nil
}

// input reads the calls that an open batch has so far, and the state of what is appended to it.
func (s *Server) input(ctx context.Context, k toolyard.BatchKey) ([]toolyard.Call, batch.State, error) {
	st := batch.State{Key: k}
	done, err := s.turns.take(ctx, string(k.Agent))
	if err != nil {
		return nil, st, err
	}
	defer done()
	first, _, err := s.cfg.Broker.Tail(k).Next(ctx)
	if errors.Is(err, client.ErrNoBatch) {
		return nil, st, s.missing(k, err)
	}
	if err != nil {
		return nil, st, err
	}
	sub, ok := first.Body.(events.Submitted)
	if !ok {
		return nil, st, fmt.Errorf("batch %s begins with %T", k, first.Body)
	}
	if !sub.Open {
		return nil, st, newProblem(http.StatusConflict, "id", "batch %s was submitted whole, not opened", k)
	}
	if err := s.cfg.Broker.CatchUp(ctx, &st, batch.ChainInput, 0); err != nil {
		return nil, st, err
	}
	st.Submission = &sub.Batch
	return slices.Concat(sub.Calls, st.Input), st, nil
}

// repeated reports whether calls are there already, and where: a client that saw no answer sends them again. Only calls
// with ids can be known again.
//
// A call that was cut, here or there, is known by its id and its tool: a stream that is sent again may be cut
// elsewhere, or whole.
func repeated(have, calls []toolyard.Call) (at int, ok bool) {
	at = slices.IndexFunc(have, func(c toolyard.Call) bool { return c.ID == calls[0].ID })
	if at < 0 || at+len(calls) > len(have) {
		return 0, false
	}
	for i, c := range calls {
		h := have[at+i]
		if c.ID != h.ID || c.Tool != h.Tool || !c.Incomplete && !h.Incomplete &&
			!submission.SameInput(c.Input, h.Input) {
			return 0, false
		}
	}
	return at, true
}

func (s *Server) closeBatch(ctx context.Context, x *exchange, in *BatchPath) (*batchAnswer, error) {
	k, err := x.key(*in)
	if err != nil {
		return nil, err
	}
	data, err := x.body(MaxSmallBodyBytes, true)
	if err != nil {
		return nil, err
	}
	if _, err := object(data); err != nil {
		return nil, err
	}
	_, st, err := s.input(ctx, k)
	if err != nil {
		return nil, err
	}
	if !st.InputClosed {
		if _, err := s.cfg.Broker.Input(ctx, k, st.InputSeq, events.Closed{By: "agent"}); err != nil {
			return nil, err
		}
	}
	whole, err := s.fold(ctx, k)
	return &batchAnswer{Status: http.StatusAccepted, Body: whole.View()}, err
}
