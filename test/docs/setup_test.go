//go:build unix

package docs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestSetupNamesWhatIsMissing: .ci/setup has one line for each missing tool, with a command, and fails when the tests
// need one of them.
func TestSetupNamesWhatIsMissing(t *testing.T) {
	run := func(t *testing.T, tools ...string) (lines []string, failed bool) {
		t.Helper()
		return runSetup(t, nil, tools...)
	}
	// in the order of its lines
	must := []string{"go", "make", "git", "gcc", "python3", "node", "chromium", "npm"}
	first := slices.Insert(slices.Clone(must), slices.Index(must, "node"), "python-packages")
	if runtime.GOOS == "linux" {
		must = append(must, "mkfs.ext4")
	}
	lines, failed := run(t)
	if !failed {
		t.Error("it does not fail where everything is missing")
	}
	for i, tool := range first {
		if i >= len(lines) || !strings.HasPrefix(lines[i], tool+" is missing: ") ||
			!strings.Contains(lines[i], "; install") {
			t.Errorf("line %d does not say that %s is missing, and how it is installed:\n%s", i+
				1, tool, strings.Join(lines, "\n"))
		}
	}
	lines, failed = run(t, must...)
	if linux := runtime.GOOS == "linux"; failed || linux != strings.HasPrefix(lines[0], "bwrap is missing: ") {
		t.Errorf("without bubblewrap alone: failed is %v\n%s", failed, strings.Join(lines, "\n"))
	}
	for _, tool := range must {
		if _, failed := run(t, without(must, tool)...); !failed {
			t.Errorf("without %s it does not fail", tool)
		}
	}
	if lines, failed := run(t, append(slices.Clone(must), "bwrap", "apt-get")...); failed || lines[0] != "" {
		t.Errorf("with all tools: failed is %v\n%s", failed, strings.Join(lines, "\n"))
	}
	if lines, _ := run(t, "apt-get"); !strings.Contains(lines[3],
		"apt-get install -y --no-install-recommends gcc libc6-dev") {
		t.Errorf("with apt-get it says %q", lines[3])
	}
}

func without(all []string, one string) (others []string) {
	for _, s := range all {
		if s != one {
			others = append(others, s)
		}
	}
	return others
}

// TestSetupInstallsWhatIsMissing: with --install it installs the packages of what is missing, and nothing else.
func TestSetupInstallsWhatIsMissing(t *testing.T) {
	lines, failed := runSetup(t, []string{"--install"}, "go", "make", "git", "python3", "chromium", "npm", "bwrap",
		"mkfs.ext4", "apt-get")
	if want := "update -qq|install -y -qq --no-install-recommends gcc libc6-dev nodejs"; failed ||
		strings.Join(lines, "|") != want {
		t.Errorf("without a compiler and Node: failed is %v, apt-get got %q, want %q", failed, lines, want)
	}
	lines, failed = runSetup(t, []string{"--install"}, "go", "make", "git", "gcc", "python3", "node", "chromium", "npm",
		"bwrap", "mkfs.ext4", "apt-get")
	if failed || lines[0] != "" {
		t.Errorf("with all tools: failed is %v, apt-get got %q", failed, lines)
	}
}

// runSetup runs .ci/setup where only some tools are there. Each of them is a script that prints its arguments.
func runSetup(t *testing.T, args []string, tools ...string) (lines []string, failed bool) {
	t.Helper()
	bin := t.TempDir()
	for _, name := range []string{"bash", "uname"} {
		path, err := exec.LookPath(name)
		must.OK(t, err)
		must.OK(t, os.Symlink(path, filepath.Join(bin, name)))
	}
	for _, name := range tools {
		must.OK(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\necho \"$@\"\n"), 0o755))
	}
	args = append([]string{filepath.Join("..", "..", ".ci", "setup")}, args...)
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "bash"), args...)
	cmd.Env = []string{"PATH=" + bin}
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n"), err != nil
}
