//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestBackupAndRestore saves a system while batches run, and makes another of it. There a replay and the results of a
// batch that was over read as before, and a batch that was under way comes to its end.
func TestBackupAndRestore(t *testing.T) { backUpAndRestore(t, false) }

// TestBackupOfAnArchive is the same where the batch that was over is archived.
func TestBackupOfAnArchive(t *testing.T) { backUpAndRestore(t, true) }

// TestBackupOfFourShards is the same in a system of four shards.
func TestBackupOfFourShards(t *testing.T) { backUpAndRestore(t, true, "--shards", "4") }

func backUpAndRestore(t *testing.T, archived bool, args ...string) {
	t.Parallel()
	dir := workspace(t, map[string]string{"a.txt": "one\n", "c.txt": "c"})
	d := dispatcher(t, args...)
	worker(t, d.says["nats"], dir, "--allow", "edit_file")
	at := func(cmd string, args ...string) []string {
		return append([]string{cmd, "--nats", d.says["nats"]}, args...)
	}
	big := strings.Repeat("a long line of a file\n", 20_000) // its result is kept as an object
	must.OK(t, os.WriteFile(filepath.Join(dir, "big.txt"), []byte(big), 0o600))
	read := toolyard.Call{ID: "c1", Tool: "read_file", Input: input(map[string]any{"file_path": "a.txt"})}
	said(t, at("submit", "--json", batchFile(t, toolyard.Batch{ID: "over", Session: "s", Calls: []toolyard.Call{read,
		{ID: "c2", Tool: "read_file", Input: input(map[string]any{"file_path": "big.txt"})},
		{ID: "c3", Tool: "edit_file", Input: input(map[string]any{"file_path": "a.txt", "old_string": "one",
			"new_string": "two"})}}}))...)
	waits := toolyard.Batch{ID: "waits", Interactive: true, Calls: []toolyard.Call{{ID: "c2", Tool: "write_file",
		Input: input(map[string]any{"file_path": "b.txt", "content": "three\n"})}, read}}
	waits.Normalize("waits")
	must.OK(t, connect(t, d.says["nats"]).Submit(t.Context(), waits))
	asked := waiting(t, d.says["nats"], 1)
	if archived {
		a, err := connect(t, d.says["nats"]).Archiver(t.Context(), time.Nanosecond, nil)
		must.OK(t, err)
		for n := 0; n == 0; { // until its submission is acknowledged
			r, err := a.Round(t.Context())
			must.OK(t, err)
			n = r.Batches
		}
	}
	// More batches run while the system is saved.
	more := map[toolyard.BatchKey]bool{}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	flood := connect(t, d.says["nats"])
	go func() {
		for n := range 60 { // bounded, since all of them write to one workspace, one after the other
			b := toolyard.Batch{Agent: toolyard.Agent(fmt.Sprint("more", n%4)), Calls: []toolyard.Call{read,
				{ID: "c2", Tool: "edit_file", Input: input(map[string]any{"file_path": "c.txt", "old_string": "c",
					"new_string": "cc"})}, {ID: "c3", Tool: "glob", Input: input(map[string]any{"pattern": "*"})}}}
			b.Normalize(toolyard.BatchID(fmt.Sprint("b", n)))
			more[b.Key()] = true
			if err := flood.Submit(t.Context(), b); err != nil {
				stopped <- err
				return
			}
			select {
			case <-stop:
				stopped <- nil
				return
			case <-time.After(time.Millisecond):
			}
		}
		stopped <- nil
	}()
	saved := filepath.Join(t.TempDir(), "saved")
	said(t, at("backup", saved)...)
	close(stop)
	must.OK(t, <-stopped)
	replays := func(cmd func(string, ...string) []string) (texts [2]string) {
		for i, args := range [][]string{cmd("replay", "--json", "over"), cmd("replay", "over")} {
			texts[i] = said(t, args...)
		}
		return texts
	}
	before := replays(at)
	d.stop(syscall.SIGKILL)

	for what, spoil := range map[string]func(dir string) error{
		"no whole backup": func(dir string) error { return os.Remove(filepath.Join(dir, "backup.json")) },
		"it is not as it was saved": func(dir string) error {
			return os.Truncate(filepath.Join(dir, "TY_EVENT.snapshot"), 100)
		},
		"no such file": func(dir string) error { return os.Remove(filepath.Join(dir, "TY_CALL.snapshot")) },
	} {
		spoilt, data := filepath.Join(t.TempDir(), "spoilt"), t.TempDir()
		must.OK(t, os.CopyFS(spoilt, os.DirFS(saved)))
		must.OK(t, spoil(spoilt))
		if stdout, stderr, status := run(t, nil, "dispatcher", "restore", "--data", data, spoilt); status != 2 ||
			!strings.Contains(stderr, what) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: status %d\n%s%s", what, status, stdout, stderr)
		}
	}
	data := testenv.StoreDir(t)
	said(t, "restore", "--data", data, saved)
	if stdout, stderr, status := run(t, nil, "dispatcher", "restore", "--data", data, saved); status != 2 ||
		!strings.Contains(stderr, "a system already") {
		t.Errorf("a second time: status %d\n%s%s", status, stdout, stderr)
	}

	d = dispatcher(t, "--data", data)
	after := replays(at)
	for i := range before {
		if before[i] != after[i] {
			t.Errorf("a replay was\n%s\nand is\n%s", before[i], after[i])
		}
	}
	var report struct {
		Batch toolyard.BatchView `json:"batch"`
	}
	if err := json.Unmarshal([]byte(after[0]), &report); err != nil || len(report.Batch.Results) != 3 ||
		report.Batch.Status != toolyard.StatusCompleted || !strings.Contains(report.Batch.Results[0].Output, "one") {
		t.Errorf("%v: the batch that was over is %+v", err, report.Batch)
	}
	if got := waiting(t, d.says["nats"], 1); len(got) != 1 || got[0].ID != asked[0].ID {
		t.Errorf("%+v wait for a person; before it was %+v", got, asked)
	}
	worker(t, d.says["nats"], dir, "--allow", "edit_file")
	said(t, at("approve", "--input-sha256", asked[0].InputSHA256, asked[0].ID)...)
	b, kept := connect(t, d.says["nats"]), 0
	over := func(k toolyard.BatchKey) {
		t.Helper()
		testenv.Until(t, "batch "+k.String()+" is over", func() bool {
			s, err := b.Fold(t.Context(), k)
			must.OK(t, err)
			return s.Status() == toolyard.StatusCompleted
		})
	}
	over(waits.Key())
	if text, err := os.ReadFile(filepath.Join(dir, "b.txt")); err != nil || string(text) != "three\n" {
		t.Errorf("the call that was approved wrote %q, %v", text, err)
	}
	// Each of the others whose submission was saved comes to its end too.
	for k := range more {
		if there, err := b.Submitted(t.Context(), k); err != nil {
			t.Fatal(err)
		} else if !there {
			continue
		}
		kept++
		over(k)
	}
	t.Logf("%d batches were submitted during the backup, and %d are in it", len(more), kept)
	// The same in a NATS system.
	url := openServer(t)
	said(t, "restore", "--nats", url, saved)
	if text := said(t, "replay", "--nats", url, "over"); text != before[1] {
		t.Errorf("a replay was\n%s\nand in a NATS system is\n%s", before[1], text)
	}
	said(t, at("submit", batchFile(t, toolyard.Batch{ID: "new", Calls: []toolyard.Call{read}}))...)
}

// openServer starts a NATS server that nobody has set up.
func openServer(t *testing.T) (url string) {
	t.Helper()
	s, err := natsd.Start(t.Context(), natsd.Options{StoreDir: testenv.StoreDir(t), Listen: "127.0.0.1:0", Open: true,
		Logger: testenv.Log(t)})
	must.OK(t, err)
	t.Cleanup(s.Shutdown)
	return s.ClientURL()
}

// TestBackupRefuses a directory that is there, and a server without a system.
func TestBackupRefuses(t *testing.T) {
	t.Parallel()
	d := dispatcher(t)
	stdout, stderr, status := run(t, nil, "dispatcher", "backup", "--nats", d.says["nats"], t.TempDir())
	if status != 2 || !strings.Contains(stderr, "that is not there") {
		t.Errorf("a directory that is there: status %d\n%s%s", status, stdout, stderr)
	}
	empty := openServer(t)
	stdout, stderr, status = run(t, nil, "dispatcher", "backup", "--nats", empty, filepath.Join(t.TempDir(), "new"))
	if status != 1 || !strings.Contains(stderr, "no whole system") {
		t.Errorf("a server without a system: status %d\n%s%s", status, stdout, stderr)
	}
}
