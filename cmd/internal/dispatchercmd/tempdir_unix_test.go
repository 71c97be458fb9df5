//go:build unix

package dispatchercmd

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv"
)

// holdsTemp is the variable by which this test is a process that makes a temporary directory, says where, and waits.
const holdsTemp = "TOOLYARD_TEST_HOLDS_TEMP"

// TestTemporaryDirectoriesOfKilledProcesses: what a killed process has left is removed by the next one, and what one
// that lives uses, or somebody else has made, is not.
func TestTemporaryDirectoriesOfKilledProcesses(t *testing.T) {
	if os.Getenv(holdsTemp) != "" {
		dir, remove, err := tempDir(aloneStore, slog.New(slog.DiscardHandler))
		if err == nil {
			defer remove() // which also keeps the lock
			err = os.WriteFile(filepath.Join(dir, "big"), make([]byte, 1<<20), 0o600)
		}
		if err == nil {
			_, err = os.Stdout.WriteString(dir + "\n")
		}
		if err == nil {
			_, err = io.Copy(io.Discard, os.Stdin)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	hold := func() (dir string, kill func()) {
		t.Helper()
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		c.Env = append(os.Environ(), holdsTemp+"=1")
		in, err := c.StdinPipe()
		out, oerr := c.StdoutPipe()
		if err = errors.Join(err, oerr); err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		dir, err = bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return dir[:len(dir)-1], func() {
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = c.Wait() // it says that it was killed
			_ = in.Close()
		}
	}
	there := func(dir string) bool {
		t.Helper()
		_, err := os.Stat(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return err == nil
	}
	foreign := filepath.Join(temp, aloneStore+"foreign")
	halfway := filepath.Join(temp, aloneStore+"halfway") // its process has not said on which machine it is
	elsewhere := filepath.Join(temp, aloneStore+"elsewhere")
	for dir, files := range map[string][]string{
		foreign: {"data"}, halfway: {tempLock}, elsewhere: {tempLock, tempHost},
	} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("another machine"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	killed, kill := hold()
	lives, end := hold()
	defer end()
	if !there(killed) || !there(lives) {
		t.Fatalf("the directory of a process that lives was removed: %q, %q", killed, lives)
	}
	kill()
	own, remove, err := tempDir(aloneStore, testenv.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	if there(filepath.Dir(killed)) {
		t.Error("what a killed process has left stays")
	}
	for _, dir := range []string{lives, own, foreign, halfway, elsewhere} {
		if !there(dir) {
			t.Errorf("%s was removed", dir)
		}
	}
	if remove(); there(filepath.Dir(own)) {
		t.Error("its own directory stays")
	}
}
