//go:build linux

package builtin

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/shell"
	"github.com/toolyard/toolyard/internal/shells"
	"github.com/toolyard/toolyard/tool"
)

// remembering is a bench whose bash remembers, in a real sandbox. works is false where nothing isolates commands: then
// it was shown that none runs.
func remembering(t *testing.T) (b *bench, store string, works bool) {
	t.Helper()
	b = newBench(t)
	box, err := sandbox.Open(sandbox.Options{})
	b.must(err)
	store = filepath.Join(t.TempDir(), "shells")
	policy := sandbox.Policy{Env: map[string]string{"GIVEN": "by the operator"}}
	b.tools["bash"], err = bash(box, policy, shells.New(store))
	b.must(err)
	b.env.Agent, b.env.Session, b.env.Batch, b.env.CallID = "ann", "s", "b1", "c1"
	if _, err := box.Probe(t.Context()); err != nil {
		b.refused(toolyard.SetupRequired, "bash", in{"command": "ls"})
		return b, store, false
	}
	return b, store, true
}

// bash runs a command and returns its output, also of one that fails.
func (b *bench) bash(command string) string {
	b.Helper()
	out, err := b.tools["bash"].Run(b.Context(), b.env, encode(in{"command": command}))
	if err != nil && tool.AsError(err).Code != toolyard.ExecutionFailed {
		b.Fatalf("%s: %v", command, err)
	}
	return out.Text
}

// says checks what a command says.
func (b *bench) says(command, want string) {
	b.Helper()
	if got := b.bash(command); got != want {
		b.Errorf("%s\n  says %q\n  want %q", command, got, want)
	}
}

func TestAShellRemembers(t *testing.T) {
	b, _, works := remembering(t)
	if !works {
		return
	}
	b.put("src/lib/f", "content\n")
	top := b.env.WorkspaceDir
	b.says("pwd", top+"\n")
	b.says("cd src", "[shell: its directory is now "+b.at("src")+"]\n")
	b.says("pwd", b.at("src")+"\n") // beside others
	b.says("cat lib/f", "content\n")
	b.says("cd lib && ls", "f\n[shell: its directory is now "+b.at("src/lib")+"]\n")
	b.says("cd - >/dev/null; export A=\"it's; \\$(rm) \\\" two\nlines\" B=b; C=c; f() { :; }; echo kept > /tmp/f; "+
		"mkdir /tmp/d; echo x > made", "[shell: its directory is now "+b.at("src")+"]\n")
	b.says(`echo "$A|$B|$C|$GIVEN"; type f 2>&1; cat /tmp/f made; ls -d /tmp/d; unset B; rm /tmp/f`,
		"it's; $(rm) \" two\nlines|b||by the operator\nbash: line 1: type: f: not found\nkept\nx\n/tmp/d\n")
	b.says(`echo "${B-none}"; cd /tmp; ls -d [a-z]; cd -`, "none\nd\n"+b.at("src")+"\n")
	b.says("false; exit 3", "") // also a failed command leaves what it did
	b.says("export PATH=/tmp/d:$PATH; exit 4", "")
	b.says("echo $PATH | cut -d: -f1", "/tmp/d\n")

	b.env.Session = "another"
	b.says(`pwd; echo "$A"; ls /tmp/[a-z]* 2>&1`,
		top+"\n\nls: cannot access '/tmp/[a-z]*': No such file or directory\n")
	b.env.Session, b.env.Agent = "s", "bob"
	b.says(`pwd; echo "$A"`, top+"\n\n")
	b.env.Agent = "ann"
	b.says(`pwd; echo ${A:0:4}`, b.at("src")+"\nit's\n")
}

