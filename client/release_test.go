package client

import (
	"context"
	"errors"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// unanswered is a store that answers no append of calls while it is silent. Each is stored if it keeps them.
type unanswered struct {
	*natsbroker.Broker
	silent, keeps *bool
}

func (s unanswered) Append(ctx context.Context, k toolyard.BatchKey, c batch.Chain, pool toolyard.Pool, index int,
	expected uint64, body events.Body) (batch.Record, error) {
	if _, calls := body.(events.Appended); !calls || !*s.silent {
		return s.Broker.Append(ctx, k, c, pool, index, expected, body)
	}
	var err error
	if *s.keeps {
		_, err = s.Broker.Append(ctx, k, c, pool, index, expected, body)
	}
	return batch.Record{}, errors.Join(err, context.DeadlineExceeded)
}

// TestReleaseBehindAnAppendWithoutAnswer: who got no answer to its last append, and is done with the batch, closes it:
// whether the calls are stored or not. Where somebody else has appended, the batch is left to them.
func TestReleaseBehindAnAppendWithoutAnswer(t *testing.T) {
	t.Parallel()
	b := testenv.Broker(t, testenv.Server(t), "/dispatcher/a")
	for name, c := range map[string]struct {
		first, stored  bool // an append with an answer came before; the one without is stored
		before, behind bool // somebody else has appended before it, or behind it
		closed         bool
	}{
		"stored":                         {stored: true, closed: true},
		"stored behind another":          {first: true, stored: true, closed: true},
		"not stored":                     {closed: true},
		"another came first":             {before: true},
		"another came behind":            {stored: true, behind: true},
		"another came behind an earlier": {first: true, stored: true, behind: true},
		"another, and it was not stored": {first: true, behind: true},
	} {
		t.Run(name, func(t *testing.T) {
			silent, keeps := false, c.stored
			s := unanswered{b, &silent, &keeps}
			cl := &Client{overNATS{follow.New(s, follow.Options{}), s, func(int, []toolyard.Call) error { return nil }}}
			st, err := cl.Open(t.Context(), toolyard.Batch{})
			if err != nil {
				t.Fatal(err)
			}
			other := cl.Reopen(st.Key())
			add := func(st *Stream, id string) {
				t.Helper()
				if err := st.Append(t.Context(), toolyard.Call{ID: id, Tool: "t"}); (err != nil) != silent {
					t.Fatalf("append %s: %v", id, err)
				}
			}
			if c.first {
				add(st, "first")
			}
			if c.before {
				add(other, "before")
				keeps = false // it conflicts
			}
			silent = true
			add(st, "unsure")
			silent = false
			if c.behind {
				add(other, "behind")
			}
			if err := st.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			now := batch.State{Key: st.Key()}
			if err := b.CatchUp(t.Context(), &now, batch.ChainInput, 0); err != nil || now.InputClosed != c.closed {
				t.Errorf("the batch is closed: %t, %v", now.InputClosed, err)
			}
		})
	}
}

// TestReleaseBehindRepeatedCalls: who has come again with the calls that were appended before, and goes, closes the
// batch if it has come to the last of them. What stands behind may be that of somebody who goes on.
func TestReleaseBehindRepeatedCalls(t *testing.T) {
	t.Parallel()
	b := testenv.Broker(t, testenv.Server(t), "/dispatcher/a")
	cl := &Client{overNATS{follow.New(b, follow.Options{}), b, func(int, []toolyard.Call) error { return nil }}}
	calls := []toolyard.Call{{ID: "one", Tool: "t"}, {ID: "two", Tool: "t"}}
	for come, closed := range map[int]bool{1: false, 2: true} {
		st, err := cl.Open(t.Context(), toolyard.Batch{})
		must.OK(t, err)
		again := cl.Reopen(st.Key())
		for _, c := range calls {
			must.OK(t, st.Append(t.Context(), c))
		}
		for _, c := range calls[:come] {
			must.OK(t, again.Append(t.Context(), c))
		}
		must.OK(t, again.Release(t.Context()))
		now := batch.State{Key: st.Key()}
		if err := b.CatchUp(t.Context(), &now, batch.ChainInput, 0); err != nil || now.InputClosed != closed {
			t.Errorf("behind %d of 2 calls the batch is closed: %t, %v", come, now.InputClosed, err)
		}
	}
}
