package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"
)

const module = "github.com/toolyard/toolyard/"

// Binaries builds programs of this module, and returns the directory that has them. programs are packages below the
// module's path; tags is a list with commas, or empty. The directory stays, for all test binaries that want the same
// tags: the second one that asks waits for the first, and links only what is out of date or missing.
func Binaries(tags string, programs ...string) (dir string, err error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("look for the module: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(out)))
	dir = filepath.Join(root, "bin", "test", strings.ReplaceAll(tags, ",", "-"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the directory of programs: %w", err)
	}
	lock := flock.New(filepath.Join(dir, ".lock"))
	if err := lock.Lock(); err != nil {
		return "", fmt.Errorf("wait for who builds the programs: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	args := []string{"build", "-tags", tags, "-o", dir + string(filepath.Separator)}
	for _, p := range programs {
		args = append(args, module+p)
	}
	build := exec.Command("go", args...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", strings.Join(programs, ", "), err, bytes.TrimSpace(out))
	}
	return dir, nil
}
