//go:build unix

package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestARemovedAgent: a dispatcher refuses the tokens of an agent that was removed, and those of others go on.
func TestARemovedAgent(t *testing.T) {
	t.Parallel()
	programs, err := testenv.Binaries("", "deploy/secrets")
	must.OK(t, err)
	dir := t.TempDir()
	secrets := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), filepath.Join(programs, "secrets"),
			append([]string{"--dir", dir}, args...)...).Output()
		must.OK(t, err)
		return string(out)
	}
	secrets("--node", "nats-1", "--agent", "ann", "--agent", "eve")
	d := dispatcher(t, "--token-file", filepath.Join(dir, "dispatcher", "tokens"))
	status := func(token string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.says["http"]+"/v1/me", nil)
		must.OK(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		got, err := http.DefaultClient.Do(r)
		must.OK(t, err)
		must.OK(t, got.Body.Close())
		return got.StatusCode
	}
	ann, eve, operator := secrets("print", "agent.ann.token"), secrets("print", "agent.eve.token"),
		secrets("print", "operator.token")
	for _, token := range []string{ann, eve, operator} {
		if got := status(token); got != http.StatusOK {
			t.Fatalf("before: %d", got)
		}
	}
	secrets("--remove-agent", "ann", "--remove-agent", "eve", "--agent", "eve")
	must.OK(t, d.cmd.Process.Signal(syscall.SIGHUP))
	testenv.Until(t, "the removed agent's token is refused", func() bool {
		return status(ann) == http.StatusUnauthorized
	})
	for token, want := range map[string]int{eve: http.StatusUnauthorized,
		secrets("print", "agent.eve.token"): http.StatusOK, operator: http.StatusOK} {
		if got := status(token); got != want {
			t.Errorf("after: %d, want %d", got, want)
		}
	}
}

// TestInitAuthRemoves: an agent and a pool that are removed have no credentials and no account, and others keep theirs.
func TestInitAuthRemoves(t *testing.T) {
	t.Parallel()
	p := newPlace(t, nil)
	auth := filepath.Join(t.TempDir(), "auth")
	p.ok(nil, "init-auth", auth, "--agent", "ann", "--agent", "re/viewer", "--pool", "words")
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{auth + "-new", "--remove-agent", "ann"}, "--update"},
		{[]string{auth, "--update", "--remove-agent", "nobody"}, `agent "nobody": there are no credentials`},
		{[]string{auth, "--update", "--remove-pool", "_"}, "--remove-pool"},
	} {
		_, stderr, status := p.run(nil, nil, append([]string{"init-auth"}, c.args...)...)
		if status != 2 || !strings.Contains(stderr, c.says) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit status %d: %s", c.args, status, stderr)
		}
	}
	p.ok(nil, "init-auth", auth, "--update", "--remove-agent", "re/viewer", "--remove-pool", "words")
	accounts := must.Read(t, filepath.Join(auth, "nodes", "nats-1", "accounts.conf"))
	for name, kept := range map[string]bool{"agent.ann": true, "agent.re=2fviewer": false, "worker.words": false} {
		_, err := os.Stat(filepath.Join(auth, "creds", name+".creds"))
		if account := strings.Contains(string(accounts), "# "+name+"\n"); (err == nil) != kept || account != kept {
			t.Errorf("%s has credentials: %t, and an account: %t", name, err == nil, account)
		}
	}
}
