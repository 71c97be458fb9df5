package toolyard

import "testing"

// TestHandles: the id of a background call follows from the call that starts it, is a name, and says whether it has its
// workspace.
func TestHandles(t *testing.T) {
	k := BatchKey{Agent: "a", ID: "b"}
	seen := map[BatchID]bool{}
	for _, c := range []struct {
		k         BatchKey
		index     int
		workspace bool
	}{{k, 0, false}, {k, 0, true}, {k, 1, false}, {BatchKey{Agent: "a", ID: "c"}, 0, false},
		{BatchKey{Agent: "a", ID: "0 b"}, 0, false}, {k, 10, false}} {
		id := BackgroundID(c.k, c.index, c.workspace)
		if is, workspace := id.Background(); !is || workspace != c.workspace || CheckName("id", string(id)) != nil ||
			seen[id] || id != BackgroundID(c.k, c.index, c.workspace) {
			t.Errorf("%v: %q", c, id)
		}
		seen[id] = true
	}
	for _, id := range []BatchID{"", "b", "bg", "bgx-1", "task-1", "BG-1"} {
		if is, workspace := id.Background(); is || workspace {
			t.Errorf("%q is a background call", id)
		}
	}
}
