package worker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/broker"
)

// TestTail: of an output that is longer than the limit the last whole lines are kept, and what is left out is counted.
// Only background calls have one.
func TestTail(t *testing.T) {
	var none tail
	none.add("one\n", 3)
	if got := none.get(); got != (broker.OutputTail{}) {
		t.Errorf("%+v", got)
	}
	kept := tail{keep: true}
	var all strings.Builder
	for i := range 4_000 {
		line := fmt.Sprintf("line %d\n", i)
		all.WriteString(line)
		kept.add(line, 0)
		got := kept.get()
		if len(got.Text) > broker.MaxTailBytes || !strings.HasSuffix(all.String(), got.Text) ||
			!strings.HasPrefix(got.Text, "line ") || int(got.LostBytes)+len(got.Text) != all.Len() {
			t.Fatalf("after line %d: %d bytes from %.20q, %d are lost", i, len(got.Text), got.Text, got.LostBytes)
		}
	}
	kept.add("behind a gap\n", 100)
	if got := kept.get(); got.Text != "behind a gap\n" || int(got.LostBytes) != all.Len()+100 {
		t.Errorf("%+v", got)
	}
	kept.add(strings.Repeat("x", 2*broker.MaxTailBytes), 0)
	if got := kept.get(); len(got.Text) != broker.MaxTailBytes {
		t.Errorf("one long line: %d bytes", len(got.Text))
	}
}
