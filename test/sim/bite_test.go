package sim

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestTeeth takes away one fence at a time: some history then breaks an invariant that the fence is for.
//
// The fences are code without switches. So this test makes mutated copies of that code, in which each fence can be
// taken away, builds this package with them, and lets TestMutants there do the rest.
func TestTeeth(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path, err := overlay(root, dir, teeth)
	if err != nil {
		t.Fatal(err)
	}
	mutants := filepath.Join(dir, "mutants.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-tags", "mutants", "-overlay", path, "-o", mutants,
		".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, out)
	}
	var hashes []string
	for seed := range uint64(sameSeeds) {
		hashes = append(hashes, inMemory(t, seed, options{}).hash)
	}
	cmd := exec.CommandContext(t.Context(), mutants, "-test.run", "^TestMutants$", "-test.v", "-test.timeout", "0",
		"-plain", strings.Join(hashes, ","), "-teeth", fmt.Sprint(*teethSeeds), "-tooth", *onlyTooth)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("%s: %v", cmd, err)
	}
}

// sameSeeds is how many histories are played with and without the mutations, while all fences stand. Not each seed is
// the same history each time (see alike), so one that is has to be among them.
const sameSeeds = 5
