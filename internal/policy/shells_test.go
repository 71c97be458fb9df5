package policy

import "testing"

// denies reports what a deny rule for rm says about a command line.
func denies(t *testing.T, line string) bool {
	t.Helper()
	return deniesBy(t, "bash(rm:*)", line)
}

// deniesBy reports whether a deny rule denies a command line.
func deniesBy(t *testing.T, rule, line string) bool {
	t.Helper()
	req := Request{Declaration: bashTool, Input: input(t, "command", line), Mode: Bypass}
	return Decide(Rules{Deny: mustRules(t, rule)}, req).Behavior == Deny
}

// TestAShellBehindAWordLikeGit: an operand that is named git, or alias, or like a shell, does not hide what a shell, an
// alias or git runs.
func TestAShellBehindAWordLikeGit(t *testing.T) {
	for _, line := range []string{
		"env -C lib bash -c 'rm -rf build'", "env -C git bash -c 'rm -rf build'", "sudo -u git sh -c 'rm -rf build'",
		"env -C alias bash -c 'rm -rf build'", "env -C git -u alias bash -c 'rm -rf build'",
		"env -C git -u sh bash -c 'rm -rf build'", "env -C sh git -c alias.l='!rm x' l",
		"env -C alias git -c alias.l='!rm x' l", "env -C git alias l='rm x'", "env -C git bash < script",
	} {
		if !denies(t, line) {
			t.Errorf("rm is denied, and not %q", line)
		}
	}
	for _, line := range []string{"env -C git bash -c 'ls'", "sudo -u git ls", "env -C git git status"} {
		if denies(t, line) {
			t.Errorf("%q runs no rm, and is denied", line)
		}
	}
}

// TestAShellThatReadsItsInput: the value of an option is no script, and -s takes none. So the shell reads its standard
// input, which nobody knows.
func TestAShellThatReadsItsInput(t *testing.T) {
	const document = " <<'EOF'\nrm -rf build\nEOF"
	for _, sh := range []string{
		"bash", "bash -e", "bash -o pipefail", "bash -euo pipefail", "bash -oe pipefail", "bash +o posix",
		"bash -O extglob", "bash +O extglob", "bash -oO pipefail extglob", "bash -o pipefail -o errexit",
		"bash --rcfile f", "bash --init-file f", "bash -s", "bash -s a b", "bash -es a",
		"bash -Ceu", "bash -C", "bash /dev/stdin", "bash -e /dev/stdin a", "sh //dev/./stdin", "bash /dev/fd/0",
		"bash /proc/self/fd/0", "source /dev/stdin", ". /dev/stdin a", "env -C git bash /dev/stdin",
		"cd /dev && bash stdin", "cd /dev && sh ./stdin a", "cd /proc/self && bash fd/0", "cd /dev/fd && bash 0",
		"cd /dev && source stdin", "cd /dev/fd; . ./0", "cd /dev && fish stdin", "env -C /dev bash stdin",
		"sh -s -- a", "bash -o pipefail -s a", "sudo -u sh bash -o pipefail", "/bin/bash -o pipefail",
	} {
		for _, line := range []string{sh + document, "echo rm -rf build | " + sh} {
			if !denies(t, line) {
				t.Errorf("rm is denied, and not %q", line)
			}
		}
	}
	for _, line := range []string{
		"bash -o pipefail -c 'ls'", "bash -euo pipefail -c 'ls'", "bash -euo pipefail build.sh", "bash build.sh -s",
		"bash -c 'ls' -s", "bash -cs 'ls'", "bash -lc 'ls'", "bash --rcfile f -c 'ls'", "bash build.sh -o out",
		"bash -Cc 'ls'", "bash -Ceu build.sh", "bash build.sh /dev/stdin", "source build.sh", ". ./env",
		"ssh -o BatchMode=yes host", "ssh -p 22 host", "watch -n 5 ls", "trap ls 0", "bash build.sh 0", "bash 0.sh",
	} {
		if denies(t, line) {
			t.Errorf("%q runs no rm, and is denied", line)
		}
	}
}
