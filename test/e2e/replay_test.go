//go:build unix

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/replay"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// watcher is a command whose lines are read as they come.
type watcher struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
	seen  []string
}

func watch(t *testing.T, args ...string) *watcher {
	t.Helper()
	w := &watcher{t: t, cmd: exec.Command(filepath.Join(bin, "dispatcher"), append([]string{"watch"}, args...)...),
		lines: make(chan string, 1000)}
	w.cmd.Stderr, w.cmd.Env = &prefixed{t: t, name: "watch"}, append(os.Environ(), reach(args)...)
	out, err := w.cmd.StdoutPipe()
	must.OK(t, err)
	must.OK(t, w.cmd.Start())
	t.Cleanup(func() {
		if w.cmd.ProcessState == nil {
			_ = w.cmd.Process.Kill()
			_ = w.cmd.Wait()
		}
	})
	go func() {
		defer close(w.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			w.lines <- s.Text()
		}
	}()
	return w
}

// until waits for a line that has all of the words.
func (w *watcher) until(words ...string) {
	w.t.Helper()
	for line := range w.next() {
		has := true
		for _, word := range words {
			has = has && strings.Contains(line, word)
		}
		if has {
			return
		}
	}
	w.t.Fatalf("watch has not shown %q, but\n%s", words, strings.Join(w.seen, "\n"))
}

func (w *watcher) next() func(func(string) bool) {
	return func(yield func(string) bool) {
		end := time.After(30 * time.Second)
		for {
			select {
			case line, ok := <-w.lines:
				if !ok {
					return
				}
				w.seen = append(w.seen, line)
				if !yield(line) {
					return
				}
			case <-end:
				return
			}
		}
	}
}

// ends reads to the end and returns the exit status.
func (w *watcher) ends() int {
	w.t.Helper()
	for range w.next() {
	}
	_ = w.cmd.Wait() // the status is what counts
	return w.cmd.ProcessState.ExitCode()
}

func (w *watcher) signal(sig syscall.Signal) {
	if err := w.cmd.Process.Signal(sig); err != nil {
		w.t.Error(err)
	}
}

