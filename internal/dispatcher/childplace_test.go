package dispatcher

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/admission"
	"github.com/toolyard/toolyard/internal/broker"
)

// parentsAndChildren is a queue of a dispatcher with so many places for batches, and so many for those that wait.
func parentsAndChildren(places, waiting int) *admissionQueue {
	return newAdmissionQueue(&Config{MaxBatches: places, MaxAgentBatches: 100, MaxWaiting: waiting,
		MaxAgentWaiting: waiting, MaxOpen: 1}, slog.New(slog.DiscardHandler))
}

// arrives adds a batch, and says why it is rejected.
func arrives(l *admissionQueue, id string, underWay, child bool) admission.Reason {
	k := toolyard.BatchKey{Agent: "a", ID: toolyard.BatchID(id)}
	_, why := l.add(&broker.Submission{Key: k}, admission.Batch{Key: k, Calls: 1, Begins: 1, Bytes: 1}, underWay, child)
	return why
}

// startAll starts what may start.
func startAll(l *admissionQueue) (started []toolyard.BatchKey) {
	for {
		k, ok := l.start()
		if !ok {
			return started
		}
		started = append(started, k.key)
	}
}

// TestScriptsCallsRunThoughTakenOverBatchesTakeAllPlaces: a dispatcher has as many batches as it may run, and takes
// over as many of one that died. All of them run scripts. Each waits for a call of its script, which needs a place
// itself.
func TestScriptsCallsRunThoughTakenOverBatchesTakeAllPlaces(t *testing.T) {
	t.Parallel()
	const places = 2
	l := parentsAndChildren(places, 10)
	for n := range places {
		arrives(l, fmt.Sprint("own ", n), false, false)
	}
	startAll(l)
	for n := range places + 1 {
		arrives(l, fmt.Sprint("taken over ", n), true, false)
	}
	startAll(l)
	if running, _, _ := l.load(); running != 2*places {
		t.Fatalf("%d batches run, want %d", running, 2*places)
	}
	for n := range 2 * places {
		if why := arrives(l, fmt.Sprint("child ", n), false, true); why != admission.Admitted {
			t.Fatalf("child %d was rejected: %s", n, why)
		}
	}
	for n := 0; n < 2*places; {
		children := startAll(l)
		if len(children) == 0 || len(children) > places {
			t.Fatalf("%d children start after %d; want one to %d: all others wait for them", len(children), n, places)
		}
		for _, k := range children {
			if k.ID[0] != 'c' {
				t.Fatalf("%s started where no place is free", k)
			}
			l.remove(k)
		}
		n += len(children)
	}
}

// TestAScriptsCallDoesNotWaitBehindItsParent: where too many calls of scripts wait, one more is refused. If it waited
// as a new batch, it would wait for the place of the batch that waits for it.
func TestAScriptsCallDoesNotWaitBehindItsParent(t *testing.T) {
	t.Parallel()
	l := parentsAndChildren(1, 1)
	arrives(l, "parent", false, false)
	startAll(l)
	for n := range 3 {
		arrives(l, fmt.Sprint("child ", n), false, true)
	}
	for children := startAll(l); len(children) > 0; children = startAll(l) {
		for _, k := range children {
			l.remove(k)
		}
	}
	if _, waiting, _ := l.load(); waiting != 0 {
		t.Errorf("%d calls of the script wait for their parent's place, which waits for them", waiting)
	}
}

// TestATakenOverCallOfAScriptRunsThoughOthersWaitForIt: the calls of scripts that have all places wait for a workspace
// that one of a dispatcher that died still holds. It comes to this dispatcher, behind others that are new.
func TestATakenOverCallOfAScriptRunsThoughOthersWaitForIt(t *testing.T) {
	t.Parallel()
	const places = 2
	l := parentsAndChildren(places, 10)
	for n := range 2 * places {
		arrives(l, fmt.Sprint("waits for the workspace ", n), false, true)
	}
	startAll(l)
	arrives(l, "has the workspace", true, true)
	if started := startAll(l); len(started) != 1 || started[0].ID != "has the workspace" {
		t.Errorf("started %v, want the one for which the others wait", started)
	}
	if running, waiting, _ := l.load(); running != places+1 || waiting != places {
		t.Errorf("%d calls of scripts run and %d wait, want %d and %d", running, waiting, places+1, places)
	}
}
