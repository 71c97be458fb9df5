package policy

import "testing"

// TestStars: a star in a command rule means the same as in Claude Code, and in a deny rule it also matches similar
// commands.
func TestStars(t *testing.T) {
	for _, tc := range []matchCase{
		{"bash(rm *)", "rm x", true, true},
		{"bash(rm *)", "rm", true, true},
		{"bash(rm *)", "rmdir x", false, false},
		{"bash(rm *)", "ls; sudo rm -rf x", true, false},
		{"bash(rm*)", "rm x", true, true},
		{"bash(rm*)", "rmdir x", true, true},
		{"bash(rm*)", "ls rm", false, false},
		{"bash(npm run test-*)", "npm run test-unit -- -v", true, true},
		{"bash(npm run test-*)", "npm run build", false, false},
		{"bash(git * main)", "git push origin main", true, true},
		{"bash(git * main)", "git checkout main", true, true},
		{"bash(git * main)", "git main", true, false},
		{"bash(git * main)", "git push origin dev", false, false},
		{"bash(git * main)", "git push main dev", false, false},
		{"bash(* --version)", "node --version", true, true},
		{"bash(* --version)", "node x.js", false, false},
		{"bash(* --version)", "sh -c 'rm x' --version", true, true}, // as it is written
		{"bash(ls *.go)", "ls a.go", true, true},
		{"bash(ls *.go)", "ls -l a.go", true, false}, // an allow reads a star inside a word within the word
		{"bash(ls *.go)", "ls a.py", false, false},
		{"bash(rm build/*)", "rm build/a", true, true},
		{"bash(rm build/*)", "rm build/../x", true, false}, // which is no part of what the rule names
		{"bash(rm build/*)", "rm build/a/..", true, false},
		{"bash(./bin/*)", "./bin/../../x", true, false},
		{"bash(cat docs*)", "cat docs/../../x", true, false},
		{"bash(cat ../docs/*)", "cat ../docs/x", true, true},
		{"bash(cat ../docs/*)", "cat ../docs/../x", true, false},
		{"bash(git log v*)", "git log v1..v2", true, true},
		{"bash(ls '*')", "ls x", false, false}, // a quoted star is a star
		{`bash(ls \*)`, "ls '*'", true, true},
		{"bash(ls 'a b'*)", "ls 'a bc'", true, true},
		{"bash(npm run *)", `npm "run x"`, false, false},
		{"bash(npm run *)", "npm run test; rm x", true, false},
		{"bash(npm run *)", "npm run $x", true, false},
		{"bash(git * main)", "git $x", true, false},
	} {
		denied, allowed := matches(t, tc.rule, Request{Declaration: bashTool, Input: input(t, "command", tc.value)})
		if denied != tc.denied || allowed != tc.allowed {
			t.Errorf("%s on %.80q: denied %v, allowed %v; want %v, %v", tc.rule, tc.value, denied, allowed, tc.denied,
				tc.allowed)
		}
	}
}

// TestWrappersDoNotHideACommand: a deny rule sees through programs that run another command, or text.
func TestWrappersDoNotHideACommand(t *testing.T) {
	for _, command := range []string{
		"env -S 'rm x'", "env -S'rm x'", "env -iS 'rm x'", "env --split-string='rm x'", "env --split-string 'rm x'",
		"env --spl='rm x'", `env -S 'rm\_x'`,
		"env -u A -S 'rm x'", "/usr/bin/env -vS 'rm x'", "sudo env -S 'rm x'", "env -S rm x", `env -S '${CMD} x'`,
		"taskset 1 rm x", "taskset -c 0-3 rm x", "nsenter -t 1 -m rm x", "chrt -f 1 rm x", "numactl -N 0 rm x",
		"setpriv --no-new-privs rm x",
		"setarch x86_64 rm x", "linux64 rm x", "prlimit --nofile=1 rm x", "systemd-run rm x", "firejail rm x",
		"bwrap --bind / / rm x", "pkexec rm x",
		"fakeroot rm x", "unbuffer rm x", "dbus-run-session rm x", "xvfb-run rm x", "toybox rm x", "tini -- rm x",
		"gosu me rm x", "valgrind rm x",
		"/lib64/ld-linux-x86-64.so.2 /bin/rm x", "coproc rm x", "uv run rm x", "npx rm x",
		"script -c 'rm x' log", "script -qc 'rm x' /dev/null", "script -qec'rm x'", "script --command='rm x' log",
		"script --command 'rm x'",
		"flock f -c 'rm x'", "flock -c'rm x' f", "su -c 'rm x' me", "sg adm -c 'rm x'", "runuser -u me -- rm x",
		"bash --rcfile f -c 'rm x'",
		"alias ls=rm; ls x", "alias 'ls=rm x'", `alias ls="sudo rm"`, "hash -p /bin/rm foo; foo x",
		"mapfile -C 'rm x' -c 1 a < f", "readarray -C rm -c 1 a <f",
		"ssh localhost rm x", "ssh me@host 'ls; rm x'", "tmux new-session 'rm x'", "fd -x rm", "fd . -X rm",
		"fdfind -x rm {}",
		"git -c alias.l='!rm x' l", "git config alias.l '!rm x'", "git bisect run rm x", "git submodule foreach 'rm x'",
		"git rebase --exec 'rm x' main",
	} {
		if denied, _ := matches(t, "bash(rm:*)", Request{Declaration: bashTool,
			Input: input(t, "command", command)}); !denied {
			t.Errorf("%q slips past a deny of rm", command)
		}
	}
	for _, command := range []string{
		"env", "env | sort", "env -u A ls -S", "env A=1 ls", "taskset 1 ls", "nsenter -t 1 ls", "alias",
		"alias ll='ls -l'", "alias -p", "mapfile a < f",
		"mapfile < f", "git status", "git log --grep rm", "git commit -m 'rm x'", "git -c a.b=c status",
		"script -c 'ls' log", "hash", "hash -r", "npm run x",
		"fd rm", "ssh host ls", "git config user.name rm",
	} {
		if denied, _ := matches(t, "bash(rm:*)", Request{Declaration: bashTool,
			Input: input(t, "command", command)}); denied {
			t.Errorf("%q is denied by a deny of rm", command)
		}
	}
}
