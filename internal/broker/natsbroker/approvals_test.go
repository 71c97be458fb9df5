package natsbroker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/approval"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/display"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestApprovals lists the waiting calls, newest first, and keeps nothing of decided ones.
func TestApprovals(t *testing.T) {
	s := testenv.Server(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	b, err := natsbroker.Open(ctx, testenv.Conn(t, s), broker.Settings{WorkerTTL: time.Second}, "/test")
	must.OK(t, err)
	began := time.Now().UTC()
	approval := func(i int) broker.Approval {
		return broker.Approval{
			Agent: toolyard.Agent(fmt.Sprint("agent ", i%2)), Batch: toolyard.BatchID(fmt.Sprint(i / 3)), Index: i % 3,
			AskedAt: began.Add(time.Duration(i) * time.Millisecond),
		}
	}
	for i := range 30 {
		must.OK(t, b.PutApproval(ctx, approval(i)))
	}
	// its batch has another owner: the call already waits
	must.OK(t, b.PutApproval(ctx, approval(7)))
	for i := 20; i < 30; i++ {
		a := approval(i)
		must.OK(t, b.DropApproval(ctx, a.Key(), a.Index, a.AskedAt))
	}
	for agent, want := range map[toolyard.Agent]int{"": 20, "agent 1": 10, "nobody": 0} {
		listed, err := b.Approvals(ctx, agent)
		if err != nil || len(listed) != want {
			t.Fatalf("agent %q: %d calls wait (%v), want %d", agent, len(listed), err, want)
		}
		if n, err := b.CountApprovals(ctx, agent); err != nil || n != want {
			t.Errorf("agent %q: %d calls are counted (%v), want %d", agent, n, err, want)
		}
		for i := range listed {
			if i > 0 && !listed[i].AskedAt.Before(listed[i-1].AskedAt) {
				t.Errorf("agent %q: call %d was asked about at %s, the one before it at %s", agent, i,
					listed[i].AskedAt, listed[i-1].AskedAt)
			}
		}
	}
	js := testenv.JetStream(t, testenv.Conn(t, s))
	for {
		bucket := testenv.Stream(t, js, "KV_ty_approval")
		if kept := bucket.CachedInfo().State.Msgs; kept == 20 {
			return
		} else if ctx.Err() != nil || kept < 20 {
			t.Fatalf("%d messages are kept for 20 calls that wait", kept)
		}
		time.Sleep(20 * time.Millisecond) // between two looks
	}
}

// TestTheLatestQuestionIsListed: what is late about an earlier question of a call, or an owner that does not know the
// later one, changes nothing on the list.
func TestTheLatestQuestionIsListed(t *testing.T) {
	b := testenv.Broker(t, testenv.Server(t), "/test")
	asked := time.Now().UTC()
	question := func(attempt int) broker.Approval {
		return broker.Approval{Agent: "a", Batch: "b", Waiting: events.Waiting{Attempt: attempt},
			AskedAt: asked.Add(time.Duration(attempt) * time.Nanosecond)}
	}
	listed := func(when string, want int) {
		t.Helper()
		list, err := b.Approvals(t.Context(), "a")
		switch {
		case err != nil:
			t.Fatal(err)
		case want == 0 && len(list) == 0:
		case len(list) != 1 || list[0].Attempt != want || !list[0].AskedAt.Equal(question(want).AskedAt):
			t.Errorf("%s: %+v is listed, want the question of attempt %d", when, list, want)
		}
	}
	put := func(attempt int) {
		t.Helper()
		must.OK(t, b.PutApproval(t.Context(), question(attempt)))
	}
	drop := func(attempt int) {
		t.Helper()
		k := toolyard.BatchKey{Agent: "a", ID: "b"}
		must.OK(t, b.DropApproval(t.Context(), k, 0, question(attempt).AskedAt))
	}
	drop(1)
	listed("before any question", 0)
	put(1)
	put(2)
	listed("after the second question", 2)
	put(1)
	listed("when a former owner lists the first one", 2)
	drop(1)
	listed("when a former owner takes the first one off", 2)
	drop(2)
	listed("when the second one is answered", 0)
	put(3)
	listed("after the third one", 3)
	drop(4) // by whoever gives the batch up
	listed("when the call is over", 0)
}

// TestWhatNobodyHasSeenIsNotApproved: an input of which only the beginning exists, as a worker of an older version
// sends it, and an input other than the one that was shown.
func TestWhatNobodyHasSeenIsNotApproved(t *testing.T) {
	b := testenv.Broker(t, testenv.Server(t), "/test")
	k := toolyard.BatchKey{Agent: "a", ID: "b"}
	plan := events.Planned{Calls: []events.PlannedCall{{Pool: "default"}, {Pool: "default"}}}
	if _, err := b.Append(t.Context(), k, batch.ChainBatch, "", 0, 0, plan); err != nil {
		t.Fatal(err)
	}
	for i, input := range []string{`{"command":"ls… ` + display.CutMark(100_000) + `"}`, `{"command":"ls"}`} {
		if _, err := b.Append(t.Context(), k, batch.ChainItem, "default", i, 0,
			events.Waiting{Input: json.RawMessage(input), InputSHA256: "11"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		index int
		d     events.Decided
		input string
		says  string
	}{
		{0, events.Decided{By: "ann"}, "", "too long"},
		{0, events.Decided{By: "ann", InputSHA256: "11"}, "", "too long"},
		{1, events.Decided{By: "ann", InputSHA256: "22"}, "", "was shown"},
		{1, events.Decided{By: "ann", InputSHA256: "22"}, `{}`, "was shown"},
	} {
		err := approval.Approve(t.Context(), b, k, tt.index, tt.d, json.RawMessage(tt.input))
		if _, ok := errors.AsType[*toolyard.InputError](err); !ok || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("call %d, %+v %s: %v; want %q", tt.index, tt.d, tt.input, err, tt.says)
		}
	}
	err := approval.Decide(t.Context(), b, k, 1, events.Decided{Decision: events.Approve, By: "ann", InputSHA256: "22"})
	if _, ok := errors.AsType[*toolyard.InputError](err); !ok {
		t.Errorf("a decision about another input: %v", err)
	}
	// A denial is about what was shown, too: the call may have been allowed, and ask something else.
	deny := func(hash string) error {
		return approval.Decide(t.Context(), b, k, 1, events.Decided{Decision: events.Reject, By: "ann",
			InputSHA256: hash})
	}
	if err := deny("22"); !errors.Is(err, broker.ErrNoApproval) {
		t.Errorf("a denial of what was asked before: %v", err)
	}
	if err := deny("11"); err != nil {
		t.Errorf("a denial of what is asked: %v", err)
	}
}
