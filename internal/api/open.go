package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
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
	leave, err := s.submissions.enter(x.who)
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
	for range maxAppendTries {
		have, st, err := s.input(ctx, k)
		if err != nil {
			return nil, err
		}
		out := Appended{ID: k.ID, First: len(have), Calls: len(have) + len(calls)}
		if at, again := repeated(have, calls); again {
			out.First, out.Calls = at, at+len(calls)
			return &appendAnswer{http.StatusAccepted, out}, nil
		}
		if st.InputClosed {
			return nil, fmt.Errorf("%w: %s", client.ErrClosed, k)
		}
		fresh := slices.Clone(calls)
		if err := checkAppended(have, fresh); err != nil {
			return nil, err
		}
		_, err = s.cfg.Broker.Append(ctx, k, batch.ChainInput, "", 0, st.InputSeq, events.Appended{Calls: fresh})
		if err == nil {
			return &appendAnswer{http.StatusAccepted, out}, nil
		}
		if !errors.Is(err, broker.ErrConflict) {
			return nil, err
		}
	}
	return nil, newProblem(http.StatusTooManyRequests, "", "%d others appended to this batch first; try again later", maxAppendTries).again()
}

// input reads the calls that an open batch has so far, and the state of what is appended to it.
func (s *Server) input(ctx context.Context, k toolyard.BatchKey) ([]toolyard.Call, batch.State, error) {
	st := batch.State{Key: k}
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
	return slices.Concat(sub.Calls, st.Input), st, nil
}

// repeated reports whether calls are there already, and where: a client that saw no answer sends them again. Only calls with
// ids can be known again.
func repeated(have, calls []toolyard.Call) (at int, ok bool) {
	at = slices.IndexFunc(have, func(c toolyard.Call) bool { return c.ID == calls[0].ID })
	if at < 0 || at+len(calls) > len(have) {
		return 0, false
	}
	for i, c := range calls {
		if h := have[at+i]; c.ID != h.ID || c.Tool != h.Tool || !sameInput(c.Input, h.Input) {
			return 0, false
		}
	}
	return at, true
}

// sameInput compares inputs whatever their white space and the order of their keys.
func sameInput(a, b json.RawMessage) bool {
	canonical := func(raw json.RawMessage) ([]byte, error) {
		if len(raw) == 0 || string(raw) == "null" {
			return []byte("{}"), nil
		}
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		return json.Marshal(v)
	}
	ca, errA := canonical(a)
	cb, errB := canonical(b)
	return errA == nil && errB == nil && bytes.Equal(ca, cb)
}

// checkAppended fills in and checks calls that are to stand behind others.
func checkAppended(have, calls []toolyard.Call) error {
	if n := len(have) + len(calls); n > toolyard.MaxCallsPerBatch {
		return &toolyard.InputError{Field: "calls", TooLarge: true, Problem: fmt.Sprintf("would be %d; at most %d are allowed in a batch", n, toolyard.MaxCallsPerBatch)}
	}
	toolyard.NormalizeCalls(calls, len(have))
	check := toolyard.Batch{Calls: calls}
	check.Normalize("appended")
	if err := check.Validate(); err != nil {
		return err
	}
	size := 0
	index := make(map[string]int, len(have))
	for i, c := range have {
		index[c.ID] = i
		size += len(c.Input) + len(c.ID) + len(c.Tool)
	}
	for i, c := range calls {
		if first, ok := index[c.ID]; ok {
			return &toolyard.InputError{Field: fmt.Sprintf("calls[%d].id", i),
				Problem: fmt.Sprintf("%q is also the id of call %d; results are paired by id, so each needs its own", c.ID, first)}
		}
		size += len(c.Input) + len(c.ID) + len(c.Tool)
	}
	if size > toolyard.MaxBatchBytes {
		return &toolyard.InputError{Field: "calls", TooLarge: true, Problem: fmt.Sprintf("would have %d bytes of input; at most %d are allowed in a batch", size, toolyard.MaxBatchBytes)}
	}
	return nil
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
	if _, err := s.cfg.Broker.Input(ctx, k, st.InputSeq, events.Closed{By: "agent"}); err != nil {
		return nil, err
	}
	whole, err := s.fold(ctx, k)
	return &batchAnswer{Status: http.StatusAccepted, Body: whole.View()}, err
}
