//go:build linux

package shells

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var key = Key{Agent: "ann", Session: "s", Workspace: "repo", Dir: "/ws"}

type bench struct {
	*testing.T
	*Store
}

func newBench(t *testing.T) *bench {
	return &bench{T: t, Store: New(filepath.Join(t.TempDir(), "shells"))}
}

func (b *bench) must(errs ...error) {
	b.Helper()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) open(k Key, changes bool) *Shell {
	b.Helper()
	sh, err := b.Open(b.Context(), k, "call a", changes)
	b.must(err)
	return sh
}

// change has a command leave a state, and text in the archive.
func (b *bench) change(k Key, state State, text string) {
	b.Helper()
	sh := b.open(k, true)
	_, err := io.WriteString(sh.To, text)
	b.must(err, sh.Commit(b.Context(), state, text != ""), sh.Close(Told))
}

// sees checks what the next command of a shell finds.
func (b *bench) sees(k Key, dir, tmp string, news ...string) {
	b.Helper()
	sh := b.open(k, false)
	got := ""
	if sh.From != nil {
		raw, err := io.ReadAll(sh.From)
		b.must(err)
		got = string(raw)
	}
	if sh.Dir != dir || got != tmp || len(sh.News) != len(news) {
		b.Errorf("in %q with %q and %q, want %q, %q and %q", sh.Dir, got, sh.News, dir, tmp, news)
	}
	for i := range min(len(news), len(sh.News)) {
		if !strings.Contains(sh.News[i], news[i]) {
			b.Errorf("told %q, want %q", sh.News[i], news[i])
		}
	}
	b.must(sh.Close(Told))
}

// age sets back when a shell was used last.
func (b *bench) age(k Key, by time.Duration) {
	b.Helper()
	at := time.Now().Add(-by)
	b.must(os.Chtimes(b.path(nameOf(k)+recordSuffix), at, at))
}

// files are the names in the store, without the lock.
func (b *bench) files() (names []string) {
	b.Helper()
	entries, err := os.ReadDir(b.dir)
	b.must(err)
	for _, d := range entries {
		if d.Name() != lockName {
			names = append(names, d.Name())
		}
	}
	return names
}

func TestAShellGoesOn(t *testing.T) {
	b := newBench(t)
	b.sees(key, "", "")
	b.change(key, State{Dir: "src", Env: map[string]string{"A": "1"}}, "one")
	b.sees(key, "src", "one")
	b.change(key, State{Dir: "src/lib"}, "") // with the archive of before
	b.sees(key, "src/lib", "one")
	b.change(key, State{}, "two")
	b.sees(key, "", "two")
	for _, other := range []Key{{Agent: "bob", Session: "s", Workspace: "repo", Dir: "/ws"},
		{Agent: "ann", Session: "t", Workspace: "repo", Dir: "/ws"},
		{Agent: "ann", Session: "s", Workspace: "x", Dir: "/ws"},
		{Agent: "ann", Session: "s", Workspace: "repo", Dir: "/other"}} {
		b.sees(other, "", "")
	}
	if names := b.files(); len(names) != 2 { // a record and its archive
		t.Errorf("left: %q", names)
	}
	info, err := os.Stat(b.dir)
	b.must(err)
	if info.Mode().Perm() != 0o700 {
		t.Errorf("others may look: %s", info.Mode())
	}
}

// TestWhatWasLostIsTold: a command that never ended leaves the shell as it was, and is named.
func TestWhatWasLostIsTold(t *testing.T) {
	b := newBench(t)
	b.change(key, State{Dir: "src"}, "one")
	lost := b.open(key, true)
	_, err := io.WriteString(lost.To, "half")
	b.must(err) // and its worker dies
	b.sees(key, "src", "one", "call a was stopped or lost while it ran")
	b.sees(key, "src", "one", "call a was stopped or lost while it ran") // a read does not take the news away
	b.must(lost.Close(Lost))
	next := b.open(key, true)
	if len(next.News) != 1 {
		t.Error(next.News)
	}
	b.must(next.Close(Unused)) // it did not start, and so nobody was told
	next = b.open(key, true)
	if len(next.News) != 1 || !strings.Contains(next.News[0], "call a was stopped or lost") {
		t.Error(next.News)
	}
	b.must(next.Close(Told))
	b.sees(key, "src", "one")
	b.must(b.open(key, true).Close(Unused))
	b.sees(key, "src", "one")
}

// TestAnAgentWithManyShellsEndsItsOwn: it ends none of an agent with fewer, whatever was idle for longer.
func TestAnAgentWithManyShellsEndsItsOwn(t *testing.T) {
	b := newBench(t)
	b.most = 3
	of := func(agent, session string) Key { return Key{Agent: agent, Session: session} }
	b.change(of("ann", "1"), State{}, "a1")
	b.age(of("ann", "1"), 3*time.Minute)
	for i, session := range []string{"1", "2"} {
		b.change(of("bob", session), State{}, "b"+session)
		b.age(of("bob", session), time.Duration(2-i)*time.Minute)
	}
	b.change(of("bob", "3"), State{}, "b3")
	b.sees(of("bob", "1"), "", "", endedRoom)
	b.sees(of("ann", "1"), "", "a1")
	b.change(of("ann", "2"), State{}, "a2") // both have two by then: its own goes
	b.sees(of("ann", "1"), "", "", endedRoom)
	b.change(of("cid", "1"), State{}, "c1")
	b.sees(of("bob", "2"), "", "", endedRoom)
	b.sees(of("cid", "1"), "", "c1")
}

