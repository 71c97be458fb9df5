//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/sandbox/stage"
)

// TestALostSpawner: killing the process that starts sandboxes, however often, does not prevent later sandboxes.
func TestALostSpawner(t *testing.T) {
	box := Backends(Options{})[0] // of its own: it is given up in the end
	if _, err := box.Probe(t.Context()); err != nil {
		refuses(t, box, err)
		return
	}
	spawners := func() (found []int) {
		for _, pid := range children(t, os.Getpid()) {
			if line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline"); err == nil &&
				bytes.HasPrefix(line, []byte(stage.SpawnerName)) {
				found = append(found, pid)
			}
		}
		return found
	}
	before, lost := spawners(), 0
	for range maxSpawnersLost + 2 {
		for _, pid := range spawners() {
			lost++
			family := descendants(t, pid)
			// that of a sandbox that is gone ends by itself
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Fatal(err)
			}
			for end := time.Now().Add(10 * time.Second); len(alive(t, family)) > 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the sandboxes that it started outlive it")
				}
			}
		}
		for range spareCount + 1 {
			if res, out := sh(t, box, Policy{}, "echo here"); res.Reason != Exited || out != "here\n" {
				t.Errorf("%+v %q", res, out)
			}
		}
	}
	if len(before) == 0 || lost < maxSpawnersLost {
		t.Errorf("%d spawners at first, %d killed: the test proves nothing", len(before), lost)
	}
	if left := spawners(); len(left) > 0 {
		t.Errorf("%d spawners were made after so many were lost", len(left))
	}
}
