package dispatcher

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
)

// These tests are about a server whose store is closed, as when its disk is full. Until another one leads the stream it
// answers as if it had no messages.

// blind has a stream's server answer as if it had no messages, for so long.
func (y *yard) blind(stream string, lasts time.Duration) {
	y.Server.CloseStore(stream)
	time.AfterFunc(lasts, func() { y.Server.ElectLeader(stream) })
}

// TestACallIsAskedAboutWhoseLogReadsAsEmpty: dispatchers look at the logs of calls that wait for people, and take those
// off the list that do not wait.
func TestACallIsAskedAboutWhoseLogReadsAsEmpty(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d")
		k := y.park()
		time.Sleep(missedEvery - expireEvery)
		y.blind("TY_EVENT", 3*expireEvery)
		time.Sleep(missedEvery)
		list, err := y.b.Approvals(y.Context(), k.Agent)
		if err != nil || len(list) != 1 {
			y.Errorf("%d calls wait for a person: %v", len(list), err)
		}
	})
}

// TestABatchIsOverWhoseLogReadsAsEmpty: an undo of it is not told that it is not over.
func TestABatchIsOverWhoseLogReadsAsEmpty(t *testing.T) {
	for _, stream := range []string{"TY_EVENT", "TY_REPLY"} {
		inYard(t, func(y *yard) {
			y.dispatcher("d")
			rest := y.work()
			k := y.submit("write")
			if got := y.codes(k); got != "ok" {
				y.Fatalf("the results are %s", got)
			}
			rest()
			r := runner{d: New(y.Broker("other"), Config{ID: "other", Log: y.Log(), Planner: planner()}),
				kept: &kept{key: k}, log: y.Log()}
			y.blind(stream, time.Second)
			s, problem := r.look(y.Context(), k.ID)
			if problem == "" && (s.Plan == nil || !s.Completed) {
				y.Errorf("%s: the batch is taken for one that is not over", stream)
			}
			if problem != "" && !strings.Contains(problem, "try again") {
				y.Errorf("%s: %s", stream, problem)
			}
		})
	}
}

// TestAScriptsCallGoesOnWhoseParentsLogReadsAsEmpty: it is canceled when its parent is over, and only then.
func TestAScriptsCallGoesOnWhoseParentsLogReadsAsEmpty(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d")
		parent := y.submit("write")
		y.claim(y.take(toolyard.WriteExclusive), "w")
		child := y.submit("read")
		r := runner{d: New(y.Broker("other"), Config{ID: "other", Log: y.Log(), Planner: planner()}),
			kept: &kept{key: child}, log: y.Log()}
		ctx, end := context.WithCancel(y.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.followParent(ctx, &toolyard.Parent{Batch: parent.ID, Attempt: 1, N: 1})
		}()
		time.Sleep(parentEvery / 2)
		y.blind("TY_EVENT", 2*parentEvery)
		time.Sleep(4 * parentEvery)
		if c := y.fold(child).Cancels; len(c) > 0 {
			y.Errorf("the call was canceled: %s", c[0].Reason)
		}
		end()
		<-ended
	})
}

// TestASessionThatReadsAsMissing: what it says counts, once it was read, also where it was new before.
func TestASessionThatReadsAsMissing(t *testing.T) {
	inYard(t, func(y *yard) {
		read := func() bool {
			s, err := y.b.Session(y.Context(), "a", "s")
			if err != nil {
				y.Error(err)
			}
			return s.Unattended
		}
		if read() {
			y.Fatal("a new session is unattended")
		}
		_, err := y.b.ChangeSession(y.Context(), "a", "s", func(s *broker.Session) { s.Unattended = true })
		if err != nil || !read() {
			y.Fatalf("the session is not changed: %v", err)
		}
		y.blind("KV_ty_session", time.Second)
		if !read() {
			y.Error("somebody may be asked in a session where nobody is there to ask")
		}
	})
}
