package e2e

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestExamplesOverHTTP: the examples, with nothing but the HTTP clients of their languages, hand a batch in and read its
// results. Python is needed; TypeScript runs where there is a Node that reads it.
func TestExamplesOverHTTP(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"README.md": "# Read me\n", "go.mod": "module example\n\ngo 1.26\n"})
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("a-token agent-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := dispatcher(t, "--with-worker", "--workspace", "default="+dir, "--token-file", tokens)
	example := func(program, file string, want ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, filepath.Join("..", "..", "examples", file))
		cmd.Env = append(os.Environ(), "TOOLYARD_URL="+p.says["http"], "TOOLYARD_TOKEN=a-token")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s %s: %v\n%s", program, file, err, out)
		}
		for _, line := range want {
			if !strings.Contains(string(out), line) {
				t.Errorf("%s says nothing of %q:\n%s", file, line, out)
			}
		}
	}
	example("python3", "agent.py", "[0] glob ok: README.md", "[1] grep ok: README.md:1:# Read me", "[2] read_file ok: ", "user message with 3 results")
	if node := nodeOfTypeScript(t); node != "" {
		example(node, "agent.ts", "[0] glob ok: README.md", "[1] read_file ok: ", "2 messages with role tool")
	}
}

// nodeOfTypeScript finds a Node that runs TypeScript as it is, which it does from 22.18 on.
func nodeOfTypeScript(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "node", "--version").Output()
	if err != nil {
		return ""
	}
	v := regexp.MustCompile(`^v(\d+)\.(\d+)\.`).FindStringSubmatch(string(out))
	if v == nil {
		return ""
	}
	major, err1 := strconv.Atoi(v[1])
	minor, err2 := strconv.Atoi(v[2])
	if err1 != nil || err2 != nil || major < 22 || major == 22 && minor < 18 {
		return ""
	}
	return "node"
}

// TestServeAndItsStreams: a dispatcher that is told to stop ends the streams that are open, and itself, at once.
func TestServeAndItsStreams(t *testing.T) {
	t.Parallel()
	p := dispatcher(t)
	body := strings.NewReader(`{"id": "b", "calls": [{"tool": "read_file", "input": {"file_path": "x"}}]}`) // nobody runs it
	post, err := http.Post(p.says["http"]+"/v1/batches", "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	if err := post.Body.Close(); err != nil || post.StatusCode != http.StatusAccepted {
		t.Fatalf("status %d, %v", post.StatusCode, err)
	}
	stream, err := http.Get(p.says["http"] + "/v1/batches/b/results")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Body.Close() })
	lines := bufio.NewScanner(stream.Body)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "retry: ") {
		t.Fatalf("the stream begins with %q", lines.Text())
	}
	begun := time.Now()
	if status := p.stop(syscall.SIGTERM); status != 0 {
		t.Errorf("it ended with status %d", status)
	}
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "event: ") {
			t.Errorf("the stream says %q", lines.Text())
		}
	}
	if err := lines.Err(); err != nil {
		t.Errorf("the stream was cut, not ended: %v", err)
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestServeBoundsHeaders: headers past their limit are refused before anything else is looked at.
func TestServeBoundsHeaders(t *testing.T) {
	t.Parallel()
	p := dispatcher(t)
	for n, want := range map[int]int{32 << 10: http.StatusOK, 128 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.says["http"]+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Long", strings.Repeat("x", n))
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Body.Close(); err != nil || res.StatusCode != want {
			t.Errorf("%d bytes: status %d, %v", n, res.StatusCode, err)
		}
	}
}

// TestServeWithoutTokens: nothing listens on a network that asks nobody who he is.
func TestServeWithoutTokens(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"empty": "# nobody\n", "bad": "token agent more\n"})
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen", "0.0.0.0:0"}, "--token-file"},
		{[]string{"--listen", ":0"}, "--token-file"},
		{[]string{"--listen", "[::]:0"}, "--token-file"},
		{[]string{"--listen", "toolyard.example:0"}, "--token-file"},
		{[]string{"--listen", "nonsense"}, "HOST:PORT"},
		{[]string{"--listen", "127.0.0.1:0", "--token-file", filepath.Join(dir, "missing")}, "missing"},
		{[]string{"--listen", "127.0.0.1:0", "--token-file", filepath.Join(dir, "empty")}, "no token"},
		{[]string{"--listen", "127.0.0.1:0", "--token-file", filepath.Join(dir, "bad")}, "line 1"},
	} {
		stdout, stderr, status := run(t, nil, "dispatcher", append([]string{"serve", "--nats-listen", "127.0.0.1:0", "--data", t.TempDir()}, c.args...)...)
		if status != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: status %d, %q, %q", c.args, status, stdout, stderr)
		}
	}
}
