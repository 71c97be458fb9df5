package follow_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/testenv"
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
	if err := b.Submit(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	if n, err := results(); n != 0 || !errors.Is(err, broker.ErrNoBatch) {
		t.Errorf("of a batch without replies: %d, %v", n, err)
	}
	if _, err := b.EndReplies(t.Context(), sub.Key(), &sub, strings.Repeat("the test ends it ", 100)); err != nil {
		t.Fatal(err)
	}
	if n, err := results(); n != len(sub.Calls) || err != nil {
		t.Errorf("of a batch that is over: %d of %d, %v", n, len(sub.Calls), err)
	}
}
