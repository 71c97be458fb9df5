package worker

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/submission"
)

// slowChildren are calls of a script that have no result until the test says so.
type slowChildren struct {
	mu      sync.Mutex
	started int
	over    int // so many of the first have their results
}

func (s *slowChildren) StartChild(context.Context, broker.ChildCall) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started++
	return nil
}

func (s *slowChildren) ChildResult(_ context.Context, _ toolyard.Agent, p toolyard.Parent) (*toolyard.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.N > s.over {
		return nil, nil
	}
	return &toolyard.Result{}, nil
}

func (s *slowChildren) has() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started
}

// TestACallThatNobodyWaitsForKeepsItsPlace: a script that gives up its calls has no more of them under way than one
// that waits. Another begins when one has its result.
func TestACallThatNobodyWaitsForKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowChildren{}
		script, stop := context.WithCancel(t.Context())
		c := newChildren(script, store, "a", toolyard.Parent{Batch: "b", Attempt: 1})
		call := func() {
			ctx, giveUp := context.WithTimeout(script, time.Second)
			defer giveUp()
			if _, err := c.call(ctx, "read", json.RawMessage(`{}`)); err == nil {
				t.Error("a call without a result is answered")
			}
		}
		for range submission.MaxChildrenAtOnce + 3 {
			call()
		}
		if n := store.has(); n != submission.MaxChildrenAtOnce {
			t.Errorf("%d calls are under way; at most %d may be", n, submission.MaxChildrenAtOnce)
		}
		store.mu.Lock()
		store.over = 1
		store.mu.Unlock()
		time.Sleep(time.Minute)
		call()
		if n := store.has(); n != submission.MaxChildrenAtOnce+1 {
			t.Errorf("behind a result %d calls were started in all", n)
		}
		stop() // what waits for results ends with the script, or this test does not end
	})
}
