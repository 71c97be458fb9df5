package dispatchercmd

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// accepting is a server that takes batches in, and has a handler for their results and one for all else about them.
func accepting(t *testing.T, results, about http.HandlerFunc) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/batches", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		_, _ = fmt.Fprint(w, `{"id":"b","agent":"default","status":"running"}`)
	})
	mux.HandleFunc("GET /v1/batches/b/results", results)
	mux.HandleFunc("GET /v1/batches/b", about)
	mux.HandleFunc("GET /v1/batches/b/events", about)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// answered is a server on which each batch has its one result, and which answers all else about it so.
func answered(t *testing.T, about http.HandlerFunc) *httptest.Server {
	t.Helper()
	return accepting(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, "event: result\nid: 0\ndata: {\"index\":0,\"call_id\":\"c1\",\"tool\":\"t\",\"is_error\":true,"+
			"\"code\":\"internal_error\",\"error\":\"The system lost track.\"}\n\n"+
			"event: completed\ndata: {\"results\":1}\n\n")
	}, about)
}

// TestResultsOfABatchThatCannotBeRead: a batch whose log contradicts itself has all its results. They are printed in
// every form, and the exit status says that the rest is not known. Who asked for its events gets the results too.
func TestResultsOfABatchThatCannotBeRead(t *testing.T) {
	server := answered(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = fmt.Fprint(w, `{"status":500,"detail":"the log contradicts itself"}`)
	})
	dir := t.TempDir()
	file := filepath.Join(dir, "batch.json")
	must.OK(t, os.WriteFile(file, []byte(`{"id":"b","calls":[{"id":"c1","tool":"t"}]}`), 0o600))
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"text":   {nil, []string{"✗ [0] t", "internal_error", "completed: 0 results, 1 error"}},
		"json":   {[]string{"--json"}, []string{`"id": "b"`, `"status": "completed"`, `"call_id": "c1"`, `"groups": []`}},
		"format": {[]string{"--format", "openai"}, []string{`"call_id":"c1"`, "The system lost track."}},
		"events": {[]string{"--json", "--events", filepath.Join(dir, "events")}, []string{`"call_id": "c1"`}},
	} {
		var out, errs bytes.Buffer
		args := append([]string{"submit", "--server", server.URL, file}, c.args...)
		status := cli.Main(Command(strings.NewReader(""), &out, &errs), args, &errs)
		if status != cli.ExitFailed || !strings.Contains(errs.String(), "the log contradicts itself") {
			t.Errorf("%s: exit status %d, want %d with the reason: %s", name, status, cli.ExitFailed, &errs)
		}
		for _, part := range c.want {
			if !strings.Contains(out.String(), part) {
				t.Errorf("%s: it does not print %q:\n%s", name, part, &out)
			}
		}
	}
}

// TestResultsOfABatchWithoutAPlan: one that was given up before it was planned has no groups.
func TestResultsOfABatchWithoutAPlan(t *testing.T) {
	server := answered(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"id":"b","agent":"default","status":"completed","groups":[],"results":[]}`)
	})
	var out, errs bytes.Buffer
	status := cli.Main(Command(strings.NewReader(`{"id":"b","calls":[{"id":"c1","tool":"t"}]}`), &out, &errs),
		[]string{"submit", "--server", server.URL, "-"}, &errs)
	if status != cli.ExitOK || !strings.Contains(out.String(), "✗ [0] t") || strings.Contains(out.String(), "group 1") {
		t.Errorf("exit status %d\n%s\n%s", status, &out, &errs)
	}
}

// closedPipe is an output whose reader closes it behind the first write.
type closedPipe struct{ written bool }

func (p *closedPipe) Write(b []byte) (int, error) {
	if p.written {
		return 0, &fs.PathError{Op: "write", Path: os.Stdout.Name(), Err: syscall.EPIPE}
	}
	p.written = true
	return len(b), nil
}

// TestNobodyReadsTheResults: submit does not wait for results that it cannot print. The batch goes on without it.
func TestNobodyReadsTheResults(t *testing.T) {
	waited := make(chan bool, 1)
	server := accepting(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, "event: result\nid: 0\ndata: {\"index\":0,\"call_id\":\"c1\",\"tool\":\"t\"}\n\n")
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			waited <- false
		case <-time.After(20 * time.Second):
			_, _ = fmt.Fprint(w, "event: completed\ndata: {\"results\":1}\n\n")
			waited <- true
		}
	}, http.NotFound)
	file := must.File(t, "batch.json", `{"calls":[{"tool":"t"},{"tool":"t"}]}`)
	var errs bytes.Buffer
	status := cli.Main(Command(strings.NewReader(""), new(closedPipe), &errs),
		[]string{"submit", "--server", server.URL, file}, &errs)
	if late := <-waited; late || status != cli.ExitUnread {
		t.Errorf("exit status %d, waited for the end %t: %s", status, late, &errs)
	}
}
