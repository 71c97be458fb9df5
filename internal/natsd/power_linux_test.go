package natsd

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/testenv/blockdisk"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestNamesSurviveAPowerLoss: what was handed out of a directory of credentials is there after a power loss, and so is
// what init-auth has replaced. Each has a disk of its own, since what one syncs may sync the other.
func TestNamesSurviveAPowerLoss(t *testing.T) {
	for name, write := range map[string]func(dir string) (string, error){
		"credentials": func(dir string) (string, error) {
			if _, err := (Access{Dir: dir}).keys(slog.New(slog.DiscardHandler)); err != nil {
				return "", err
			}
			return MakeCreds(dir, access.Principal{Role: access.Agent, Name: "ann"})
		},
		"accounts": func(dir string) (string, error) {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return "", err
			}
			path := filepath.Join(dir, accountsFile)
			return path, replaceFile(path, []byte("accounts"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			image, at := filepath.Join(t.TempDir(), "image"), t.TempDir()
			blockdisk.Format(t, image, 32<<20)
			disk, unmount := blockdisk.Mount(t, image, at)
			made, err := write(filepath.Join(disk, "creds"))
			must.OK(t, err)
			had := must.Read(t, made)
			blockdisk.LosePower(t, disk)
			unmount()
			disk, _ = blockdisk.Mount(t, image, at)
			found, err := os.ReadFile(filepath.Join(disk, "creds", filepath.Base(made)))
			if err != nil || !bytes.Equal(found, had) {
				t.Errorf("there is %q, %v", found, err)
			}
		})
	}
}
