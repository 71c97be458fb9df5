//go:build unix

package e2e

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestRefusedSecrets: where the operator wants it, a call with a secret in its input is not stored. The answer names
// the call and the field, and not the secret.
func TestRefusedSecrets(t *testing.T) {
	t.Parallel()
	const secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	d := dispatcher(t, "--with-worker", "--workspace", "default="+dir, "--refuse-secrets")
	post := func(path, body string) (int, string) {
		t.Helper()
		resp, err := http.Post(d.says["http"]+path, "application/json", strings.NewReader(body))
		must.OK(t, err)
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		must.OK(t, err)
		return resp.StatusCode, string(text)
	}
	call := func(path string) string {
		return `{"id":"r","tool":"read_file","input":{"file_path":"a.txt"}},` +
			`{"id":"w","tool":"write_file","input":{"file_path":"b.txt","content":"` + path + `"}}`
	}
	a := newAgent(t, d.says["nats"])
	stored := func(subject string) bool {
		t.Helper()
		stream, err := a.js.StreamNameBySubject(t.Context(), subject)
		must.OK(t, err)
		s, err := a.js.Stream(t.Context(), stream)
		must.OK(t, err)
		_, err = s.GetLastMsgForSubject(t.Context(), subject)
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}

	status, text := post("/v1/batches?agent=ann", `{"id":"leaks","calls":[`+call("token "+secret)+`]}`)
	if status != http.StatusBadRequest || !strings.Contains(text, `"field":"calls[1].input.content"`) ||
		!strings.Contains(text, `call \"w\" has a secret`) || strings.Contains(text, secret) {
		t.Errorf("status %d: %s", status, text)
	}
	if stored("ty.batch.ann.leaks") {
		t.Error("the batch is stored")
	}
	if status, text = post("/v1/batches?agent=ann&wait=60", `{"id":"leaks","calls":[`+call("none")+`]}`); status != 200 {
		t.Errorf("without the secret, under the same id: status %d: %s", status, text)
	}

	if status, text = post("/v1/batches?agent=ann&open=true", `{"id":"open"}`); status != http.StatusAccepted {
		t.Fatalf("status %d: %s", status, text)
	}
	status, text = post("/v1/batches/open/calls?agent=ann", `{"calls":[`+call(secret)+`]}`)
	if status != http.StatusBadRequest || !strings.Contains(text, `"field":"calls[1].input.content"`) ||
		strings.Contains(text, secret) || stored("ty.event.ann.open._.input") {
		t.Errorf("appended: status %d: %s", status, text)
	}

	// What an agent publishes itself is stored by then. It is refused, and nothing of it runs.
	a.submit(byHand("ann.direct", `{"calls":[`+call(secret)+`]}`))
	replies := a.replies("ann.direct")
	last := replies[len(replies)-1]
	if said := string(last.Data()); last.Type() != "dev.toolyard.batch.refused.v1" ||
		!strings.Contains(said, "calls[1].input.content") || strings.Contains(said, secret) {
		t.Errorf("%s", last)
	}
}
