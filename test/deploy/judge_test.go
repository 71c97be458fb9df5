package deploy

import (
	"fmt"
	"testing"

	"github.com/toolyard/toolyard"
)

// judge says what is wrong with a batch: it is not completed, it does not have one result for each call in the order
// of the calls, or its commands left other than they said in the ledger. A command leaves one line if its result says
// that it ran, none if it did not, and at most one if nobody knows or it was stopped. A batch whose connection was cut
// may be canceled: in MCP a request that stands alone is canceled by closing its response, and a proxy that is replaced
// does so.
func judge(view toolyard.BatchView, calls []toolyard.Call, lines int, cut bool) (problems []string) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	over := view.Status == toolyard.StatusCompleted || cut && view.Status == toolyard.StatusCanceled
	if !over || len(view.Results) != len(calls) {
		wrong("it is %s and has %d results of %d", view.Status, len(view.Results), len(calls))
		return problems
	}
	least, most := 0, 0
	for i, r := range view.Results {
		if r.Index != i || r.CallID != calls[i].ID || r.Tool != calls[i].Tool {
			wrong("result %d is of call %d, %s", i, r.Index, r.Tool)
		}
		if r.Class == toolyard.Unsafe && r.Tool == "bash" {
			switch r.Code {
			case "":
				least, most = least+1, most+1
			case toolyard.OutcomeUnknown, toolyard.Canceled:
				most++
			}
		}
	}
	if lines < least || lines > most {
		wrong("it left %d lines in the ledger, want %d to %d", lines, least, most)
	}
	return problems
}

// TestJudge: what must not be is found.
func TestJudge(t *testing.T) {
	calls := []toolyard.Call{{ID: "a", Tool: "read_file"}, {ID: "b", Tool: "bash"}}
	results := func(code toolyard.Code) []toolyard.Result {
		return []toolyard.Result{{Index: 0, CallID: "a", Tool: "read_file", Class: toolyard.ReadOnly},
			{Index: 1, CallID: "b", Tool: "bash", Class: toolyard.Unsafe, Code: code}}
	}
	swapped := results("")
	swapped[0], swapped[1] = swapped[1], swapped[0]
	for _, c := range []struct {
		name    string
		status  toolyard.Status
		results []toolyard.Result
		lines   int
		cut     bool
		good    bool
	}{
		{"it ran once", toolyard.StatusCompleted, results(""), 1, false, true},
		{"it ran twice", toolyard.StatusCompleted, results(""), 2, false, false},
		{"it did not run", toolyard.StatusCompleted, results(""), 0, false, false},
		{"nobody knows, and it ran", toolyard.StatusCompleted, results(toolyard.OutcomeUnknown), 1, false, true},
		{"nobody knows, and it did not", toolyard.StatusCompleted, results(toolyard.OutcomeUnknown), 0, false, true},
		{"nobody knows, and it ran twice", toolyard.StatusCompleted, results(toolyard.OutcomeUnknown), 2, false, false},
		{"it was denied", toolyard.StatusCompleted, results(toolyard.PermissionDenied), 0, false, true},
		{"it was denied, and ran", toolyard.StatusCompleted, results(toolyard.PermissionDenied), 1, false, false},
		{"a result is missing", toolyard.StatusCompleted, results("")[:1], 0, false, false},
		{"the results are swapped", toolyard.StatusCompleted, swapped, 1, false, false},
		{"it is not over", toolyard.StatusRunning, results(""), 1, false, false},
		{"cut, and it did not run", toolyard.StatusCanceled, results(toolyard.Canceled), 0, true, true},
		{"cut, and it ran", toolyard.StatusCanceled, results(toolyard.Canceled), 1, true, true},
		{"cut, and it ran twice", toolyard.StatusCanceled, results(toolyard.Canceled), 2, true, false},
		{"canceled without a cut", toolyard.StatusCanceled, results(toolyard.Canceled), 0, false, false},
	} {
		found := judge(toolyard.BatchView{Status: c.status, Results: c.results}, calls, c.lines, c.cut)
		if (len(found) == 0) != c.good {
			t.Errorf("%s: %v", c.name, found)
		}
	}
}
