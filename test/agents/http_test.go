package agents

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestExamplesOverHTTP: the examples with nothing but the HTTP clients of their languages hand a batch in and read its
// results. Python 3 and Node 18 or later are needed.
func TestExamplesOverHTTP(t *testing.T) {
	t.Parallel()
	p := startPool(t)
	has := func(file, out string, want ...string) {
		for _, line := range want {
			if !strings.Contains(out, line) {
				t.Errorf("%s says nothing of %q:\n%s", file, line, out)
			}
		}
	}
	has("agent.py", p.run(nil, "python3", example("agent.py")),
		"[0] glob ok: NOTES.md", "[1] grep ok: NOTES.md:1:# Notes", "[2] read_file ok: ", "user message with 3 results")
	has("agent.ts", p.run(nil, "node", javascript(t, "agent.ts")), "[0] glob ok: NOTES.md", "[1] read_file ok: ",
		"2 messages with role tool")
}

// TestExamplesWhoseBatchWaits: the examples read the results alone of a stream that also says that the batch waits for
// its turn and that it was read too slowly, and go on when a connection is lost.
func TestExamplesWhoseBatchWaits(t *testing.T) {
	t.Parallel()
	p := startPool(t)
	to, err := url.Parse(p.http)
	must.OK(t, err)
	for file, program := range map[string][]string{"agent.py": {"python3", example("agent.py")},
		"agent.ts": {"node", javascript(t, "agent.ts")}} {
		var asked atomic.Int32
		proxy := httputil.NewSingleHostReverseProxy(to)
		waits := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/results") || asked.Add(1) > 2 {
				proxy.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			if _, err := io.WriteString(w, "event: waiting\ndata: {\"running\": 1, \"waiting\": 1}\n\n"); err != nil {
				t.Error(err)
			}
			if asked.Load() > 1 {
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Error(err)
				}
				panic(http.ErrAbortHandler)
			}
			if _, err := io.WriteString(w, "event: behind\ndata: {\"detail\": \"\"}\n\n"); err != nil {
				t.Error(err)
			}
		}))
		t.Cleanup(waits.Close)
		said := p.run([]string{"TOOLYARD_URL=" + waits.URL}, program[0], program[1])
		if !strings.Contains(said, "[0] glob ok: NOTES.md\n[1] ") || asked.Load() != 3 {
			t.Errorf("%s has asked %d times, and says\n%s", file, asked.Load(), said)
		}
	}
}

func example(file string) string { return filepath.Join("..", "..", "examples", file) }

// javascript takes the types out of a TypeScript example, as newer Nodes do by themselves.
func javascript(t *testing.T, file string) string {
	t.Helper()
	text := must.Read(t, example(file))
	out := api.Transform(string(text), api.TransformOptions{Loader: api.LoaderTS, Format: api.FormatESModule,
		Sourcefile: file})
	for _, m := range append(out.Errors, out.Warnings...) {
		t.Errorf("%s: %s %+v", file, m.Text, m.Location)
	}
	path := filepath.Join(t.TempDir(), "agent.mjs")
	must.OK(t, os.WriteFile(path, out.Code, 0o600))
	return path
}

// TestDocumentedStream: the event stream in docs/http.md is one.
func TestDocumentedStream(t *testing.T) {
	t.Parallel()
	p := startPool(t)
	text := must.Read(t, filepath.Join("..", "..", "docs", "http.md"))
	_, stream, _ := strings.Cut(string(text),
		"/v1/stream/anthropic -H 'Content-Type: text/event-stream' --data-binary @- <<'END'\n")
	stream, _, ok := strings.Cut(stream, "END\n")
	if !ok {
		t.Fatal("docs/http.md shows no event stream")
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.http+
		"/v1/stream/anthropic", strings.NewReader(stream))
	must.OK(t, err)
	r.Header.Set("Content-Type", "text/event-stream")
	r.Header.Set("Authorization", "Bearer "+p.token)
	res, err := http.DefaultClient.Do(r)
	must.OK(t, err)
	answer, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"event: batch\n", "event: result\n", `event: reply
data: {"content":[{"tool_use_id":"toolu_01"`, "NOTES.md", "event: completed\n"} {
		if !strings.Contains(string(answer), want) {
			t.Errorf("the answer has no %q:\n%s", want, answer)
		}
	}
}
