//go:build linux

package blockdisk

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestUnsyncedIsLost: after a power loss what was synced is there, and what was only written is not.
func TestUnsyncedIsLost(t *testing.T) {
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	Format(t, image, 32<<20)
	disk, unmount := Mount(t, image, dir)
	for i, sync := range []bool{true, false} {
		f, err := os.Create(filepath.Join(disk, fmt.Sprint(i)))
		must.OK(t, err)
		if _, err := f.WriteString("written"); err != nil {
			t.Fatal(err)
		}
		if sync {
			must.OK(t, f.Sync())
		}
		must.OK(t, f.Close())
	}
	LosePower(t, disk)
	unmount()

	disk, _ = Mount(t, image, dir)
	if text, err := os.ReadFile(filepath.Join(disk, "0")); string(text) != "written" {
		t.Errorf("what was synced is %q, %v", text, err)
	}
	if text, err := os.ReadFile(filepath.Join(disk, "1")); string(text) == "written" {
		t.Errorf("what was not synced is there: %q, %v", text, err)
	}
	must.OK(t, Hang(disk))
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(filepath.Join(disk, "2"), []byte("late"), 0o600) }()
	select {
	case err := <-written:
		t.Errorf("a disk that hangs was written to: %v", err)
	default:
	}
	must.OK(t, GoOn(disk))
	if err := <-written; err != nil {
		t.Error(err)
	}
}
