package pool

import (
	"context"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// TestLongResultsComeWhole: what a tool's limit lets through travels as objects where it has to, in the log and in
// replies, and so does what a failure leaves.
func TestLongResultsComeWhole(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	long := strings.Repeat("line\n", 700_000)
	d := reader("long")
	d.MaxResultSizeChars = -1
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, d,
		func(context.Context, tool.Env) (string, error) { return long, nil })}})
	startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	b := submit(t, c, toolyard.Batch{Calls: calls("long", "long", "long")})
	for i, r := range collect(t, t.Context(), b) {
		if r.IsError || r.Truncated || r.Output != long {
			t.Errorf("%d: %q %s, truncated %t, %d of %d bytes", i, r.Code, r.Error, r.Truncated, len(r.Output),
				len(long))
		}
	}
	v, err := b.View(t.Context())
	if err != nil || len(v.Results) != 3 || v.Results[2].Output != long {
		t.Errorf("the batch has %d results, %v", len(v.Results), err)
	}
}