// TestCancelAndWatch cancels a batch that waits because there is no worker, while others look on.
func TestCancelAndWatch(t *testing.T) {
	url := dispatcher(t).says["nats"]
	read := func(name string) toolyard.Call {
		return toolyard.Call{Tool: "read_file", Input: input(map[string]any{"file_path": name})}
	}
	sub := toolyard.Batch{ID: "wait/ing", Agent: "an agent", Calls: []toolyard.Call{read("a"), read("b"),
		{Tool: "write_file", Input: input(map[string]any{"file_path": "c", "content": "c"})}, read("d")}}
	all := watch(t, "--nats", url, "--all")
	all.until("watching all batches")
	other := watch(t, "--nats", url, "--agent", "somebody else")
	other.until("watching the batches of agent somebody else")

	submit := exec.Command(filepath.Join(bin, "dispatcher"), "submit", "--nats", url, "--json", batchFile(t, sub))
	submit.Env = append(os.Environ(), reach(submit.Args)...)
	var stdout strings.Builder
	submit.Stdout, submit.Stderr = &stdout, &prefixed{t: t, name: "submit"}
	must.OK(t, submit.Start())
	t.Cleanup(func() { _ = submit.Process.Kill() })
	all.until("an agent/wait/ing planned by ", "group 1 started, ticket ")

	ref := []string{"--nats", url, "--agent", "an agent"}
	one := watch(t, append(ref, "wait/ing")...)
	one.until("submitted: 4 calls")
	one.until("planned by", "3 groups [0-1] [2] [3], consecutive", "group 1 started, ticket ")
	interrupted := watch(t, append(ref, "--json", "wait/ing")...)
	interrupted.until(`"dev.toolyard.batch.planned.v1"`)
	interrupted.signal(syscall.SIGINT)
	if status := interrupted.ends(); status != 130 {
		t.Errorf("a watch of a batch that is interrupted ends with %d, want 130", status)
	}

	cancel := func(args ...string) (string, int) {
		out, errs, status := run(t, nil, "dispatcher", append([]string{"cancel"}, args...)...)
		if n := strings.Count(out+errs, "\n"); n != 1 {
			t.Errorf("cancel %q printed %d lines: %s%s", args, n, out, errs)
		}
		return out + errs, status
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{append(ref, "--call", "4", "wait/ing"), "has no call 4; its calls are 0 to 3"},
		{append(ref, "--call", "-1", "wait/ing"), "has no call -1"},
		{append(ref, "--call", "x", "wait/ing"), "--call"},
		{append(ref, "--reason", strings.Repeat("x", 2000), "wait/ing"), "at most 1000"},
		{append(ref, "other"), "no such batch"},
		{append(ref, ""), "BATCH: is empty"},
		{[]string{"--nats", url}, "takes the id of one batch"},
	} {
		if said, status := cancel(c.args...); status != 2 || !strings.Contains(said, c.want) {
			t.Errorf("cancel %q: status %d, %q; want %q", c.args, status, said, c.want)
		}
	}
	if said, status := cancel(append(ref, "--call", "1", "--reason", "not this one", "wait/ing")...); status != 0 ||
		!strings.Contains(said, "calls [1] end as canceled") {
		t.Errorf("cancel of a call: status %d, %q", status, said)
	}
	one.until("[1] read_file finished: canceled")
	if said, status := cancel(append(ref, "--reason", "no longer needed", "wait/ing")...); status != 0 {
		t.Errorf("cancel: status %d, %q", status, said)
	}
	if err := submit.Wait(); err != nil {
		t.Fatalf("submit: %v", err)
	}
	v := viewOf(t, stdout.String())
	if v.Status != toolyard.StatusCanceled || len(v.Results) != 4 {
		t.Errorf("status %s with %d results", v.Status, len(v.Results))
	}
	for _, r := range v.Results {
		want := "no longer needed"
		if r.Index == 1 {
			want = "not this one"
		}
		if r.Code != toolyard.Canceled || !strings.Contains(r.Error, want) {
			t.Errorf("call %d ended as %q: %s", r.Index, r.Code, r.Error)
		}
	}
	if status := one.ends(); status != 0 {
		t.Errorf("a watch of a batch that is complete ends with %d", status)
	}
	all.until("an agent/wait/ing", "the batch is complete")
	text := strings.Join(one.seen, "\n")
	for _, event := range []string{"submitted:", "planned by", "group 1 started", "cancel of [1] asked by",
		"cancel of the whole batch asked by",
		"[0] read_file finished", "[1] read_file finished", "settled without running", "the batch is complete"} {
		if n := strings.Count(text, event); n != 1 {
			t.Errorf("watch has shown %d times %q:\n%s", n, event, text)
		}
	}
	for _, who := range []*watcher{all, other} {
		who.signal(syscall.SIGINT)
		if status := who.ends(); status != 0 {
			t.Errorf("a watch of many that is interrupted ends with %d, its normal end is 0", status)
		}
	}
	if len(other.seen) != 1 || strings.Contains(strings.Join(all.seen, "\n"), "missing") {
		t.Errorf("watch of another agent has shown\n%s\nof all\n%s", strings.Join(other.seen, "\n"),
			strings.Join(all.seen, "\n"))
	}
	if said, status := cancel(append(ref, "wait/ing")...); status != 2 ||
		!strings.Contains(said, "the batch is completed") {
		t.Errorf("cancel again: status %d, %q", status, said)
	}
	out, errs, status := run(t, nil, "dispatcher", append([]string{"replay"}, append(ref, "wait/ing")...)...)
	if status != 0 || !strings.Contains(out, "canceled at") || !strings.Contains(out, "replies match results") {
		t.Errorf("replay: status %d, %s\n%s", status, errs, out)
	}
}

