//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/archive"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestVerify makes a key, archives a batch with it, and proves its log.
func TestVerify(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	file := filepath.Join(t.TempDir(), "archive.nk")
	public := strings.TrimSpace(said(t, "signing-key", file))
	again := strings.TrimSpace(said(t, "signing-key", file))
	if !nkeys.IsValidPublicUserKey(public) || again != public {
		t.Errorf("the key is %q, and then %q", public, again)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its file: %v, %v", info.Mode(), err)
	}
	if got := said(t, "signing-key", "--json", file); !strings.Contains(got, `"key": "`+public+`"`) {
		t.Errorf("as JSON it is %s", got)
	}
	other := strings.TrimSpace(said(t, "signing-key", filepath.Join(t.TempDir(), "other.nk")))
	d := dispatcher(t, "--archive-after", "1h", "--signing-key", file)
	worker(t, d.says["nats"], dir)
	at := func(cmd string, args ...string) []string {
		return append([]string{cmd, "--nats", d.says["nats"]}, args...)
	}
	said(t, at("submit", "--json", batchFile(t, toolyard.Batch{ID: "over", Calls: []toolyard.Call{
		{ID: "c1", Tool: "read_file", Input: input(map[string]any{"file_path": "a.txt"})}}}))...)
	// a decision is signed with the credentials of who decides over NATS
	asking := batchFile(t, toolyard.Batch{ID: "asked", Interactive: true, Calls: []toolyard.Call{
		{ID: "c1", Tool: "write_file", Input: input(map[string]any{"file_path": "b.txt", "content": "two\n"})}}})
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		run(t, nil, "dispatcher", at("submit", "--json", asking)...)
	}()
	asked := waiting(t, d.says["nats"], 1)
	said(t, at("approve", asked[0].ID)...)
	<-answered
	refused := func(status int, what string, args ...string) {
		t.Helper()
		stdout, stderr, got := run(t, nil, "dispatcher", args...)
		if got != status || !strings.Contains(stdout+stderr, what) {
			t.Errorf("%q: status %d\n%s%s", args, got, stdout, stderr)
		}
	}
	refused(1, "over: NOT PROVEN: the batch is not archived", at("verify", "--key", public, "over")...)
	refused(2, `there is no batch "other"`, at("verify", "--key", public, "other")...)
	refused(2, "--key: give the public key", at("verify", "over")...)
	refused(2, "is no public NKey", at("verify", "--key", "x", "over")...)
	refused(2, "takes the ids of batches", at("verify", "--key", public)...)
	refused(2, "set --archive-after too", "serve", "--signing-key", file)
	refused(2, "has no seed of an NKey", "serve", "--archive-after", "1h", "--signing-key",
		batchFile(t, toolyard.Batch{}))

	seed := must.Read(t, file)
	key, err := nkeys.ParseDecoratedNKey(seed)
	must.OK(t, err)
	signer, err := archive.NewSigner(key, "d1")
	must.OK(t, err)
	a, err := connect(t, d.says["nats"]).Archiver(t.Context(), time.Nanosecond, signer)
	must.OK(t, err)
	archived := 0
	testenv.Until(t, "the batches are archived", func() bool {
		r, err := a.Round(t.Context())
		archived += r.Batches
		return err == nil && archived == 2
	})
	if got := said(t, at("verify", "--key", other, "--key", public, "over")...); !strings.HasPrefix(got,
		"default/over: proven: ") || !strings.Contains(got, "as d1 signed them at") {
		t.Errorf("it says %s", got)
	}
	if got := said(t, at("verify", "--json", "--key", public, "over")...); !strings.Contains(got, `"verified": true`) {
		t.Errorf("it says %s", got)
	}
	got := said(t, at("verify", "--key", public, "asked")...)
	_, approver, ok := strings.Cut(strings.TrimSpace(got), "signed with ")
	if !ok || !nkeys.IsValidPublicUserKey(approver) || !strings.Contains(got, "call 0: allow by ") {
		t.Fatalf("it says %s", got)
	}
	said(t, at("verify", "--key", public, "--approver", approver, "asked")...)
	refused(1, "none of --approver", at("verify", "--key", public, "--approver", other, "asked")...)
	refused(2, "is no public NKey of a user", at("verify", "--key", public, "--approver", "x", "asked")...)
	refused(1, "which is not one that you trust", at("verify", "--key", other, "over")...)
}
