package shells

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard/internal/testenv/smalldisk"
)

// TestACommandThatFindsTheDiskFull does not start, and nobody is told that it was lost. A command that was lost before
// is told of by its name.
func TestACommandThatFindsTheDiskFull(t *testing.T) {
	smalldisk.Run(t, 1<<20, func(t *testing.T, dir string) {
		b := &bench{T: t, Store: New(dir)}
		b.change(key, State{Dir: "a"}, "")
		refused := func() {
			t.Helper()
			filler := smalldisk.Fill(t, dir, 0)
			if _, err := b.Open(t.Context(), key, "call b", true); !errors.Is(err, unix.ENOSPC) {
				t.Errorf("a command on a full disk: %v", err)
			}
			b.must(os.Remove(filler))
		}
		refused()
		b.sees(key, "a", "")
		b.must(b.open(key, true).Close(Lost))
		refused()
		b.sees(key, "a", "", "call a was stopped or lost")
	})
}
