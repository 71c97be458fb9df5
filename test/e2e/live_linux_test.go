package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv"
)

// terminal is a program on a terminal of its own.
type terminal struct {
	t     *testing.T
	main  *os.File
	cmd   *exec.Cmd
	mu    sync.Mutex
	shown strings.Builder
	read  chan struct{} // closed when the program has written all
}

// onTerminal starts a command of the dispatcher on a new terminal of 80 columns and 24 lines.
func onTerminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "dispatcher"), args...)
	cmd.Env = append(append(os.Environ(), "TERM=xterm", "NO_COLOR=1"), reach(args)...)
	p := &terminal{t: t, main: testenv.OnTerminal(t, cmd, 80, 24), read: make(chan struct{}), cmd: cmd}
	go func() {
		defer close(p.read)
		buffer := make([]byte, 4096)
		for {
			n, err := p.main.Read(buffer)
			p.mu.Lock()
			p.shown.Write(buffer[:n])
			p.mu.Unlock()
			if err != nil { // the program has ended
				return
			}
		}
	}()
	return p
}

// sees waits until the terminal was told a text after what it was told before, and forgets all that.
func (p *terminal) sees(text string) {
	p.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		p.mu.Lock()
		all := p.shown.String()
		i := strings.Index(all, text)
		if i >= 0 {
			p.shown.Reset()
			p.shown.WriteString(all[i+len(text):])
		}
		p.mu.Unlock()
		if i >= 0 {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("not within 30 s: %q at the end of\n%q", text, all[max(0, len(all)-3000):])
		}
	}
}