// TestReplayAndRerun replays a batch from the stream and from a file, and runs its calls again in a world that changed.
func TestReplayAndRerun(t *testing.T) {
	dir := workspace(t, map[string]string{"a.txt": "one\ntwo\nthree\n", "gone.txt": "here\n"})
	url := dispatcher(t, "--with-worker", "--workspace", "default="+
		dir, "--permission-mode", "accept_edits").says["nats"]
	read := func(name string) toolyard.Call {
		return toolyard.Call{Tool: "read_file", Input: input(map[string]any{"file_path": name})}
	}
	reads := toolyard.Batch{ID: "reads", Calls: []toolyard.Call{read("a.txt"), read("gone.txt"),
		{Tool: "glob", Input: input(map[string]any{"pattern": "*.none"})}}}
	events := filepath.Join(t.TempDir(), "log.jsonl")
	ran, errs, status := run(t, nil, "dispatcher", "submit", "--nats", url, "--json", "--events", events,
		batchFile(t, reads))
	if status != 0 {
		t.Fatalf("submit: %d, %s", status, errs)
	}

	var stored, filed, piped replay.Report
	log := must.Read(t, events)
	for arg, to := range map[string]*replay.Report{"reads": &stored, events: &filed, "-": &piped} {
		out, errs, status := run(t, strings.NewReader(string(log)), "dispatcher", "replay", "--nats", url, "--json",
			arg)
		if err := json.Unmarshal([]byte(out), to); err != nil || status != 0 {
			t.Fatalf("replay %s: status %d, %v, %s", arg, status, err, errs)
		}
		view, err := json.Marshal(to.Batch)
		want, err2 := json.Marshal(viewOf(t, ran))
		if err != nil || err2 != nil || string(view) != string(want) {
			t.Errorf("replay %s: the batch is\n%s\nand was\n%s", arg, view, want)
		}
		if !to.Consistent || to.Events != strings.Count(string(log), "\n") || len(to.Groups) != 1 ||
			to.Groups[0].StartedMS == nil || len(to.Replies) == 0 {
			t.Errorf("replay %s: %s", arg, out)
		}
	}
	out, errs, status := run(t, nil, "dispatcher", "replay", events)
	if status != 0 || !strings.HasSuffix(out, fmt.Sprintf("checked: %d events, replies match results\n",
		filed.Events)) {
		t.Errorf("replay of a file: status %d, %s\n%s", status, errs, out)
	}

	bad := filepath.Join(t.TempDir(), "bad.jsonl")
	lines := strings.SplitAfter(string(log), "\n")
	for name, c := range map[string]struct {
		text   string
		status int
		want   string
	}{
		"a result changed":  {strings.Replace(string(log), "here", "gone", 1), 1, "the log contradicts itself: event"},
		"an event left out": {lines[0] + strings.Join(lines[2:], ""), 1, "before planned"},
		"no log":            {"hello\n", 2, "line 1: "},
		"nothing":           {"", 2, "is empty"},
	} {
		must.OK(t, os.WriteFile(bad, []byte(c.text), 0o600))
		_, errs, status := run(t, nil, "dispatcher", "replay", bad)
		if status != c.status || !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: status %d, %q; want %d, %q", name, status, errs, c.status, c.want)
		}
	}
	if _, errs, status := run(t, nil, "dispatcher", "replay", "--nats", url, "neither"); status != 2 ||
		!strings.Contains(errs, "is no file") {
		t.Errorf("neither file nor batch: status %d, %q", status, errs)
	}

	again := func(args ...string) (string, string, int) {
		return run(t, nil, "dispatcher", append([]string{"replay", "--rerun", "--nats", url}, args...)...)
	}
	if out, errs, status := again(events); status != 0 || !strings.Contains(out, "no result is different") {
		t.Errorf("run again in the same world: status %d, %s\n%s", status, errs, out)
	}
	must.OK(t, os.WriteFile(filepath.Join(dir, "a.txt"), []byte("one\n2\nthree\n"), 0o600))
	must.OK(t, os.Remove(filepath.Join(dir, "gone.txt")))
	out, errs, status = again("reads")
	for _, want := range []string{`[0] output line 2: "2\ttwo", now "2\t2"`, `[1] code: "ok", now "invalid_arguments"`,
		"2 results of 3 different"} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("run again in another world: status %d, %s\n%s\nwant %s", status, errs, out, want)
		}
	}
	out, errs, status = again("--json", events)
	var diff struct {
		Of          toolyard.BatchKey
		Batch       toolyard.BatchView
		Differences []replay.Difference
	}
	if err := json.Unmarshal([]byte(out), &diff); err != nil || status != 0 || diff.Of.ID != "reads" ||
		diff.Batch.ID == "reads" || len(diff.Batch.Results) != 3 || len(diff.Differences) < 3 {
		t.Errorf("run again as JSON: status %d, %v, %s\n%s", status, err, errs, out)
	}

	write := toolyard.Batch{ID: "writes", Calls: []toolyard.Call{read("a.txt"),
		{Tool: "write_file", Input: input(map[string]any{"file_path": "new.txt", "content": "n"})}}}
	if _, errs, status := run(t, nil, "dispatcher", "submit", "--nats", url, batchFile(t, write)); status != 0 {
		t.Fatalf("submit: %d, %s", status, errs)
	}
	must.OK(t, os.Remove(filepath.Join(dir, "new.txt")))
	if _, errs, status := again("writes"); status != 2 || !strings.Contains(errs, "[1] write_file (WRITE_EXCLUSIVE)") {
		t.Errorf("a write is run again unasked: status %d, %q", status, errs)
	}
	if _, err := os.Stat(filepath.Join(dir, "new.txt")); err == nil {
		t.Error("it was refused, and has written")
	}
	if out, errs, status := again("--allow-writes", "writes"); status != 0 ||
		!strings.Contains(out, "no result is different") {
		t.Errorf("a write is run again: status %d, %s\n%s", status, errs, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "new.txt")); err != nil {
		t.Error(err)
	}
}