// TestAShellInUseIsEndedLast: room is made by a shell that no command uses, also where it was used later.
func TestAShellInUseIsEndedLast(t *testing.T) {
	b := newBench(t)
	b.most = 2
	second, third := key, key
	second.Session, third.Session = "2", "3"
	b.change(key, State{Dir: "src"}, "one")
	b.change(second, State{}, "two")
	running := b.open(key, true)
	b.age(key, time.Minute)
	b.change(third, State{}, "three")
	b.must(running.Commit(t.Context(), State{Dir: "lib"}, false), running.Close(Told))
	b.sees(key, "lib", "one")
	b.sees(second, "", "", endedRoom)
}

// TestWhatWasKeptIsNotLost: a worker that dies behind the commit of a command has lost nothing of it.
func TestWhatWasKeptIsNotLost(t *testing.T) {
	b := newBench(t)
	sh := b.open(key, true)
	b.must(sh.Commit(t.Context(), State{Dir: "src"}, false)) // and its worker dies
	b.sees(key, "src", "")
	next := b.open(key, true)
	b.must(sh.Close(Told)) // it was not dead: it only took long, and another command runs
	b.sees(key, "src", "", "call a was stopped or lost while it ran")
	b.must(next.Close(Told))
}

func TestShellsEnd(t *testing.T) {
	b := newBench(t)
	b.change(key, State{Dir: "src"}, "one")
	b.age(key, MaxIdle+time.Minute)
	b.sees(key, "", "", "it is new: "+endedIdle)
	b.sees(key, "", "", "it is new: "+endedIdle)
	b.change(key, State{Dir: "a"}, "two")
	b.sees(key, "a", "two")

	b.most = 2
	second, third := key, key
	second.Session, third.Session = "2", "3" // of one agent
	b.age(key, time.Minute)
	b.change(second, State{}, "x")
	b.change(third, State{}, "y")
	b.sees(key, "", "", "it is new: "+endedRoom)
	b.sees(second, "", "x")
	b.change(second, State{}, "z") // one that is there needs no room
	b.sees(third, "", "y")

	for _, damage := range []string{"", "{", `{"dir":"../x"}`, `{"tmp":"../x"}`, `{"tmp":"gone"}`, `{"env":{"A=":"b"}}`,
		`{"env":{"PWD":"b"}}`, strings.Repeat(" ", maxRecord+1)} {
		b.must(os.WriteFile(b.path(nameOf(third)+recordSuffix), []byte(damage), 0o600))
		b.sees(third, "", "", "it is new: "+endedDamaged)
	}
	sh := b.open(second, true)
	b.must(sh.Damaged(t.Context()))
	b.sees(second, "", "", "it is new: "+endedDamaged)
}

func TestSweep(t *testing.T) {
	b := newBench(t)
	b.must(b.Sweep(t.Context())) // there is nothing yet
	other := key
	other.Session = "other"
	b.change(key, State{}, "one")
	b.change(other, State{}, "two")
	lost := b.open(other, true)
	b.age(key, MaxIdle+time.Minute)
	b.must(b.Sweep(t.Context()))
	if names := b.files(); len(names) != 5 { // two records, one archive, a command under way with an archive
		t.Errorf("%q", names)
	}
	b.sees(key, "", "", "it is new: "+endedIdle)
	old := time.Now().Add(-2 * max(orphanAge, b.idle))
	b.must(lost.close(), os.WriteFile(b.path("orphan"), nil, 0o600), os.Chtimes(b.path("orphan"), old, old),
		os.Chtimes(b.path(nameOf(other)+runningSuffix), old, old))
	b.age(key, MaxEndedAge+time.Minute)
	b.must(b.Sweep(t.Context()))
	if names := b.files(); len(names) != 2 {
		t.Errorf("%q", names)
	}
	b.sees(key, "", "")
	b.sees(other, "", "two")
}

func TestVariablesHaveLimits(t *testing.T) {
	many := State{Env: map[string]string{}}
	for i := range MaxVariables + 1 {
		many.Env[fmt.Sprintf("A%d", i)] = ""
	}
	long := State{Env: map[string]string{"A": strings.Repeat("x", MaxEnvBytes)}}
	for _, s := range []State{many, long, {Env: map[string]string{"BASH_FUNC_ls%%": "() { rm x; }"}},
		{Env: map[string]string{"A": "x\x00y"}}, {Env: map[string]string{"1A": "x"}}} {
		if s.Check() == nil {
			t.Errorf("taken: %d variables", len(s.Env))
		}
	}
	if err := (&State{Env: map[string]string{"PATH": "/x", "_a1": "y"}}).Check(); err != nil {
		t.Error(err)
	}
}

// FuzzRecord: whatever stands in a record, it is damaged or within the limits.
func FuzzRecord(f *testing.F) {
	for _, seed := range []string{`{"dir":"a/b","env":{"A":"b"},"tmp":"x.y"}`, `{"dir":"/a"}`, `{"tmp":"a/b"}`,
		`{"ended":"x"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var rec record
		if decode(raw, &rec) != nil {
			return
		}
		if rec.Dir != "" && !filepath.IsLocal(rec.Dir) || strings.ContainsAny(rec.Tmp, "/") ||
			len(rec.Env) > MaxVariables {
			t.Errorf("%+v", rec)
		}
		again, err := json.Marshal(rec)
		var same record
		if err == nil {
			err = decode(again, &same)
		}
		if err != nil {
			t.Errorf("%v: %s", err, again)
		}
	})
}
