//go:build unix

package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/test/verdict"
)

// batchTimeout is the time limit of the load's batches: no fault may last so long that it passes.
const batchTimeout = 90 * time.Second

// workspaces are those of the load's agents, of which two share one, and of single batches.
var workspaces = []toolyard.Workspace{"shared", "own", "dan", "census"}

// load is three agents that hand in batches of mixed calls, one after the other, until they are told that it is enough.
type load struct {
	s       *system
	enough  atomic.Bool
	more    int // batches that each agent hands in after that
	running sync.WaitGroup
	side    *client.Client // of extra

	mu          sync.Mutex
	submissions []*verdict.Submission
	// refused are the batches that were stored and then refused for want of room: nothing of them may have run.
	refused []toolyard.BatchKey
}

// mix is what a load's batches are made of.
type mix struct {
	// shape makes the calls of a batch; nil: mixed.
	shape func(r *rand.Rand) []toolyard.Call
	// quiet leaves out calls that fail, and batches that are handed in twice.
	quiet bool
	more  int // batches of each agent after the fault; 0: 1
	// full says that there may be no room for a batch for a while: the agents come again.
	full bool
	// timeout is the time limit of the batches; 0: batchTimeout.
	timeout time.Duration
	// pause is how long an agent waits before its next batch, in a test that lasts long.
	pause time.Duration
}

func (m *mix) limit() time.Duration { return cmp.Or(m.timeout, batchTimeout) }

// start begins the load.
func (s *system) load(m mix) *load {
	s.t.Helper()
	l := &load{s: s, more: max(1, m.more)}
	s.mu.Lock()
	s.loads = append(s.loads, l)
	s.mu.Unlock()
	for i, name := range []toolyard.Agent{"ann", "bob", "cid"} {
		c, other := s.client(), s.client()
		r := rand.New(rand.NewPCG(s.rand.Uint64(), s.rand.Uint64()))
		w := workspaces[i/2]
		l.running.Go(func() { l.agent(name, w, r, m, c, other) })
	}
	return l
}

// finish tells the agents that the fault is over, and waits until they have the results of all that they handed in.
func (l *load) finish() {
	l.s.t.Helper()
	if l.s.faultEnd.IsZero() {
		l.s.faultOver()
	}
	l.enough.Store(true)
	l.running.Wait()
}

func (l *load) agent(name toolyard.Agent, w toolyard.Workspace, r *rand.Rand, m mix, c, other *client.Client) {
	for n, after := 0, 0; after < l.more; n++ {
		if l.enough.Load() {
			after++
		}
		if l.s.t.Failed() {
			return
		}
		b := toolyard.Batch{
			Agent: name, ID: toolyard.BatchID(fmt.Sprintf("b%03d", n)), Workspace: w,
			Options: toolyard.Options{MaxConcurrency: 2 + r.IntN(4), TimeoutMS: m.limit().Milliseconds()},
		}
		if m.shape != nil {
			b.Calls = m.shape(r)
		} else {
			b.Calls = mixed(r, m.quiet)
		}
		sub := &verdict.Submission{Batch: b}
		l.mu.Lock()
		l.submissions = append(l.submissions, sub)
		l.mu.Unlock()
		if !l.one(sub, n, r, m, c, other) {
			return
		}
		time.Sleep(m.pause)
	}
}