// TestReadsChangeNothing: what only reads gets a copy, no variables and no configuration of the shell.
func TestReadsChangeNothing(t *testing.T) {
	b, _, works := remembering(t)
	if !works {
		return
	}
	b.put("sub/.git/config", "[core]\n\tfsmonitor = \"touch /tmp/obeyed; false\"\n")
	b.bash(`mkdir /tmp/bin; printf '#!/bin/sh\necho hijacked\n' > /tmp/bin/ls; chmod +x /tmp/bin/ls; cp /tmp/bin/ls /tmp/ls
		export PATH=/tmp/bin:$PATH LD_PRELOAD=/tmp/x.so; printf '[alias]\n\tstatus = !echo hijacked\n' > /tmp/.gitconfig`)
	b.says("ls /tmp/bin", "ls\n")
	b.contains(b.bash("ls; true $HOME"), "hijacked") // a command that is not read-only has them
	b.says("cd sub && ls", "[shell: its directory is now "+b.at("sub")+"]\n")
	_, err := b.tools["bash"].Run(t.Context(), b.env, encode(in{"command": "git status"}))
	if e := tool.AsError(err); e == nil || e.Code != toolyard.InvalidArguments ||
		!strings.Contains(e.Message, "the shell is in sub") {
		t.Error(err)
	}
	b.says("cd ..", "[shell: its directory is now "+b.env.WorkspaceDir+"]\n")
	if out := b.bash("git status"); strings.Contains(out, "hijacked") {
		t.Error(out)
	}
	// A command that moves the shell keeps nothing else, and writes nothing.
	b.says("cd sub && cat ../nothing 2>/dev/null", "[shell: its directory is now "+b.at("sub")+"]\n")
	if left := b.bash("ls -A /tmp/bin"); left != "ls\n" {
		t.Errorf("%q", left)
	}
}

// TestNothingRunsOn: a process in the background ends with its command.
func TestNothingRunsOn(t *testing.T) {
	b, _, works := remembering(t)
	if !works {
		return
	}
	b.bash("(trap '' TERM HUP; while :; do echo x >> ran; sleep 0.01; done) & disown; while ! test -s ran; do :; done")
	info, err := os.Stat(b.at("ran"))
	b.must(err)
	b.bash("sleep 0.2; ps -e | grep -c sleep > count")
	again, err := os.Stat(b.at("ran"))
	b.must(err)
	if info.Size() != again.Size() {
		t.Errorf("it wrote on: %d bytes, then %d", info.Size(), again.Size())
	}
}

// TestWhatDoesNotLast: the model is told of each thing that it could have expected.
func TestWhatDoesNotLast(t *testing.T) {
	b, store, works := remembering(t)
	if !works {
		return
	}
	b.bash("mkdir -p a; cd a; export V=1; echo one > /tmp/f")
	state := func(when string) {
		t.Helper()
		if got := b.bash(`pwd; echo $V; cat /tmp/f`); got != b.at("a")+"\n1\none\n" {
			t.Errorf("%s: %q", when, got)
		}
	}
	for command, told := range map[string]string{
		"cd /tmp; true $V": "the next command begins at the top",
		"exec true":        "the shell did not come to its end",
		"trap : EXIT":      "the shell did not come to its end",
		"kill -9 $$":       "the shell did not come to its end",
		"head -c 17000000 /dev/zero > /tmp/big; cd ..":     "as before this command: /tmp has more than 16 MiB",
		"for i in {1..4100}; do echo > /tmp/$i; done":      "as before this command: /tmp has more than 16 MiB or 4096 names",
		"export W=$(head -c 70000 /dev/zero | tr '\\0' x)": "the variables are as before this command",
		"mkfifo /tmp/p": "1 names of /tmp do not last",
	} {
		b.contains(b.bash(command), "[shell: ")
		b.bash("cd " + b.at("a") + "; export V=1; rm -rf /tmp/big /tmp/p /tmp/[0-9]*; echo one > /tmp/f") // as it was
		b.contains(b.bash(command), told)
		b.bash("cd " + b.at("a"))
		state(command)
	}
	b.says("set -eux; cd ..", "+ cd ..\n[shell: its directory is now "+b.env.WorkspaceDir+"]\n")
	b.bash("cd a")
	// A directory that is gone: nothing runs, and the next command begins at the top.
	b.must(os.Remove(b.at("a")))
	got := b.bash("touch ran")
	b.contains(got, "its directory a cannot be entered any more; nothing was run")
	b.contains(got, "its directory is now "+b.env.WorkspaceDir)
	if names := b.names(); names != "." {
		t.Errorf("it ran: %s", names)
	}
	b.says("pwd", b.env.WorkspaceDir+"\n")
	// What cannot be read is a new shell.
	files, err := filepath.Glob(filepath.Join(store, "*.*"))
	b.must(err)
	for _, f := range files {
		if !strings.HasSuffix(f, ".json") {
			b.must(os.WriteFile(f, []byte("damaged"), 0o600))
		}
	}
	b.says("echo $V; true", "\n[shell: it is new: what the earlier one remembered cannot be read]\n")
}

