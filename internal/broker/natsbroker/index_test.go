package natsbroker_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// indexed is an index with a model of its content.
type indexed struct {
	testing.TB
	broker.Index
	oldest, newest uint64
	has            map[uint64]broker.Entry
}

func newIndexed(t testing.TB) (*indexed, *natsbroker.Broker) {
	b := testenv.Broker(t, testenv.Server(t), "/test")
	x := &indexed{TB: t, oldest: 1, has: map[uint64]broker.Entry{}}
	x.Index = b.IndexOf(func() (oldest, newest uint64) { return x.oldest, x.newest })
	return x, b
}

// put writes an entry as its owner does.
func (x *indexed) put(e broker.Entry) {
	x.Helper()
	write := x.Change
	if _, ok := x.has[e.Place]; !ok && e.Live() {
		write = x.Add
	}
	must.OK(x, write(x.Context(), e))
	x.has[e.Place], x.newest = e, max(x.newest, e.Place)
}

// wanted are the places of what a filter should list.
func (x *indexed) wanted(f broker.Filter) []uint64 {
	var out []uint64
	for place, e := range x.has {
		if (f.Agent == "" || f.Agent == e.Agent) && (f.Session == "" || f.Session == e.Session) &&
			(f.Status == "" || f.Status == e.Status) && (!f.Live || e.Live()) && place >= x.oldest {
			out = append(out, place)
		}
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out
}

// list reads all pages. between is called after each.
func (x *indexed) list(f broker.Filter, between func()) (listed []broker.Entry) {
	x.Helper()
	for {
		page, more, err := x.Page(x.Context(), f)
		must.OK(x, err)
		limit := f.Limit
		if limit == 0 {
			limit = broker.MaxListed
		}
		if len(page) > limit || more && len(page) < limit {
			x.Fatalf("%+v: a page has %d batches, and there are more: %t", f, len(page), more)
		}
		listed = append(listed, page...)
		if !more {
			return listed
		}
		f.After = page[len(page)-1].Place
		if between != nil {
			between()
		}
	}
}

func places(entries []broker.Entry) []uint64 {
	out := make([]uint64, len(entries))
	for i, e := range entries {
		out[i] = e.Place
	}
	return out
}

var statuses = []toolyard.Status{
	toolyard.StatusCompleted, toolyard.StatusCompleted, toolyard.StatusCompleted, toolyard.StatusCanceled,
	toolyard.StatusRunning, toolyard.StatusWaiting, toolyard.StatusOpen,
}

// TestIndexPages lists batches that are close together in some ranges and far apart in others, by every filter, and
// compares the pages with the stored entries.
func TestIndexPages(t *testing.T) {
	x, b := newIndexed(t)
	began := time.Now().Truncate(time.Millisecond) // which is what the index keeps
	r := rand.New(rand.NewPCG(5, 6))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	agents, sessions := []string{"a", "b.*", "b", "live", "ä >"}, []string{"s", "s.s", "*"}
	submitted := func(place uint64) {
		if _, ok := x.has[place]; ok {
			return
		}
		x.put(broker.Entry{
			ID: toolyard.BatchID(fmt.Sprint("batch ", place)), Agent: toolyard.Agent(pick(agents...)),
			Session: toolyard.Session(pick(sessions...)), Workspace: "w w", Status: statuses[r.IntN(len(statuses))],
			Calls: r.IntN(100), Submitted: time.UnixMilli(int64(place)).UTC(), Place: place, Revision: place,
		})
	}
	for _, place := range []uint64{1, 2, 1023, 1024, 1025, 16383, 16384, 32767, 32768, 100_000} {
		submitted(place)
	}
	for range 300 { // close together
		submitted(20_000 + r.Uint64N(600))
	}
	for range 200 { // far apart
		submitted(1 + r.Uint64N(100_000))
	}
	filters := 0
	for _, agent := range append(agents, "", "", "nobody") {
		for _, session := range append(sessions, "", "nothing") {
			for status, live := range map[toolyard.Status]bool{
				"": r.IntN(2) == 0, toolyard.StatusCompleted: false, toolyard.StatusCanceled: true,
				toolyard.StatusRunning: false,
				toolyard.StatusWaiting: true, "nonsense": false,
			} {
				f := broker.Filter{
					Agent: toolyard.Agent(agent), Session: toolyard.Session(session), Status: status, Live: live,
					Limit: r.IntN(3) * (20 + r.IntN(200)),
				}
				filters++
				listed := x.list(f, nil)
				if want := x.wanted(f); !slices.Equal(places(listed), want) {
					t.Fatalf("%+v lists %v, want %v", f, places(listed), want)
				}
				for _, e := range listed {
					want := x.has[e.Place]
					if want.Changed = e.Changed; e != want || e.Changed.Before(began) {
						t.Fatalf("%+v is listed as %+v", want, e)
					}
				}
			}
		}
	}
	n, err := b.Indexed(t.Context())
	t.Logf("%d filters over %d batches", filters, len(x.has))
	if err != nil || n != uint64(len(x.has)) {
		t.Errorf("%d entries are stored (%v) of %d batches", n, err, len(x.has))
	}

	x.oldest = 20_300 // the submissions before that are gone
	if f := (broker.Filter{Limit: 50}); !slices.Equal(places(x.list(f, nil)), x.wanted(f)) {
		t.Error("batches are listed whose submissions are gone, or others are not")
	}
}

// TestPagesWhileBatchesChange pages through a list while batches come, change and end. Every batch that existed before
// is listed once.
func TestPagesWhileBatchesChange(t *testing.T) {
	const running, completed = toolyard.StatusRunning, toolyard.StatusCompleted
	becomes := []toolyard.Status{toolyard.StatusWaiting, running, toolyard.StatusCanceled, completed}
	for _, status := range []toolyard.Status{"", running, completed} {
		x, _ := newIndexed(t)
		r := rand.New(rand.NewPCG(7, 8))
		planned := func(place uint64) {
			x.put(broker.Entry{
				ID: toolyard.BatchID(fmt.Sprint(place)), Agent: "a", Session: "s", Workspace: "w", Status: running,
				Place: place, Revision: place,
			})
		}
		for i := range uint64(120) {
			planned(7 * (i + 1))
		}
		for _, place := range slices.Sorted(maps.Keys(x.has))[:40] {
			e := x.has[place]
			e.Status = completed
			x.put(e)
		}
		before, touched := x.wanted(broker.Filter{Status: status}), map[uint64]bool{}
		listed := places(x.list(broker.Filter{Status: status, Limit: 9}, func() {
			all := slices.Sorted(maps.Keys(x.has))
			for range 10 {
				e := x.has[all[r.IntN(len(all))]]
				if touched[e.Place] = true; e.Live() {
					e.Revision += 1_000
					e.Status = becomes[r.IntN(len(becomes))]
					x.put(e)
				}
			}
			planned(x.newest + 1)
		}))
		sorted := slices.IsSortedFunc(listed, func(a, b uint64) int { return cmp.Compare(b, a) })
		if !sorted || len(slices.Compact(slices.Clone(listed))) != len(listed) {
			t.Errorf("status %q: listed are %v; want each once, the newest first", status, listed)
		}
		for _, place := range before {
			if !slices.Contains(listed, place) && (status == "" || !touched[place]) {
				t.Errorf("status %q: batch %d was left out", status, place)
			}
		}
	}
}

// TestALateEntry lets former owners write late entries. They do not change what is listed.
func TestALateEntry(t *testing.T) {
	const running, waiting, completed = toolyard.StatusRunning, toolyard.StatusWaiting, toolyard.StatusCompleted
	for name, puts := range map[string][]struct {
		status   toolyard.Status
		revision uint64
		added    bool
	}{
		"the first owner's, when the batch is over": {{running, 1, true}, {completed, 1, false},
			{running, 1, true}},
		"the second owner's, when the batch is over": {{running, 1, true}, {completed, 3, false},
			{running, 2, false}},
		"that it waits, when it is over": {{running, 1, true}, {completed, 5, false},
			{waiting, 4, false}},
		"the first owner's, when the batch waits":  {{waiting, 3, false}, {running, 1, true}},
		"the second owner's, when the batch waits": {{running, 1, true}, {waiting, 4, false}, {running, 2, false}},
		"that it is over, a second time": {{running, 1, true}, {completed, 2, false},
			{completed, 2, false}},
		"that it is over, by one that knows less of it": {{running, 1, true}, {completed, 2, false},
			{completed, 0, false}},
	} {
		t.Run(name, func(t *testing.T) {
			x, b := newIndexed(t)
			x.newest = 5_000
			want := puts[0].status
			for _, p := range puts {
				e := broker.Entry{
					ID: "b", Agent: "a", Session: "s", Workspace: "w", Status: p.status, Place: 4_000,
					Revision: p.revision,
				}
				put := x.Change
				if p.added {
					put = x.Add
				}
				must.OK(t, put(t.Context(), e))
			}
			if len(puts) == 3 {
				want = puts[1].status
			}
			for _, f := range []broker.Filter{
				{}, {Live: true}, {Status: running}, {Status: waiting}, {Status: completed}, {Agent: "a", Session: "s"},
			} {
				listed := x.list(f, nil)
				is := (f.Status == "" || f.Status == want) && (!f.Live || want != completed)
				if is != (len(listed) == 1) || is && listed[0].Status != want {
					t.Errorf("%+v lists %+v; the batch is %s", f, listed, want)
				}
			}
			if n, err := b.Indexed(t.Context()); err != nil || n > 2 {
				t.Errorf("%d entries are stored (%v)", n, err)
			}
		})
	}
}

// TestAnInterruptFindsAll: as many live batches of a session as there are, on more than one page, and no others.
func TestAnInterruptFindsAll(t *testing.T) {
	b := testenv.Broker(t, testenv.Server(t), "/test")
	for i := range 30 {
		sub := toolyard.Batch{
			Agent: "a", Session: toolyard.Session(fmt.Sprint("s", i%3)), ID: toolyard.BatchID(fmt.Sprint(i)),
			Calls: []toolyard.Call{{Tool: "x"}},
		}
		sub.Normalize("")
		must.OK(t, b.Submit(t.Context(), sub))
		s, err := b.Fold(t.Context(), sub.Key())
		must.OK(t, err)
		e := broker.Entry{
			ID: sub.ID, Agent: sub.Agent, Session: sub.Session, Workspace: "w", Place: s.SubmissionSeq,
			Status: statuses[i%len(statuses)],
		}
		must.OK(t, b.Index().Add(t.Context(), e))
	}
	for session, want := range map[toolyard.Session]int{"s0": 4, "s1": 4, "s2": 4} {
		if n, err := b.Interrupt(t.Context(), "a", session, "stop"); err != nil || n != want {
			t.Errorf("session %s: %d batches were asked to stop (%v), want %d", session, n, err, want)
		}
	}
	if n, err := b.Interrupt(context.WithoutCancel(t.Context()), "b", "s0", ""); err != nil || n != 0 {
		t.Errorf("another agent's session: %d, %v", n, err)
	}
}
