package follow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
)

// TestATopicBoundsWhatItHolds: who keeps up gets everything once and in order, who does not is told so, and what is
// held is bounded.
func TestATopicBoundsWhatItHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all topics[string, int]
		feed := make(chan int)
		stopped := 0
		join := func() (*follower[int], func()) {
			f, leave, ok := all.join("k", -1, func(base int) bool { return base <= 0 },
				func(ctx context.Context, tp *topic[int]) error {
					tp.begin()
					for {
						select {
						case n := <-feed:
							tp.put(n, 1)
						case <-ctx.Done():
							stopped++
							return context.Cause(ctx)
						}
					}
				})
			if !ok {
				return nil, nil
			}
			return f, leave
		}
		fast, leaveFast := join()
		slow, leaveSlow := join()
		const n = 2 * MaxTopicItems
		for i := range n {
			feed <- i
			synctest.Wait()
			got, err := fast.take(t.Context())
			if err != nil || got.behind || len(got.items) != 1 || got.items[0] != i {
				t.Fatalf("item %d came as %+v, %v", i, got, err)
			}
		}
		if got, err := slow.take(t.Context()); err != nil || !got.behind || len(got.items) != MaxTopicItems ||
			got.items[0] != n-MaxTopicItems {
			t.Errorf("the slow one got %d items from %d on, behind %t, %v", len(got.items), got.items[0], got.behind,
				err)
		}
		if f, _ := join(); f != nil {
			t.Error("one who would miss something joined")
		}
		tp := fast.t
		tp.put(n, MaxTopicBytes+1)
		if got, _ := fast.take(t.Context()); len(got.items) != 1 || got.items[0] != n {
			t.Errorf("a long item came as %+v", got)
		}
		if len(tp.items) != 1 {
			t.Errorf("beside a long item %d are held", len(tp.items)-1)
		}
		leaveFast()
		leaveFast()
		synctest.Wait()
		if stopped != 0 {
			t.Error("it stopped while one followed it")
		}
		leaveSlow()
		synctest.Wait()
		if stopped != 1 || len(all.all) != 0 {
			t.Errorf("nobody follows, and it stopped %d times; %d are there", stopped, len(all.all))
		}
	})
}

// TestTurnsAreFair: of one key so many work at a time, the others in the order in which they came; other keys do not
// wait for them.
func TestTurnsAreFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := newTurns[string](2)
		var order []int
		var mu sync.Mutex
		busy, most := 0, 0
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				done, err := ts.take(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				defer done()
				mu.Lock()
				order, busy = append(order, i), busy+1
				most = max(most, busy)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				busy--
				mu.Unlock()
			})
			time.Sleep(time.Millisecond)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := ts.take(gone, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("one that gave up: %v", err)
		}
		began := time.Now()
		done, err := ts.take(t.Context(), "b")
		if err != nil || time.Since(began) > 0 {
			t.Errorf("another key waited %s, %v", time.Since(began), err)
		}
		done()
		wg.Wait()
		if most != 2 || fmt.Sprint(order) != "[0 1 2 3 4 5 6 7]" {
			t.Errorf("%d worked at a time, in the order %v", most, order)
		}
		if len(ts.each) != 0 {
			t.Errorf("%d keys are left", len(ts.each))
		}
	})
}

// TestTheSameWorkIsDoneOnce: of many who ask at a time most share an answer, and nobody gets one that was begun before
// it asked.
func TestTheSameWorkIsDoneOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fs flights[string, time.Time]
		runs := 0
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				asked := time.Now()
				began, err := fs.do(t.Context(), "k", func(context.Context) (time.Time, error) {
					runs++ // never two at a time
					began := time.Now()
					time.Sleep(time.Second)
					return began, nil
				})
				if err != nil || began.Before(asked) {
					t.Errorf("who asked at %s got what was begun at %s, %v", asked, began, err)
				}
			})
		}
		wg.Wait()
		if runs != 2 || len(fs.each) != 0 {
			t.Errorf("it was done %d times; %d are left", runs, len(fs.each))
		}
	})
}

// TestPiecesAreKeptForAWhile: what was read is there for others, within bounds of size and age.
func TestPiecesAreKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ps pieces
		at := func(i int) place {
			return place{toolyard.BatchKey{Agent: "a", ID: "b"}, Cursor{Event: uint64(i)}, i == 0}
		}
		ps.put(at(0), piece{size: maxKeptBytes + 1})
		if _, ok := ps.get(at(0)); ok {
			t.Error("a piece that is too long is kept")
		}
		for i := range 5 {
			ps.put(at(i), piece{size: maxKeptBytes / 4, to: Cursor{Event: uint64(i + 1)}})
		}
		for i := range 5 {
			if p, ok := ps.get(at(i)); ok != (i > 0) || ok && p.to != at(i+1).at {
				t.Errorf("piece %d: %+v, %t", i, p, ok)
			}
		}
		time.Sleep(maxKeptAge)
		if _, ok := ps.get(at(4)); ok || len(ps.all)+len(ps.order)+ps.bytes > 0 {
			t.Error("an old piece is kept")
		}
	})
}

func TestCursors(t *testing.T) {
	for id, want := range map[string]Cursor{"0.0": {}, "12.3": {12, 3}} {
		if c, err := ParseCursor(id); err != nil || c != want || c.String() != id {
			t.Errorf("%q: %+v, %v", id, c, err)
		}
	}
	for _, id := range []string{"", "1", "1.", "-1.0", "01.0", "1.2x", " 1.2", "99999999999999999999.0"} {
		if c, err := ParseCursor(id); err == nil {
			t.Errorf("%q is %+v", id, c)
		}
	}
}

// TestASlowFollowerIsDropped: one behind the window ends when it says that it is slow, and its cursor is that of
// the last event that it was sent; one that was only held up a moment reads for itself what it has missed.
func TestASlowFollowerIsDropped(t *testing.T) {
	for _, slow := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := &Reader{}
			k := toolyard.BatchKey{Agent: "a", ID: "b"}
			put := make(chan Event)
			f, leave, _ := r.happened.join(k, Event{}, func(Event) bool { return true },
				func(ctx context.Context, tp *topic[Event]) error {
					for {
						select {
						case e := <-put:
							tp.put(e, len(e.Data))
						case <-ctx.Done():
							return nil
						}
					}
				})
			defer leave()
			var at Cursor
			type end struct {
				done bool
				err  error
			}
			ended := make(chan end, 1)
			sent := uint64(0)
			goOn := make(chan struct{})
			go func() {
				done, err := r.liveEvents(t.Context(), k, &at, func() bool { return slow }, func(es []Event) error {
					sent += uint64(len(es))
					if len(es) > 0 && es[len(es)-1].At.Event != sent {
						t.Errorf("event %d is at %s", sent, es[len(es)-1].At)
					}
					<-goOn
					return nil
				})
				ended <- end{done, err}
			}()
			for i := range 3 * MaxTopicItems {
				e := Event{Data: []byte("{}")}
				e.Seq, e.Chain = uint64(i+1), batch.ChainBatch
				e.At.Event = e.Seq
				put <- e
				synctest.Wait()
			}
			close(goOn)
			got := <-ended
			if sent == 0 || sent != at.Event {
				t.Errorf("%d events were sent, up to %s", sent, at)
			}
			if errors.Is(got.err, ErrBehind) != slow || got.done != slow {
				t.Errorf("slow %t: done %t, %v", slow, got.done, got.err)
			}
			if len(f.t.items) > MaxTopicItems {
				t.Errorf("%d events are held", len(f.t.items))
			}
		})
	}
}