// one hands in one batch and takes its results. It reports whether the agent can go on.
func (l *load) one(sub *verdict.Submission, n int, r *rand.Rand, m mix, c, other *client.Client) bool {
	ctx, cancel := context.WithTimeout(l.s.t.Context(), m.limit()+2*l.s.settings.BatchAckWait+10*time.Second)
	defer cancel()
	failed := func(what string, err error) bool {
		if _, refused := errors.AsType[*client.RefusedError](err); m.full && refused && errors.Is(err, client.ErrFull) {
			l.refuse(sub)
			return true
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		sub.Problem("%s: %v", what, err)
		l.s.t.Errorf("%s: %s: %v", sub.Key(), what, err)
		return false
	}
	streamed := !m.quiet && n%4 == 3 && len(sub.Batch.Calls) > 2
	b := sub.Batch
	if streamed {
		open := b
		open.Calls = append([]toolyard.Call(nil), b.Calls[:1]...)
		stream, err := accepted(ctx, m, func() (*client.Stream, error) { return c.Open(ctx, open) })
		if err != nil {
			return failed("open", err)
		}
		for i := 1; i < len(b.Calls); i++ {
			if err := stream.Append(ctx, b.Calls[i]); err != nil {
				return failed("append", err)
			}
		}
		if err := stream.Close(ctx); err != nil {
			return failed("close", err)
		}
	} else if _, err := accepted(ctx, m, func() (*client.Batch, error) { return c.Submit(ctx, b) }); err != nil {
		return failed("submit", err)
	}
	acked := time.Now()
	var again sync.WaitGroup
	if !m.quiet && !streamed && r.IntN(3) == 0 { // the same at once, over another connection
		again.Go(func() {
			sub2, err := accepted(ctx, m, func() (*client.Batch, error) { return other.Submit(ctx, b) })
			if err != nil {
				failed("submit again", err)
				return
			}
			var got []toolyard.Result
			for res, err := range sub2.Results(ctx) {
				if err != nil {
					failed("results, asked for again", err)
					return
				}
				got = append(got, res)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			sub.Again = append(sub.Again, got)
		})
	}
	defer again.Wait()
	for res, err := range c.Batch(sub.Key()).Results(ctx) {
		if err != nil {
			return failed(fmt.Sprintf("Q12: results, after %d of %d", len(sub.Results), len(b.Calls)), err)
		}
		l.mu.Lock()
		sub.Results, sub.At = append(sub.Results, res), append(sub.At, time.Now())
		l.mu.Unlock()
	}
	l.mu.Lock()
	sub.Acked, sub.Over = acked, time.Now()
	l.mu.Unlock()
	if !m.quiet && !streamed && r.IntN(4) == 0 {
		changed := b
		changed.Options.MaxConcurrency++
		if _, err := accepted(ctx, m, func() (*client.Batch, error) { return c.Submit(ctx, changed) }); !errors.Is(err,
			client.ErrOtherContent) {
			return failed("Q10: the same id with other content", err)
		}
	}
	return true
}

// comeAgain is after what pause an agent comes again that found no room.
const comeAgain = 100 * time.Millisecond

// accepted hands something in, the same again and again while there is no room for it, or no answer, where that may be.
func accepted[T any](ctx context.Context, m mix, hand func() (T, error)) (T, error) {
	for {
		v, err := hand()
		if !m.full || !errors.Is(err, client.ErrFull) && !errors.Is(err, client.ErrNoAnswer) {
			return v, err
		}
		timer := time.NewTimer(comeAgain)
		select {
		case <-ctx.Done():
			return v, err
		case <-timer.C:
		}
	}
}

// refuse takes a batch out that was refused. Its agent comes again a moment later, with another one.
func (l *load) refuse(sub *verdict.Submission) {
	l.mu.Lock()
	if !slices.Contains(l.refused, sub.Key()) {
		l.refused = append(l.refused, sub.Key())
	}
	l.submissions = slices.DeleteFunc(l.submissions, func(s *verdict.Submission) bool { return s == sub })
	l.mu.Unlock()
	timer := time.NewTimer(comeAgain)
	select {
	case <-l.s.t.Context().Done():
	case <-timer.C:
	}
}

// extra hands in a batch beside the load's, and returns when its results are there.
func (l *load) extra(b toolyard.Batch) *verdict.Submission {
	l.s.t.Helper()
	return l.extraMix(b, mix{quiet: true})
}

func (l *load) extraMix(b toolyard.Batch, m mix) *verdict.Submission {
	l.s.t.Helper()
	if b.Options.TimeoutMS == 0 {
		b.Options.TimeoutMS = batchTimeout.Milliseconds()
	}
	sub := &verdict.Submission{Batch: b}
	l.mu.Lock()
	l.submissions = append(l.submissions, sub)
	l.mu.Unlock()
	if l.side == nil {
		l.side = l.s.client()
	}
	l.one(sub, 0, nil, m, l.side, l.side)
	if l.s.t.Failed() {
		l.s.t.FailNow()
	}
	return sub
}

// mixed makes the calls of a batch: runs of reads with exclusive calls between them, and now and then a mistake or a
// call that fails.
func mixed(r *rand.Rand, quiet bool) []toolyard.Call {
	var out []toolyard.Call
	add := func(tool string, ms int) {
		out = append(out, toolyard.Call{Tool: tool, Input: raw(map[string]any{"work_ms": ms})})
	}
	for range 1 + r.IntN(2) {
		for range 2 + r.IntN(3) {
			switch k := r.IntN(10); {
			case k < 6:
				add("look", 5+r.IntN(80))
			case k < 9:
				add("look_once", 5+r.IntN(80))
			case quiet:
				add("look", 5)
			default:
				add("fail", 20+r.IntN(50))
			}
		}
		for range 1 + r.IntN(2) {
			add([]string{"write", "write", "put"}[r.IntN(3)], 5+r.IntN(60))
		}
	}
	switch {
	case quiet:
	case r.IntN(8) == 0:
		add("no_such_tool", 0)
	case r.IntN(8) == 0:
		out = append(out, toolyard.Call{Tool: "look", Input: raw(map[string]any{"work_ms": "soon"})})
	}
	return out
}
