package dispatchercmd

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// mistake runs a command that is wrong, which has to say so with the exit status of that.
func mistake(t *testing.T, says string, args ...string) {
	t.Helper()
	var errs bytes.Buffer
	status := cli.Main(Command(strings.NewReader(""), io.Discard, &errs), args, &errs)
	if status != cli.ExitUsage || !strings.Contains(errs.String(), says) {
		t.Errorf("%q: exit status %d, want %d with %q: %s", args, status, cli.ExitUsage, says, &errs)
	}
}

// TestAFileInPlaceOfADirectory is a wrong flag, wherever on the way it stands.
func TestAFileInPlaceOfADirectory(t *testing.T) {
	from := testenv.Guarded(t)
	platform := access.Principal{Role: access.Dispatcher}
	testenv.BrokerAs(t, from, platform, "/a")
	dir := t.TempDir()
	saved, file := filepath.Join(dir, "saved"), filepath.Join(dir, "file")
	s := &std{in: strings.NewReader(""), out: io.Discard, err: os.Stderr}
	must.OK(t, s.save(t.Context(), testenv.ConnAs(t, from, platform), saved, &streamsDone{}))
	must.OK(t, os.WriteFile(file, nil, 0o600))
	for _, path := range []string{file, filepath.Join(file, "below")} {
		mistake(t, "--data "+path+": is not a directory", "serve", "--listen", "127.0.0.1:0", "--nats-listen",
			"127.0.0.1:0", "--data", path)
		mistake(t, "--data "+path+": is not a directory", "restore", "--data", path, saved)
		mistake(t, "DIR "+path+": is not a directory", "init-auth", path)
	}
	for path, says := range map[string]string{
		saved:                                   "is there already",
		filepath.Join(dir, "missing", "backup"): "no such file or directory",
	} {
		err := s.save(t.Context(), testenv.ConnAs(t, from, platform), path, &streamsDone{})
		if err == nil || !strings.Contains(err.Error(), path+": "+says) {
			t.Errorf("a backup to %s: %v, want %q", path, err, says)
		}
	}
}

// TestBatchesOfNobody: a name that no agent or session can have is not searched for.
func TestBatchesOfNobody(t *testing.T) {
	long := strings.Repeat("a", 129)
	mistake(t, "--agent: is 129 bytes long", "batches", "--nats", "nats://127.0.0.1:1", "--agent", long)
	mistake(t, "--session: is 129 bytes long", "batches", "--nats", "nats://127.0.0.1:1", "--session", long)
}

// TestANameThatNoCredentialsCanHave is refused before anything is written, or taken away.
func TestANameThatNoCredentialsCanHave(t *testing.T) {
	dir, long := filepath.Join(t.TempDir(), "secrets"), strings.Repeat("ü", 64) // six bytes each as part of a subject
	mistake(t, "--agent: the name of agent", "init-auth", dir, "--agent", long)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a directory of a cluster (%v)", err)
	}
	var out bytes.Buffer
	if status := cli.Main(Command(strings.NewReader(""), &out, &out), []string{"init-auth", dir}, &out); status != 0 {
		t.Fatalf("%d %s", status, &out)
	}
	mistake(t, "--agent: the name of agent", "init-auth", dir, "--update", "--remove-agent", "default", "--agent", long)
	if _, err := os.Stat(filepath.Join(dir, "creds", "agent.default.creds")); err != nil {
		t.Errorf("the agent that was to be removed beside has no credentials: %v", err)
	}
	mistake(t, "--remove-agent: the name of agent", "init-auth", dir, "--update", "--remove-agent", long)
	mistake(t, "--agent: the name of agent", "creds", "--data", dir, "--agent", long)
}

// TestAnEmptyListIsNoList: a list that narrows what a command does, and comes out empty, as of a variable that is not
// set, is refused. Without it everything would be meant.
func TestAnEmptyListIsNoList(t *testing.T) {
	key := []string{"--nats", "nats://127.0.0.1:1", "--key", "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"}
	mistake(t, "--approver", append([]string{"verify", "nightly-7", "--approver", ""}, key...)...)
	t.Run("approver in the environment", func(t *testing.T) {
		t.Setenv(cli.EnvName("approver"), "")
		mistake(t, "--approver", append([]string{"verify", "nightly-7"}, key...)...)
	})
	t.Run("call in the environment", func(t *testing.T) {
		t.Setenv(cli.EnvName("call"), "")
		mistake(t, "--call", "cancel", "--nats", "nats://127.0.0.1:1", "nightly-7")
	})
}
