package durable

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
)

// TestSyncDir: a directory is synced, and one that is not there is an error. That names last then is shown where power
// is lost: TestNamesSurviveAPowerLoss (internal/natsd).
func TestSyncDir(t *testing.T) {
	dir := t.TempDir()
	if err := SyncDir(dir); err != nil {
		t.Error(err)
	}
	if err := SyncDir(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
}
