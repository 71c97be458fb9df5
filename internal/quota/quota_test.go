package quota

import (
	"testing"

	"github.com/toolyard/toolyard"
)

func TestQuota(t *testing.T) {
	q := New(3, 2)
	enter := func(agent toolyard.Agent, own int) func() {
		t.Helper()
		leave, full := q.Enter(agent, own)
		if full != nil {
			t.Fatal(full)
		}
		return leave
	}
	refused := func(agent toolyard.Agent, own int, want FullError) {
		t.Helper()
		if _, full := q.Enter(agent, own); full == nil || *full != want {
			t.Fatalf("%+v, want %+v", full, want)
		}
	}
	first := enter("a", 0)
	refused("a", 1, FullError{1, true})
	second := enter("a", 5) // an own bound does not lift the common one
	refused("a", 5, FullError{2, true})
	third := enter("b", 0)
	refused("b", 0, FullError{3, false})
	refused("", -1, FullError{3, false})
	first()
	first() // once is enough
	anybody := enter("", -1)
	refused("a", 0, FullError{3, false})
	for _, leave := range []func(){second, third, anybody} {
		leave()
	}
	if q.all != 0 || len(q.each) != 0 {
		t.Errorf("%d are counted, %v each, and none is under way", q.all, q.each)
	}
	for range 3 {
		enter("", -1)
	}
}