func (p *terminal) types(keys string) {
	p.t.Helper()
	if _, err := p.main.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// ends waits until the program has ended, and returns its exit status.
func (p *terminal) ends() int {
	p.t.Helper()
	done := make(chan error, 1)
	go func() { done <- p.cmd.Wait() }()
	select {
	case <-done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(30 * time.Second):
		p.t.Fatal("the program goes on")
		return -1
	}
}

// TestAListIsInterrupted: a person who reads a list page by page can leave it as any command.
func TestAListIsInterrupted(t *testing.T) {
	t.Parallel()
	d := dispatcher(t, "--with-worker", "--workspace", "default="+t.TempDir())
	file := batchFile(t, toolyard.Batch{ID: "asks", Interactive: true, Calls: []toolyard.Call{{Tool: "write_file",
		Input: input(map[string]any{"file_path": "a.txt", "content": strings.Repeat("more than a page\n", 60)})}}})
	submitted := make(chan struct{})
	go func() {
		defer close(submitted)
		run(t, nil, "dispatcher", "submit", "--nats", d.says["nats"], file)
	}()
	waiting(t, d.says["nats"], 1)
	p := onTerminal(t, "approvals", "--nats", d.says["nats"])
	p.sees("[Enter] for more")
	p.types("\x03")
	p.sees("dispatcher: interrupted")
	if status := p.ends(); status != 130 {
		t.Errorf("exit status %d", status)
	}
	said(t, "cancel", "--nats", d.says["nats"], "asks")
	<-submitted
}

// lines are those that the program has written, when it has ended.
func (p *terminal) lines() []string {
	p.t.Helper()
	if status := p.ends(); status != 0 {
		p.t.Errorf("%q: exit status %d", p.cmd.Args, status)
	}
	<-p.read
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Split(strings.TrimSpace(strings.ReplaceAll(p.shown.String(), "\r\n", "\n")), "\n")
}

// TestLinesFitTheTerminal: on a terminal of 80 columns neither a replay nor a report nor the lines of a watch are
// wider. In a pipe they are, with whole names.
func TestLinesFitTheTerminal(t *testing.T) {
	t.Parallel()
	d := dispatcher(t, "--with-worker", "--workspace", "default="+t.TempDir())
	at := []string{"--nats", d.says["nats"]}
	long := strings.Repeat("a_tool_with_a_long_name_", 3) + "x"
	said(t, "submit", "--json", at[0], at[1], batchFile(t, toolyard.Batch{ID: "wide", Calls: []toolyard.Call{
		{ID: "c0", Tool: "glob", Input: input(map[string]any{"pattern": "*"})}, {ID: "c1", Tool: long}}}))
	for _, args := range [][]string{{"replay", at[0], at[1], "wide"}, {"watch", "--plain", at[0], at[1], "wide"},
		{"report", at[0], at[1]}} {
		if piped := said(t, args...); !slices.ContainsFunc(strings.Split(piped, "\n"), func(line string) bool {
			return utf8.RuneCountInString(line) > 80
		}) {
			t.Errorf("%s in a pipe has no wide line:\n%s", args[0], piped)
		}
		lines := onTerminal(t, args...).lines()
		if len(lines) < 4 {
			t.Errorf("%s: %q", args[0], lines)
		}
		for _, line := range lines {
			line = line[strings.LastIndex(line, "\r")+1:] // what stood there before is overwritten
			if utf8.RuneCountInString(strings.NewReplacer("\x1b[J", "", "\x1b[K", "").Replace(line)) > 80 {
				t.Errorf("%s has a line that is too wide: %q", args[0], line)
			}
		}
	}
}

// TestWatchLive: a person at a terminal sees the calls of a batch, opens one, approves one, cancels one, and leaves.
// The terminal is then as it was.
func TestWatchLive(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	d := dispatcher(t, "--with-worker", "--workspace", "default="+dir)
	write := func(name string) toolyard.Call {
		return toolyard.Call{ID: name, Tool: "write_file", Input: input(map[string]any{"file_path": name,
			"content": "x\n"})}
	}
	file := batchFile(t, toolyard.Batch{ID: "seen", Interactive: true, Calls: []toolyard.Call{
		{ID: "c0", Tool: "read_file", Input: input(map[string]any{"file_path": "a.txt"})}, write("b.txt"),
		write("c.txt")}})
	submitted := make(chan string, 1)
	go func() {
		stdout, _, _ := run(t, nil, "dispatcher", "submit", "--nats", d.says["nats"], "--json", file)
		submitted <- stdout
	}()
	waiting(t, d.says["nats"], 1)
	p := onTerminal(t, "watch", "--nats", d.says["nats"], "seen")
	p.sees("\x1b[?1049h")
	p.sees("✓ [0] read_file")
	p.sees("? [1] write_file")
	p.types("o")
	p.sees(`file_path: "a.txt"`)
	p.types("\x1b") // close
	p.sees("enter open")
	p.types("a")
	p.sees("\x1b[?1049l")
	p.sees("May this call run?")
	p.sees("[v]iew it again")
	p.types("y\n")
	p.sees("approved: the call runs")
	p.sees("? [2] write_file") // the next one waits now
	p.types("G")
	p.sees("> ? [2] write_file")
	p.types("c")
	p.sees("cancel call [2] write_file? y or n")
	p.types("y")
	p.sees(" · completed · 3 of 3 calls")
	p.sees("✗ [2] write_file")
	p.types("q")
	p.sees("\x1b[?1049l")
	p.sees("completed · 3 of 3 calls")
	p.sees("  canceled")
	if status := p.ends(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	var got []toolyard.Code
	for _, r := range viewOf(t, <-submitted).Results {
		got = append(got, r.Code)
	}
	if len(got) != 3 || got[0] != "" || got[1] != "" || got[2] != toolyard.Canceled {
		t.Errorf("the codes are %q", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "b.txt")); err != nil {
		t.Error(err)
	}
	// One that is over is shown once.
	p = onTerminal(t, "watch", "--nats", d.says["nats"], "seen")
	p.sees("completed · 3 of 3 calls")
	if status := p.ends(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	p = onTerminal(t, "watch", "--nats", d.says["nats"], "none")
	p.sees("no such batch: default/none")
	if status := p.ends(); status != 2 {
		t.Errorf("exit status %d", status)
	}
	// A list on a terminal shortens ids, and commands take them so.
	batch := viewOf(t, said(t, "submit", "--nats", d.says["nats"], "--json", batchFile(t, toolyard.Batch{
		Calls: []toolyard.Call{{ID: "c0", Tool: "read_file", Input: input(map[string]any{"file_path": "a.txt"})}}})))
	short := "…" + string(batch.ID[len(batch.ID)-8:])
	p = onTerminal(t, "batches", "--nats", d.says["nats"])
	p.sees("default/" + short + "  ")
	p.sees("default/seen")
	if status := p.ends(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if out := said(t, "watch", "--nats", d.says["nats"], short); !strings.Contains(out, string(batch.ID)+" ") {
		t.Errorf("watch %s prints\n%s", short, out)
	}
	if out := said(t, "replay", "--nats", d.says["nats"], short); !strings.Contains(out, "batch "+string(batch.ID)) {
		t.Errorf("replay %s prints\n%s", short, out)
	}
	if _, stderr, status := run(t, nil, "dispatcher", "cancel", "--nats", d.says["nats"], short); status != 2 ||
		!strings.Contains(stderr, string(batch.ID)) {
		t.Errorf("cancel %s: %d %s", short, status, stderr)
	}
	if _, stderr, status := run(t, nil, "dispatcher", "watch", "--nats", d.says["nats"], "…"); status != 2 ||
		!strings.Contains(stderr, "is the end of 2 ids") {
		t.Errorf("watch …: %d %s", status, stderr)
	}
}
