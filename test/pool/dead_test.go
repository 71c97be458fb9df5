package pool

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// TestPoison: what cannot be read on the batch stream and on the work queue is answered where somebody waits, is
// listed, and holds nobody up; nor does a batch whose log cannot be followed.
func TestPoison(t *testing.T) {
	testenv.OneShard(t)
	t.Parallel()
	s := testenv.Server(t)
	b, c, nc := testenv.Broker(t, s, "/test"), startClient(t, s), testenv.Conn(t, s)
	put := func(subject string, data string) {
		t.Helper()
		if _, err := nc.Request(subject, []byte(data), 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	put("ty.batch.a.junk", "this is no event")
	put("ty.batch.a.=61", "{}")
	lane := broker.LaneOf("a")
	put(fmt.Sprintf("ty.call.READ_ONLY.default.%d.a.other.0.0", lane), "neither is this")
	put(fmt.Sprintf("ty.call.READ_ONLY.default.%d.what", lane), "nor this")
	// A log that contradicts itself: a group starts before the batch was planned.
	lost := submit(t, c, toolyard.Batch{Agent: "a", ID: "lost", Calls: calls("read")})
	if _, err := b.Append(t.Context(), lost.Key(), batch.ChainBatch, "", 0, 0, events.Started{}); err != nil {
		t.Fatal(err)
	}
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, reader("read"), says("x"))}})
	startDispatcher(t, s, dispatcher.Config{MaxDeliveries: 2})

	if got := codes(results(t, c, toolyard.Batch{Agent: "a", Calls: calls("read")})); got != "ok" {
		t.Errorf("the next batch: %s", got)
	}
	replies, err := b.Replies(t.Context(), toolyard.BatchKey{Agent: "a", ID: "junk"}, 0)
	must.OK(t, err)
	if refused, ok := replies[0].Body.(events.Refused); !ok || refused.Status != 400 {
		t.Errorf("whoever waits for what is no batch gets %+v", replies)
	}
	if got := codes(collect(t, t.Context(), lost)); got != "internal_error" {
		t.Errorf("the batch whose log cannot be followed: %s", got)
	}

	want := map[string]string{ // by the subject where it stood
		"ty.batch.a.junk": "submission a junk", "ty.batch.a.=61": "submission  ", "ty.batch.a.lost": "batch a lost",
		fmt.Sprintf("ty.call.READ_ONLY.default.%d.a.other.0.0", lane): "call a other",
		fmt.Sprintf("ty.call.READ_ONLY.default.%d.what", lane):        "call  ",
	}
	for end := time.Now().Add(30 * time.Second); ; {
		letters, err := c.DeadLetters(t.Context(), 100)
		must.OK(t, err)
		left := len(want)
		for _, l := range letters {
			about, ok := want[l.Subject]
			if !ok || about != strings.Join([]string{l.Kind, string(l.Agent), string(l.Batch)}, " ") || l.Cause == "" ||
				l.Seq == 0 || l.Bytes == 0 {
				t.Errorf("an unexpected dead letter: %+v", l)
			}
			left--
		}
		if left == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the dead letters are %+v", letters)
		}
	}
}
