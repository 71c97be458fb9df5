package dispatchercmd

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/cmd/internal/cli"
)

// TestAWrongFileOfASigningKey: the flag or the argument is named, and the exit status is that of a wrong one.
func TestAWrongFileOfASigningKey(t *testing.T) {
	dir := t.TempDir()
	other, missing := filepath.Join(dir, "other"), filepath.Join(dir, "missing")
	if err := os.WriteFile(other, []byte("no key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	signs := func(path string) []string {
		return []string{"serve", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--data",
			filepath.Join(dir, "data"), "--archive-after", "10m", "--signing-key", path}
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{signs(missing), "--signing-key " + missing + ": there is no such file"},
		{signs(dir), "--signing-key " + dir + ": it is a directory"},
		{signs(other), "--signing-key " + other + ": has no seed"},
		{[]string{"signing-key", dir}, "FILE " + dir + ": it is a directory"},
		{[]string{"signing-key", other}, "FILE " + other + ": has no seed"},
		{[]string{"signing-key", filepath.Join(missing, "key")}, "FILE " + filepath.Join(missing, "key") +
			": no such file"},
		{[]string{"signing-key", os.DevNull}, "FILE " + os.DevNull + ": has no seed"},
	} {
		var errs bytes.Buffer
		status := cli.Main(Command(nil, io.Discard, &errs), c.args, &errs)
		if status != cli.ExitUsage || !strings.Contains(errs.String(), c.says) {
			t.Errorf("%q: exit status %d, want %d with %q: %s", c.args, status, cli.ExitUsage, c.says, &errs)
		}
	}
	var first, again bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &again} {
		if status := cli.Main(Command(nil, out, io.Discard), []string{"signing-key", missing}, out); status != 0 {
			t.Fatalf("exit status %d: %s", status, out)
		}
	}
	if first.Len() == 0 || first.String() != again.String() {
		t.Errorf("the key is %q, and then %q", &first, &again)
	}
}
