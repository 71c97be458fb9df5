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

// Binaries builds programs of this repository, and returns the directory that has them. programs are packages below its
// root, each built in the module that it is of; tags is a list with commas, or empty. The directory stays, for all test
// binaries that want the same tags: the second one that asks waits for the first, and links only what is out of date or
// missing.
func Binaries(tags string, programs ...string) (dir string, err error) {
	here, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("look for the repository: %w", err)
	}
	root := here
	for !exists(filepath.Join(root, "go.work")) {
		if root = filepath.Dir(root); root == filepath.Dir(root) {
			return "", fmt.Errorf("no directory above %s has go.work, which stands at the repository's root", here)
		}
	}
	dir = filepath.Join(root, "bin", "test", strings.ReplaceAll(tags, ",", "-"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the directory of programs: %w", err)
	}
	lock := flock.New(filepath.Join(dir, ".lock"))
	if err := lock.Lock(); err != nil {
		return "", fmt.Errorf("wait for who builds the programs: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	for _, p := range programs {
		module := filepath.Join(root, strings.TrimSuffix(p, "/..."))
		for !exists(filepath.Join(module, "go.mod")) {
			module = filepath.Dir(module)
		}
		inside, err := filepath.Rel(module, filepath.Join(root, p))
		if err != nil {
			return "", fmt.Errorf("build %s: %w", p, err)
		}
		// What only debuggers read takes a quarter of the time that linking takes.
		build := exec.Command("go", "build", "-tags", tags, "-ldflags", "-s -w", "-o",
			dir+string(filepath.Separator), "./"+filepath.ToSlash(inside))
		build.Dir = module
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", p, err, bytes.TrimSpace(out))
		}
	}
	return dir, nil
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
