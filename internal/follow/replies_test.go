package follow_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestResultsOfABatchThatIsOver: all of them are read, however many replies they are in, and there are none of a batch
// that has no last reply.
func TestResultsOfABatchThatIsOver(t *testing.T) {
	b := testenv.Broker(t, testenv.Server(t), "/reader")
	r := follow.New(b, follow.Options{Shared: true})
	sub := toolyard.Batch{Agent: "a", ID: "b"}
	for range 400 {
		sub.Calls = append(sub.Calls, toolyard.Call{Tool: "t"})
	}
	sub.Normalize("b")
	results := func() (n int, err error) {
		err = r.Results(t.Context(), sub.Key(), func(res *toolyard.Result) {
			if res.Index != n || res.Tool != "t" {
				t.Errorf("result %d is %+v", n, res)
			}
			n++
		})
		return n, err
	}
	if n, err := results(); n != 0 || !errors.Is(err, broker.ErrNoBatch) {
		t.Errorf("of no batch: %d, %v", n, err)
	}
	must.OK(t, b.Submit(t.Context(), sub))
	if n, err := results(); n != 0 || !errors.Is(err, broker.ErrNoBatch) {
		t.Errorf("of a batch without replies: %d, %v", n, err)
	}
	must.OK(t, b.EndReplies(t.Context(), sub.Key(), &sub, strings.Repeat("the test ends it ", 100)))
	if n, err := results(); n != len(sub.Calls) || err != nil {
		t.Errorf("of a batch that is over: %d of %d, %v", n, len(sub.Calls), err)
	}
}

// TestWhoFollowsReadsAgainAfterALongSilence: the server answers the first read as if it had no replies. Nothing comes
// that would say otherwise.
func TestWhoFollowsReadsAgainAfterALongSilence(t *testing.T) {
	bubble.Run(t, broker.Settings{MaxStoreBytes: 256 << 20}, func(e *bubble.Env) {
		b := e.Broker("reader")
		r := follow.New(b, follow.Options{Shared: true})
		over := make(chan int)
		submit := func(id toolyard.BatchID) toolyard.Batch {
			sub := toolyard.Batch{Agent: "a", ID: id, Calls: []toolyard.Call{{Tool: "t"}}}
			sub.Normalize(id)
			must.OK(e.T, b.Submit(e.Context(), sub))
			return sub
		}
		end := func(sub toolyard.Batch) {
			must.OK(e.T, b.EndReplies(e.Context(), sub.Key(), &sub, "the test ends it"))
		}
		follow := func(k toolyard.BatchKey) {
			results := 0
			for reply, err := range r.Replies(e.Context(), k, nil) {
				if err != nil {
					e.Error(err)
					break
				}
				results += len(reply.Results)
			}
			over <- results
		}
		early, late := submit("early"), submit("late")
		go follow(early.Key()) // so that the reader subscribes
		time.Sleep(10 * time.Second)
		end(late)
		e.Server.CloseStore("TY_REPLY")
		go follow(late.Key())
		time.Sleep(time.Second)
		e.Server.ElectLeader("TY_REPLY")
		select {
		case n := <-over:
			if n != 1 {
				e.Errorf("%d results", n)
			}
		case <-time.After(time.Minute):
			e.Error("a batch that is over is followed for a minute")
		}
		end(early)
		<-over
	})
}
