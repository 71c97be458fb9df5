//go:build unix

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// silent is a server that never answers. It says who asked.
func silent(t *testing.T) (url string, asked <-chan struct{}) {
	t.Helper()
	hits, done := make(chan struct{}, 100), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		hits <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-done:
		}
	}))
	t.Cleanup(func() { close(done); s.Close() })
	return s.URL, hits
}

var fetchAllowed = []string{"--web-allow-private", "127.0.0.1", "--allow", "web_fetch"}

func TestTimeLimits(t *testing.T) {
	t.Parallel()
	url, _ := silent(t)
	p := newPlace(t, map[string]string{"a.txt": "one\n"})
	p.write("in.json", fmt.Sprintf(`{"calls":[{"id":"read","tool":"read_file","input":{"file_path":"a.txt"}},{"id":"slow","tool":"web_fetch","input":{"url":%q}},
		{"id":"unknown","tool":"nope"},{"id":"after","tool":"read_file","input":{"file_path":"a.txt"}}]}`, url))
	for _, c := range []struct {
		flag string
		want []toolyard.Code
	}{
		{"--call-timeout=100ms", []toolyard.Code{"", toolyard.Timeout, toolyard.UnknownTool, ""}},
		{"--timeout=300ms", []toolyard.Code{"", toolyard.DeadlineExceeded, toolyard.UnknownTool,
			toolyard.DeadlineExceeded}},
	} {
		// What it logs is not looked at: a worker may say that its late result was not wanted any more.
		stdout, stderr, status := p.run(nil, nil, slices.Concat([]string{"run", "--json", c.flag}, fetchAllowed,
			[]string{"in.json"})...)
		if status != 0 {
			t.Fatalf("%s: exit status %d, %s", c.flag, status, stderr)
		}
		v := viewOf(t, stdout)
		var got []toolyard.Code
		for _, r := range v.Results {
			got = append(got, r.Code)
		}
		if d := cmp.Diff(c.want, got); d != "" || v.Status != toolyard.StatusCompleted {
			t.Errorf("%s: status %s, codes (-want +got):\n%s", c.flag, v.Status, d)
		}
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	// Under nohup a hangup is ignored, and commands that are started would ignore it too. Those of a program that
	// handles it do not.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	url, asked := silent(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		p := newPlace(t, nil)
		p.write("in.json",
			fmt.Sprintf(`{"calls":[{"tool":"web_fetch","input":{"url":%q}},{"tool":"glob","input":{"pattern":"*"}}]}`,
				url))
		// The grace is short: how long it is by default is the operator's choice, and waited for here.
		cmd := p.command(t.Context(), nil, nil, slices.Concat([]string{"run", "--json", "--drain-grace", "100ms",
			"--events", "events.jsonl"}, fetchAllowed, []string{"in.json"})...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		must.OK(t, cmd.Start())
		select {
		case <-asked: // so it is in the middle of a call
		case <-time.After(30 * time.Second):
			_ = cmd.Process.Kill()
			t.Fatalf("the call does not run: %s", &errs)
		}
		must.OK(t, cmd.Process.Signal(sig))
		hung := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // the status is what counts
		hung.Stop()
		if status := cmd.ProcessState.ExitCode(); status != 130 || errs.String() != "dispatcher: interrupted\n" ||
			out.String() != "" {
			t.Errorf("after %s: exit status %d, %q, %q", sig, status, &errs, &out)
		}
		events, err := os.ReadFile(filepath.Join(p.dir, "events.jsonl"))
		if err != nil || !bytes.Contains(events, []byte(`"dev.toolyard.batch.submitted.v1"`)) {
			t.Errorf("after %s the file of the events has %q (%v)", sig, events, err)
		}
		p.checkTidy(errs.String())
	}
}

// TestInterruptedSubmit: whoever stops to wait for a batch is told which one goes on, and how to reach it. The commands
// that it names work as they stand there.
func TestInterruptedSubmit(t *testing.T) {
	t.Parallel()
	url, asked := silent(t)
	data := testenv.StoreDir(t)
	d := start(t, 3, "dispatcher", slices.Concat([]string{"serve", "--listen", "127.0.0.1:0", "--nats-listen",
		"127.0.0.1:0", "--data", data, "--with-worker", "--workspace", "default=" + t.TempDir()}, fetchAllowed)...)
	for _, reach := range [][]string{{"--server", d.says["http"]}, {"--nats", d.says["nats"], "--data", data}} {
		p := newPlace(t, nil)
		p.write("in.json", fmt.Sprintf(`{"agent":"default","calls":[{"tool":"web_fetch","input":{"url":%q}}]}`, url))
		lines := interruptedBatch(p, asked, slices.Concat([]string{"submit", "--events", "events.jsonl"}, reach,
			[]string{"in.json"}))
		if info, err := os.Stat(filepath.Join(p.dir, "events.jsonl")); err != nil || info.Size() == 0 {
			t.Errorf("the file of the events: %+v (%v)", info, err)
		}
		watch, cancel := strings.Fields(lines[1]), strings.Fields(lines[2])
		if len(watch) < 3 || watch[1] != "watch" || len(cancel) < 3 || cancel[1] != "cancel" {
			t.Fatalf("the commands are %q and %q", watch, cancel)
		}
		if _, stderr, status := p.run(nil, nil, cancel[1:]...); status != 0 {
			t.Errorf("%q: exit status %d, %s", cancel, status, stderr)
		}
		if stdout, stderr, status := p.run(nil, nil, watch[1:]...); status != 0 ||
			!strings.Contains(stdout, "canceled") {
			t.Errorf("%q: exit status %d, %s%s", watch, status, stdout, stderr)
		}
		again := interruptedBatch(p, asked, slices.Concat([]string{"replay", "--rerun"}, reach,
			[]string{strings.Fields(lines[0])[1]}))
		if again[0] == lines[0] {
			t.Errorf("a batch that ran again is named as the one before: %s", again[0])
		}
		if _, stderr, status := p.run(nil, nil, strings.Fields(again[2])[1:]...); status != 0 {
			t.Errorf("%q: exit status %d, %s", again[2], status, stderr)
		}
	}
}

// TestInterruptedWhileItHandsIn: whoever interrupts a command whose batch may have been stored is told which one it is,
// and how to reach it.
func TestInterruptedWhileItHandsIn(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that the client has gone
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer server.Close()
	p := newPlace(t, nil)
	p.write("in.json", `{"agent":"default","calls":[{"tool":"glob","input":{"pattern":"*"}}]}`)
	lines := interruptedBatch(p, asked, []string{"submit", "--server", server.URL, "in.json"})
	which := fmt.Sprintf("--server %s --agent default %s", server.URL,
		strings.TrimPrefix(strings.Fields(lines[0])[1], "default/"))
	for n, want := range []string{"may have been handed in", "watch " + which, "cancel " + which} {
		if !strings.Contains(lines[n], want) {
			t.Errorf("%q does not say %q", lines[n], want)
		}
	}
}

// first is closed by the first output.
type first chan struct{}

func (f first) Write(b []byte) (int, error) {
	select {
	case <-f:
	default:
		close(f)
	}
	return len(b), nil
}

// interruptedBatch interrupts a command that waits for a batch, and returns what it says about the batch.
func interruptedBatch(p place, asked <-chan struct{}, args []string) (lines []string) {
	p.t.Helper()
	for len(asked) > 0 { // a read of a batch before may have run twice
		<-asked
	}
	cmd := p.command(p.t.Context(), nil, nil, args...)
	var errs bytes.Buffer
	begun := make(first)
	cmd.Stdout, cmd.Stderr = begun, &errs
	must.OK(p.t, cmd.Start())
	limit := time.After(30 * time.Second)
	signs := []<-chan struct{}{asked}
	if slices.Contains(args, "--events") { // the call may run before the command knows that it is stored, and says so
		signs = append(signs, begun)
	}
	for _, sign := range signs {
		select {
		case <-sign:
		case <-limit:
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			p.t.Fatalf("the call does not run, or nothing is said of it: %s", &errs)
		}
	}
	must.OK(p.t, cmd.Process.Signal(syscall.SIGINT))
	hung := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait() // the status is what counts
	hung.Stop()
	lines = strings.Split(strings.TrimSpace(errs.String()), "\n")
	if status := cmd.ProcessState.ExitCode(); status != 130 || len(lines) != 4 ||
		!strings.HasPrefix(lines[0], "batch default/") || lines[3] != "dispatcher: interrupted" {
		p.t.Fatalf("%q: exit status %d, %s", args, status, &errs)
	}
	return lines
}

// TestABatchIsNamedAsItIsShown: what batches and watch print is taken by each command that takes a batch.
func TestABatchIsNamedAsItIsShown(t *testing.T) {
	t.Parallel()
	data := testenv.StoreDir(t)
	p := newPlace(t, nil)
	d := start(t, 3, "dispatcher", "serve", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--data", data,
		"--with-worker", "--workspace", "default="+t.TempDir())
	creds := filepath.Join(data, "creds")
	operator := []string{"--nats", d.says["nats"], "--data", data}
	p.write("in.json", `{"id":"b-1","agent":"agent-1","calls":[{"tool":"glob","input":{"pattern":"*"}}]}`)
	if _, stderr, status := p.run(nil, nil, append([]string{"submit", "in.json"}, operator...)...); status != 0 {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	own, stderr, status := p.run(nil, nil, "creds", "--agent", "agent-1", "--data", data)
	if status != 0 {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	for _, c := range []struct {
		reach []string
		args  []string
		want  int
		says  string
	}{
		{operator, []string{"watch", "agent-1/b-1"}, 0, "agent-1/b-1"},
		{operator, []string{"watch", "--agent", "agent-1", "agent-1/b-1"}, 0, "agent-1/b-1"},
		{operator, []string{"watch", "agent-1/…-1"}, 0, "agent-1/b-1"},
		{operator, []string{"replay", "agent-1/b-1"}, 0, "b-1"},
		{operator, []string{"cancel", "agent-1/b-1"}, 2, "completed"},
		{operator, []string{"undo", "agent-1/b-1"}, 1, "undo_workspace"},
		{operator, []string{"overlay", "diff", "agent-1/b-1"}, 1, "was not handed in"},
		{[]string{"--nats", d.says["nats"], "--creds", strings.TrimSpace(own)}, []string{"watch", "agent-1/b-1"}, 0,
			"agent-1/b-1"},
		{[]string{"--nats", d.says["nats"], "--creds", creds}, []string{"watch", "agent-2/b-1"}, 2, "agent-2/b-1"},
		{[]string{"--server", d.says["http"]}, []string{"watch", "agent-1/b-1"}, 0, "agent-1/b-1"},
	} {
		stdout, stderr, status := p.run(nil, nil, append(c.args, c.reach...)...)
		if status != c.want || !strings.Contains(stdout+stderr, c.says) {
			t.Errorf("%q: exit status %d, want %d with %q:\n%s%s", c.args, status, c.want, c.says, stdout, stderr)
		}
	}
	if _, stderr, status := p.run(nil, []string{"TOOLYARD_AGENT=agent-2"}, append([]string{"watch", "agent-1/b-1"},
		operator...)...); status != 0 {
		t.Errorf("with another agent in the environment: exit status %d: %s", status, stderr)
	}
}

// TestBrokenPipe: a command whose reader stops, as head does, ends without a word, as one that SIGPIPE ends.
func TestBrokenPipe(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{"a.txt": "one\n", "in.json": fine})
	for _, args := range [][]string{{"run", "in.json"}, {"run", "--json", "in.json"}, {"tools"}} {
		r, w, err := os.Pipe()
		must.OK(t, err)
		cmd := p.command(t.Context(), nil, nil, args...)
		var errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = w, &errs
		must.OK(t, r.Close())
		_ = cmd.Run() // the status is what counts
		must.OK(t, w.Close())
		if status := cmd.ProcessState.ExitCode(); status != 141 || errs.Len() > 0 {
			t.Errorf("%q: exit status %d, %q", args, status, &errs)
		}
		p.checkTidy(errs.String())
	}
}

// TestEventsPathIsCheckedFirst: nothing runs when its log cannot be kept.
func TestEventsPathIsCheckedFirst(t *testing.T) {
	p := newPlace(t,
		map[string]string{"in.json": `{"calls":[{"tool":"write_file","input":{"file_path":"out.txt","content":"x"}}]}`})
	for _, path := range []string{"missing/events.jsonl", "."} {
		stdout, stderr, status := p.run(nil, nil, "run", "--permission-mode", "bypass", "--events", path, "in.json")
		refused(t, stdout, stderr, status, "--events")
		if _, err := os.Stat(filepath.Join(p.dir, "out.txt")); err == nil {
			t.Error("the batch ran")
		}
	}
}

// TestInterruptWhileReading: the first SIGINT ends a command that waits for its input.
func TestInterruptWhileReading(t *testing.T) {
	for _, command := range []string{"run", "explain", "replay"} {
		t.Run(command, func(t *testing.T) { interruptedWhileReading(t, command) })
	}
}

func interruptedWhileReading(t *testing.T, command string) {
	p := newPlace(t, nil)
	r, w, err := os.Pipe()
	must.OK(t, err)
	defer w.Close() // nothing more is written
	cmd := p.command(t.Context(), r, nil, command, "-")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	must.OK(t, cmd.Start())
	if _, err := w.Write(bytes.Repeat([]byte(" "), 1<<20)); err != nil { // more than a pipe holds: so it reads
		t.Fatal(err)
	}
	must.OK(t, cmd.Process.Signal(syscall.SIGINT))
	hung := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait() // the status is what counts
	hung.Stop()
	if status := cmd.ProcessState.ExitCode(); status != 130 || errs.String() != "dispatcher: interrupted\n" {
		t.Errorf("exit status %d, %q", status, &errs)
	}
}

// TestLongestTimeLimits: a limit past what a clock can hold is as good as none.
func TestLongestTimeLimits(t *testing.T) {
	p := newPlace(t, map[string]string{"a.txt": "one\n"})
	for _, option := range []string{"timeout_ms", "call_timeout_ms"} {
		p.write("in.json", fine[:len(fine)-1]+`,"options":{"`+option+`":9223372036854775807}}`)
		if r := p.view("in.json").Results[0]; r.IsError {
			t.Errorf("%s: %s %s", option, r.Code, r.Error)
		}
	}
}
