//go:build unix

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestAuditLog: who handed in and decided what is put down, over HTTP with the token that showed it, over NATS with the
// account. Who is refused is put down too. After a rename and SIGHUP the log goes on in a new file.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	path, tokens := filepath.Join(t.TempDir(), "audit.jsonl"), filepath.Join(t.TempDir(), "tokens")
	must.OK(t, os.WriteFile(tokens, []byte("secret-a ann interactive=yes\nsecret-p * name=petra\n"), 0o600))
	d := dispatcher(t, "--with-worker", "--workspace", "default="+dir, "--token-file", tokens, "--audit-log", path)
	type entry map[string]any
	read := func(path string) (out []entry) {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var e entry
			if err := json.Unmarshal(line, &e); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			out = append(out, e)
		}
		return out
	}
	// has waits for an entry with these fields, in the file or in the one that it was before.
	has := func(want entry) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			for _, e := range append(read(path+".1"), read(path)...) {
				same := true
				for k, v := range want {
					same = same && e[k] == v
				}
				if same {
					return
				}
			}
			if time.Now().After(end) {
				t.Fatalf("there is no entry %v in %v", want, read(path))
			}
		}
	}
	ask := func(method, path, token, body string) (status int, answer map[string]any) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, d.says["http"]+path, strings.NewReader(body))
		must.OK(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		got, err := http.DefaultClient.Do(r)
		must.OK(t, err)
		must.OK(t, json.NewDecoder(got.Body).Decode(&answer))
		return got.StatusCode, answer
	}
	if status, answer := ask(http.MethodPost, "/v1/batches", "secret-a", `{"id":"b","interactive":true,`+
		`"calls":[{"id":"1","tool":"write_file","input":{"file_path":"b.txt","content":"x"}}]}`); status != 202 {
		t.Fatalf("%d: %v", status, answer)
	}
	has(entry{"action": "submit", "by": "ann", "proof": "token", "agent": "ann", "batch": "b", "calls": 1.0,
		"status": 202.0, "request": "POST /v1/batches"})
	has(entry{"action": "batch.submitted", "by": "ann", "proof": "nats", "agent": "ann", "batch": "b"})
	var id string
	for end := time.Now().Add(30 * time.Second); id == ""; {
		_, answer := ask(http.MethodGet, "/v1/approvals", "secret-p", "")
		if list, ok := answer["approvals"].([]any); ok && len(list) == 1 {
			id, _ = list[0].(map[string]any)["id"].(string)
		}
		if time.Now().After(end) {
			t.Fatal("nothing waits")
		}
	}
	for token, c := range map[string]struct {
		status int
		by     string
	}{"secret-a": {403, "ann"}, "secret-x": {401, ""}} {
		if status, answer := ask(http.MethodPost, "/v1/approvals/"+id, token, `{"decision":"allow"}`); status != c.status {
			t.Errorf("%s: %d, %v", token, status, answer)
		}
		has(entry{"by": c.by, "status": float64(c.status), "request": "POST /v1/approvals/" + id})
	}
	must.OK(t, os.Rename(path, path+".1"))
	must.OK(t, d.cmd.Process.Signal(syscall.SIGHUP))
	testenv.Until(t, "entries stand in a new file after SIGHUP", func() bool {
		if status, answer := ask(http.MethodPost, "/v1/approvals/"+id, "secret-a", `{"decision":"allow"}`); status != 403 {
			t.Fatalf("%d: %v", status, answer)
		}
		written, err := os.Stat(path) // it is there a moment before the first entry is written to it
		return err == nil && written.Size() > 0
	})
	if status, answer := ask(http.MethodPost, "/v1/approvals/"+id, "secret-p", `{"decision":"allow"}`); status != 200 {
		t.Fatalf("%d: %v", status, answer)
	}
	has(entry{"action": "decide", "by": "petra", "proof": "token", "approval": id, "decision": "allow", "call": 0.0,
		"agent": "ann", "batch": "b"})
	has(entry{"action": "call.decided", "by": "petra", "proof": "nats", "decision": "allow", "call": 0.0})
	// A batch that is made of another one is handed in too.
	for path, body := range map[string]string{"/v1/batches/b/undo": "", "/v1/batches/b/rerun": `{"allow_writes":true}`} {
		status, answer := ask(http.MethodPost, path, "secret-a", body)
		if status != 202 {
			t.Fatalf("%s: %d: %v", path, status, answer)
		}
		has(entry{"by": "ann", "proof": "token", "batch": answer["id"], "calls": 1.0, "request": "POST " + path})
	}
	// Over NATS.
	p := newPlace(t, nil)
	p.ok(nil, "submit", "--nats", d.says["nats"], "--agent", "bob", "--id", "n", "--json", batchFile(t,
		unmarshalBatch(t, `{"calls":[{"id":"1","tool":"read_file","input":{"file_path":"a.txt"}}]}`)))
	has(entry{"action": "batch.submitted", "by": "bob", "proof": "nats", "batch": "n", "calls": 1.0})
	all := read(path)
	if len(all) == 0 {
		t.Error("the file that SIGHUP has opened has no entry")
	}
	for _, e := range append(read(path+".1"), all...) {
		if text, err := json.Marshal(e); err != nil || strings.Contains(string(text), "secret-") {
			t.Errorf("an entry has a token (%v): %s", err, text)
		}
	}
}
