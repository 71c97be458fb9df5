package dispatcher

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
)

// How an owner asks whether anything of its batch still runs.
const (
	maxAsked   = 64                    // workers at a time
	quietPause = 20 * time.Millisecond // between two rounds of questions
)

// mayRunOn reports whether a read of the current group, or of one before, may go on though it has its result. A server
// that was restarted may have handed it to a second worker at once, and one of the two has ended. Exclusive calls are
// claimed, and so are calls that the server is known to have handed out before: those have one holder.
func (r *runner) mayRunOn() bool {
	return r.d.b.Settings().Replicas == 1 && (r.adopted || r.since != nil && *r.since != r.d.b.Reconnects())
}

// quiet returns when no worker runs a read of the groups before one. Those that do are told to stop. A worker that does
// not answer is waited for until it is proven to be silent.
func (r *runner) quiet(ctx context.Context, before int) error {
	doubt := r.mayRunOn()
	s := r.m.State()
	// A group that a former owner has started is taken too: its reads are asked about when they are over.
	if _, started := s.Started[before]; !started {
		r.adopted, r.since = false, nil
	}
	if !doubt {
		return nil
	}
	var calls []int
	pools := map[toolyard.Pool]bool{}
	for n, g := range s.Plan.Groups[:before] {
		if _, started := s.Started[n]; !started || !g.Ticket || !g.Safe {
			continue
		}
		for _, i := range g.Calls {
			if !s.Open(i) {
				calls = append(calls, i)
				pools[s.Plan.Calls[i].Pool] = true
			}
		}
	}
	if len(calls) == 0 {
		return nil
	}
	r.d.roster.catchUp(ctx)
	asked := r.d.roster.of(pools)
	notice := broker.AbortNotice{
		Agent: r.key.Agent, Batch: r.key.ID, Calls: calls, Code: toolyard.Canceled, Reason: "the call has its result", By: "toolyard",
	}
	for {
		if err := r.d.b.Abort(notice); err != nil {
			r.log.Warn("workers were not told to stop; they are told again", "error", err)
		}
		asked = r.stillAt(ctx, asked, calls)
		if len(asked) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(quietPause):
		}
	}
}

// stillAt asks workers whether they have any of some calls, and returns those that have one, or may have.
func (r *runner) stillAt(ctx context.Context, workers []string, calls []int) []string {
	may := make([]bool, len(workers))
	var asking sync.WaitGroup
	room := make(chan struct{}, maxAsked)
	for n, id := range workers {
		room <- struct{}{}
		asking.Go(func() {
			defer func() { <-room }()
			may[n] = r.mayHave(ctx, id, calls)
		})
	}
	asking.Wait()
	var out []string
	for n, id := range workers {
		if may[n] {
			out = append(out, id)
		}
	}
	return out
}

func (r *runner) mayHave(ctx context.Context, worker string, calls []int) bool {
	has, answered, err := r.d.b.Holds(ctx, worker, r.key, calls...)
	switch {
	case err != nil:
		r.log.Warn("a worker could not be asked what it runs", "worker", worker, "error", err)
		return true
	case answered:
		r.d.roster.sign(worker)
		return has
	}
	gone, err := r.d.roster.silent(ctx, worker)
	if err != nil {
		r.log.Warn("a worker does not answer, and its entry cannot be read", "worker", worker, "error", err)
	}
	return !gone || err != nil
}

// of returns the workers of some pools that are in the registry, as far as is known.
func (r *roster) of(pools map[toolyard.Pool]bool) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for id, w := range r.live {
		if pools[w.Pool] || w.Pool == "" { // an entry that cannot be read names none
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
