package dispatchercmd

import (
	"bytes"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
)

// TestBatchRows: batches stand in columns; ids are shortened only where they still differ.
func TestBatchRows(t *testing.T) {
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	page := []client.BatchInfo{
		{Agent: "reviewer", ID: "01a1ffbe-8b20-73de-9775-9db112e2296a", Status: toolyard.StatusRunning, Calls: 3,
			Session: toolyard.DefaultSession, Workspace: toolyard.DefaultWorkspace,
			Submitted: now.Add(-3 * time.Second)},
		{Agent: "a", ID: "turn-17", Status: toolyard.StatusCompleted, Calls: 1, Session: "s-1", Workspace: "web",
			Submitted: now.Add(-50 * time.Hour)},
	}
	s := &std{out: &bytes.Buffer{}}
	const want = "3.0 s ago   running    reviewer/…12e2296a  3 calls\n" +
		"2 days ago  completed  a/turn-17           1 call, session s-1, workspace web\n"
	if got := cli.Table(s.batchRows(page, true, now), "", 80); got != want || !unambiguous(page) {
		t.Errorf("it prints\n%swant\n%s", got, want)
	}
	page[1].ID = "01a1ffbe-8b20-73de-9775-00000000296a"
	if !unambiguous(page) {
		t.Error("ids that differ in what is shown are ambiguous")
	}
	page[1].ID = "01a1ffbf-8b20-73de-9775-9db112e2296a"
	if unambiguous(page) {
		t.Error("ids that differ elsewhere are not")
	}
	s.verbose = true
	if got := cli.Table(s.batchRows(page[:1], false, now), "", 200); got != "2026-11-23T07:59:57Z  running  "+
		"reviewer/01a1ffbe-8b20-73de-9775-9db112e2296a  3 calls, session default, workspace default\n" {
		t.Errorf("with -v it prints\n%s", got)
	}
}
