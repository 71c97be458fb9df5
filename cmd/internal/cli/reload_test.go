//go:build unix

package cli

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv"
)

// TestReload: SIGHUP runs all steps in their order, also behind one that fails, and also those that were added late.
func TestReload(t *testing.T) {
	var r Reload
	ran := make(chan string, 8)
	r.On("first", func() error { ran <- "first"; return errors.New("the file is not there") })
	r.Follow(t.Context(), testenv.Log(t))
	r.On("second", func() error { ran <- "second"; return nil })
	for range 2 {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"first", "second"} {
			if got := <-ran; got != want {
				t.Fatalf("step %s ran; want %s", got, want)
			}
		}
	}
}
