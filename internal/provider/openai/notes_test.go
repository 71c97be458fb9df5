package openai

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/provider/eventstream"
)

// TestNotesAreBounded: items that are not our calls are recorded up to a number, since each output looks for its own.
func TestNotesAreBounded(t *testing.T) {
	const item = `data: {"type":"response.output_item.done","output_index":%d,"item":{"type":"x_call","call_id":"c"}}`
	var b strings.Builder
	for i := range eventstream.MaxNotes + 1 {
		fmt.Fprintf(&b, item+"\n\n", i)
	}
	d := NewStream()
	if _, err := d.Feed([]byte(b.String())); err == nil || len(d.Notes()) != eventstream.MaxNotes {
		t.Errorf("%d notes, %v", len(d.Notes()), err)
	}
}
