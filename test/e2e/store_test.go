//go:build unix

package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv"
)

// TestTheStoreVanishes: a dispatcher whose store directory is removed is not ready any more, and ends with status 1,
// also in the middle of a call.
func TestTheStoreVanishes(t *testing.T) {
	t.Parallel()
	url, asked := silent(t)
	data := filepath.Join(t.TempDir(), "data")
	d := start(t, 3, "dispatcher", append([]string{"serve", "--with-worker", "--drain-grace", "1s", "--listen",
		"127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--data", data}, fetchAllowed...)...)
	at := d.says["http"]
	get := func(path string) int {
		resp, err := http.Get(at + path)
		if err != nil {
			return 0 // it is gone
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	if got := get("/readyz"); got != http.StatusOK {
		t.Fatalf("readyz says %d", got)
	}
	resp, err := http.Post(at+"/v1/batches", "application/json",
		strings.NewReader(`{"calls":[{"tool":"web_fetch","input":{"url":"`+url+`"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusAccepted {
		t.Fatalf("%d %v", resp.StatusCode, err)
	}
	<-asked
	testenv.Until(t, "the directory can be removed", func() bool { return os.RemoveAll(data) == nil })
	testenv.Until(t, "readyz says that it is not ready", func() bool { return get("/readyz") != http.StatusOK })
	ended := make(chan error, 1)
	go func() { ended <- d.cmd.Wait() }()
	testenv.Within(t, "the dispatcher ends", ended)
	if got := d.cmd.ProcessState.ExitCode(); got != 1 {
		t.Errorf("exit status %d; want 1", got)
	}
}
