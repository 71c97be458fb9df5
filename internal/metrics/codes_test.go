package metrics

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/toolyard/toolyard"
)

// TestCodesAreBounded: what a worker writes as a code makes no series of its own.
func TestCodesAreBounded(t *testing.T) {
	m := New(func() bool { return true })
	d := m.Dispatcher(func() Load { return Load{} })
	size := func() int {
		var b bytes.Buffer
		if err := m.Write(&b); err != nil {
			t.Fatal(err)
		}
		return bytes.Count(b.Bytes(), []byte("\n"))
	}
	before := size()
	for n := range 10_000 {
		d.Result(&toolyard.Result{Class: toolyard.ReadOnly, IsError: true,
			Code: toolyard.Code(fmt.Sprint("made_up_", n))})
	}
	if after := size(); after > before+10 {
		t.Errorf("%d lines became %d", before, after)
	}
}