// TestWhoMayNotActChangesNoShell: another worker may run the call by now.
func TestWhoMayNotActChangesNoShell(t *testing.T) {
	b, _, works := remembering(t)
	if !works {
		return
	}
	b.bash("mkdir a; cd a; echo one > /tmp/f")
	asked := 0
	b.env.CommitPoint = func() error {
		if asked++; asked > 1 {
			return errors.New("the lease is lost")
		}
		return nil
	}
	b.bash("cd ..; echo two > /tmp/f")
	b.env.CommitPoint = func() error { return nil }
	b.env.CallID = "c2"
	want := "one\n[shell: call c1 of batch b1 was stopped or lost while it ran: what it changed in directory, " +
		"variables and /tmp is not here]\n"
	b.says("cat /tmp/f", want)
	b.says("cat /tmp/f; true $HOME", want)
	b.says("cat /tmp/f; true $HOME", "one\n") // it was told
}

// TestOnlyASandboxRemembers: without one there is no /tmp of the shell's own.
func TestOnlyASandboxRemembers(t *testing.T) {
	b := newBench(t)
	store := shells.New(filepath.Join(t.TempDir(), "shells"))
	asks := acts{run: func(p sandbox.Policy, _ sandbox.Command, _ sandbox.Streams) (sandbox.Result, error) {
		if p.Keep == nil || p.Keep.To == nil || p.Keep.Bytes != shells.MaxTmpBytes {
			t.Errorf("%+v", p.Keep)
		}
		return sandbox.Result{}, sandbox.ErrNotStarted
	}}
	for _, c := range []struct {
		box  sandbox.Sandbox
		says string
	}{{asks, "no bash"}, {sandbox.Refuse{}, "cannot isolate"}} {
		bash, err := bash(c.box, sandbox.Policy{}, store)
		b.must(err)
		b.tools["bash"] = bash
		_, err = bash.Run(t.Context(), b.env, encode(in{"command": "touch x"}))
		if e := tool.AsError(err); e.Code != toolyard.SetupRequired || !strings.Contains(e.Message, c.says) {
			t.Errorf("%s: %v", c.says, e)
		}
	}
	plain, err := bash(asks, sandbox.Policy{}, nil)
	b.must(err)
	if d := b.tools["bash"].Declaration; !d.Class.Remembers || plain.Class.Remembers ||
		!strings.Contains(d.Description, "one shell") || strings.Contains(plain.Description, "one shell") {
		t.Errorf("%+v\n%+v", d, plain.Declaration)
	}
}

// FuzzNote: whatever a command writes for its shell's note, the state stays in the workspace and within the limits, and
// the script that it makes sets those variables and no others.
func FuzzNote(f *testing.F) {
	for _, seed := range []string{"/ws\x00/ws/a\x00A=b\x00", "/ws/a\x00", "/etc\x00\x00PATH=/x\x00LD_PRELOAD='\x00", "",
		"../x\x00", "/ws/../etc\x00", "/ws/a\x00/ws\x00A='; touch x; '\x00BASH_FUNC_x%%=() { :; }\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, note string) {
		s, _ := readNote(note, "/ws", []string{"GIVEN=1"})
		for _, dir := range []string{s.Dir, s.Before} {
			if dir != "" && !filepath.IsLocal(dir) {
				t.Errorf("%q leads to %q", note, dir)
			}
		}
		for name, value := range s.Env {
			if !shells.Lasts(name) || strings.Contains(value, "\x00") || name+"="+value == "GIVEN=1" {
				t.Errorf("%q=%q lasts", name, value)
			}
			script := string(startScript("/ws", s, s.Env))
			word, found := strings.CutPrefix(shell.Quote(value), "'")
			word, closed := strings.CutSuffix(word, "'")
			pieces := strings.Split(word, `'\''`)
			if !found || !closed || strings.Contains(strings.Join(pieces, ""), "'") ||
				strings.Join(pieces, "'") != value || !strings.Contains(script,
				"export "+name+"="+shell.Quote(value)+"\n") {
				t.Errorf("%q is set by %q", value, script)
			}
		}
	})
}
