//go:build unix

package e2e

import (
	"bufio"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestServeAndItsStreams: a dispatcher that is told to stop ends the streams that are open, and itself, at once.
func TestServeAndItsStreams(t *testing.T) {
	t.Parallel()
	p := dispatcher(t)
	// nobody runs it
	body := strings.NewReader(`{"id": "b", "calls": [{"tool": "read_file", "input": {"file_path": "x"}}]}`)
	post, err := http.Post(p.says["http"]+"/v1/batches", "application/json", body)
	must.OK(t, err)
	if err := post.Body.Close(); err != nil || post.StatusCode != http.StatusAccepted {
		t.Fatalf("status %d, %v", post.StatusCode, err)
	}
	stream, err := http.Get(p.says["http"] + "/v1/batches/b/results")
	must.OK(t, err)
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
		must.OK(t, err)
		r.Header.Set("X-Long", strings.Repeat("x", n))
		res, err := http.DefaultClient.Do(r)
		must.OK(t, err)
		if err := res.Body.Close(); err != nil || res.StatusCode != want {
			t.Errorf("%d bytes: status %d, %v", n, res.StatusCode, err)
		}
	}
}

// TestServeWithoutTokens: without tokens, no server listens on a network.
func TestServeWithoutTokens(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"empty": "# nobody\n", "bad": "token agent more\n",
		"others": "token agent\n"})
	for _, name := range []string{"empty", "bad"} {
		must.OK(t, os.Chmod(filepath.Join(dir, name), 0o600))
	}
	must.OK(t, os.Chmod(filepath.Join(dir, "others"), 0o644))
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
		{[]string{"--listen", "127.0.0.1:0", "--token-file", filepath.Join(dir, "others")}, "chmod 600"},
	} {
		stdout, stderr, status := run(t, nil, "dispatcher",
			append([]string{"serve", "--nats-listen", "127.0.0.1:0", "--data", t.TempDir()}, c.args...)...)
		if status != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: status %d, %q, %q", c.args, status, stdout, stderr)
		}
	}
}
