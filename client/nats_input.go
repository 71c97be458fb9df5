package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/submission"
)

// maxAppendTries is how often an append is tried against other writers.
const maxAppendTries = 100

// natsInput appends to one open batch, behind exactly what it knows of. It reads again when somebody else was there.
type natsInput struct {
	t overNATS
	k toolyard.BatchKey
	// known says that the following is how the batch stood.
	known  bool
	have   []toolyard.Call // without the inputs of those that were appended here
	fits   submission.Input
	seq    uint64
	closed bool
	why    string          // it is closed, if that is known
	own    map[string]bool // the ids of calls that were appended here
	// unsure are calls whose append got no answer: they may stand behind the others.
	unsure []toolyard.Call
	// behind says that calls stand behind those that were found there last.
	behind bool
}

func (t overNATS) input(k toolyard.BatchKey, have []toolyard.Call) input {
	in := &natsInput{t: t, k: k, known: have != nil, have: slices.Clone(have), own: map[string]bool{}}
	in.fits.Add(have)
	return in
}

// append finds calls that are there already: a program that saw no answer appends them again.
func (in *natsInput) append(ctx context.Context, calls []toolyard.Call) (first int, err error) {
	for range maxAppendTries {
		if err := in.read(ctx); err != nil {
			return 0, err
		}
		if at, again := repeated(in.have, calls); again && !in.own[calls[0].ID] {
			in.behind = at+len(calls) < len(in.have)
			return at, nil
		}
		if in.closed {
			return 0, in.ended(ctx)
		}
		fresh, err := in.fits.Fit(calls)
		if err != nil {
			return 0, err
		}
		if err := in.t.check(len(in.have), fresh); err != nil {
			return 0, err
		}
		rec, err := in.t.Append(ctx, in.k, batch.ChainInput, "", 0, in.seq, events.Appended{Calls: fresh})
		if errors.Is(err, broker.ErrConflict) {
			in.known = false
			continue
		}
		if err != nil {
			in.unsure = fresh
			return 0, err
		}
		first, in.seq, in.unsure, in.behind = len(in.have), rec.Seq, nil, false
		in.fits.Add(fresh)
		for _, c := range fresh {
			in.have = append(in.have, toolyard.Call{ID: c.ID, Tool: c.Tool})
			in.own[c.ID] = true
		}
		return first, nil
	}
	return 0, in.crowded()
}

func (in *natsInput) close(ctx context.Context, last bool) error {
	// others have appended, or this input has, and got no answer
	others := !in.known && len(in.own)+len(in.unsure) > 0
	if last && in.behind {
		return nil
	}
	for range maxAppendTries {
		if last && others && len(in.unsure) == 0 {
			return nil
		}
		mine := len(in.have)
		if err := in.read(ctx); err != nil || in.closed {
			return err
		}
		if last && others && !in.tookUnsure(in.have[min(mine, len(in.have)):]) {
			return nil
		}
		_, err := in.t.Append(ctx, in.k, batch.ChainInput, "", 0, in.seq, events.Closed{By: "agent"})
		if !errors.Is(err, broker.ErrConflict) {
			return err
		}
		in.known, others = false, true
	}
	return in.crowded()
}

// tookUnsure reports whether calls that have come are just those whose append got no answer. It asks once: what comes
// then is of others.
func (in *natsInput) tookUnsure(came []toolyard.Call) bool {
	calls := in.unsure
	in.unsure = nil
	if len(came) != len(calls) {
		return false
	}
	_, same := repeated(came, calls)
	return same
}

// ended says why a closed batch takes no calls: it was closed, or refused. A refusal is in the log before there is a
// reply, for which a full disk may have no room. Dispatchers of former versions store one as wrong in the reply alone.
func (in *natsInput) ended(ctx context.Context) error {
	replies, err := in.t.RepliesFrom(ctx, in.k, 0, 1)
	if err == nil && len(replies) > 0 {
		if r, ok := replies[0].Body.(events.Refused); ok {
			return refused(r)
		}
	}
	begun, err := in.t.Newer(ctx, &batch.State{Key: in.k}, batch.ChainBatch, 0)
	if err == nil && len(begun) > 0 {
		if r, ok := begun[0].Body.(events.Refused); ok {
			return refused(r)
		}
	}
	if in.why != "" {
		return fmt.Errorf("%w: %s: %s", ErrClosed, in.k, in.why)
	}
	return fmt.Errorf("%w: %s", ErrClosed, in.k)
}

// crowded says that others were always first.
func (in *natsInput) crowded() error {
	return fmt.Errorf("%w: %d others appended to batch %s first; try again later", ErrFull, maxAppendTries, in.k)
}

// read finds out how the batch stands, unless that is known.
func (in *natsInput) read(ctx context.Context) error {
	if in.known {
		return nil
	}
	sub, err := in.t.Submission(ctx, in.k)
	if err != nil {
		return err
	}
	if !sub.Open {
		return fmt.Errorf("%w: %s", ErrNotOpened, in.k)
	}
	st := batch.State{Key: in.k}
	if err := in.t.CatchUp(ctx, &st, batch.ChainInput, 0); err != nil {
		return err
	}
	in.have = slices.Concat(sub.Calls, st.Input)
	in.known, in.seq, in.fits = true, st.InputSeq, submission.Input{}
	in.closed, in.why = st.InputClosed, st.InputEnd
	in.fits.Add(in.have)
	return nil
}

// repeated reports whether calls are there already, and where. Only calls with ids can be known again.
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
