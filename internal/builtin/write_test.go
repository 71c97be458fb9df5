//go:build unix

package builtin

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/tool"
)

// names are all names in the workspace.
func (b *bench) names() string {
	b.Helper()
	var names []string
	b.must(fs.WalkDir(os.DirFS(b.env.WorkspaceDir), ".", func(path string, _ fs.DirEntry, err error) error {
		names = append(names, path)
		return err
	}))
	return strings.Join(names, " ")
}

func (b *bench) run(name string, input in) error {
	_, err := b.tools[name].Run(b.Context(), b.env, encode(input))
	return err
}

func TestWriteFile(t *testing.T) {
	b := newBench(t)
	if got := b.ok("write_file", in{"file_path": "a/b/c.txt",
		"content": "one\n"}); got != "Created a/b/c.txt (4 bytes)." {
		t.Error(got)
	}
	if got := b.content("a/b/c.txt"); got != "one\n" {
		t.Errorf("content %q", got)
	}
	b.must(os.Chmod(b.at("a/b/c.txt"), 0o751))
	if got := b.ok("write_file", in{"file_path": b.at("a/b/c.txt"),
		"content": ""}); got != "Overwrote a/b/c.txt (0 bytes)." {
		t.Error(got)
	}
	info, err := os.Stat(b.at("a/b/c.txt"))
	b.must(err)
	if info.Mode().Perm() != 0o751 || info.Size() != 0 {
		t.Errorf("mode %v, %d bytes", info.Mode(), info.Size())
	}
	// A new file gets the mode that the umask leaves it, like one of the worker's own.
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	b.ok("write_file", in{"file_path": "new", "content": "x"})
	if info, err = os.Stat(b.at("new")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("a new file: %v, %v", info.Mode(), err)
	}
	// A link that stays inside is written through, and stays a link.
	b.link("a/b/c.txt", "to-c")
	b.link("a/fresh", "to-fresh")
	b.ok("write_file", in{"file_path": "to-c", "content": "through"})
	b.ok("write_file", in{"file_path": "to-fresh", "content": "made"})
	for name, want := range map[string]string{"a/b/c.txt": "through", "a/fresh": "made"} {
		if got := b.content(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if info, err := os.Lstat(b.at("to-c")); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link became %v, %v", info.Mode(), err)
	}
	if got := b.names(); got != ". a a/b a/b/c.txt a/fresh new to-c to-fresh" {
		t.Errorf("the workspace holds %s", got)
	}
	b.refused(toolyard.InvalidArguments, "write_file", in{"file_path": "big",
		"content": strings.Repeat("x", MaxWriteBytes+1)})
	b.refused(toolyard.InvalidArguments, "write_file", in{"file_path": "dir/", "content": "x"})
	b.refused(toolyard.SandboxViolation, "write_file", in{"file_path": "../dir/", "content": "x"})
	b.refused(toolyard.InvalidArguments, "write_file", in{"file_path": "new/x", "content": "x"})
}

// TestNothingIsLeftOfAWriteThatFails lets each write fail at its commit point, and at a canceled context.
func TestNothingIsLeftOfAWriteThatFails(t *testing.T) {
	b := newBench(t)
	b.put("old.txt", "old content\n")
	b.put("dir/kept", "")
	before := b.names()
	lapsed := errors.New("the lease lapsed")
	calls := map[string][]in{
		"write_file": {{"file_path": "old.txt", "content": "new"}, {"file_path": "new.txt", "content": "new"},
			{"file_path": "x/y/z/new.txt", "content": "new"},
			{"file_path": "dir/sub/new.txt", "content": "new"}},
		"edit_file": {{"file_path": "old.txt", "old_string": "old", "new_string": "new"}},
	}
	for name, inputs := range calls {
		for _, input := range inputs {
			atCommit := ""
			b.env.CommitPoint = func() error { atCommit = b.names(); return lapsed }
			if err := b.run(name, input); !errors.Is(err, lapsed) {
				t.Errorf("%s %v: %v", name, input, err)
			}
			if !strings.Contains(atCommit, ".toolyard-") {
				t.Errorf("%s %v: no temporary file at the commit point: the test proves nothing", name, input)
			}
			b.env.CommitPoint = func() error { t.Error("asked though the call was canceled"); return nil }
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(lapsed)
			if _, err := b.tools[name].Run(ctx, b.env, encode(input)); !errors.Is(err, lapsed) {
				t.Errorf("%s %v, canceled: %v", name, input, err)
			}
			if got := b.names(); got != before {
				t.Errorf("%s %v left %s, want %s", name, input, got, before)
			}
			if got := b.content("old.txt"); got != "old content\n" {
				t.Errorf("%s %v: the file is %q", name, input, got)
			}
		}
	}
}

// TestDirectoriesThatOtherWritesNeed: calls with named locks write beside one another, in directories that more than
// one of them makes or needs. One that fails takes away what it has made itself, and the others make that again.
func TestDirectoriesThatOtherWritesNeed(t *testing.T) {
	lapsed := errors.New("the lease lapsed")
	for _, c := range []struct {
		what           string
		before, during func(b *bench)
		fails          bool
		want           string
	}{
		{"another one makes it first", nil, func(b *bench) { b.must(os.Mkdir(b.at("a"), 0o755)) }, true, ". a"},
		{"another one makes a part of it", nil, func(b *bench) { b.must(os.MkdirAll(b.at("a/b"), 0o755)) }, true,
			". a a/b"},
		{"another one writes into it", nil, func(b *bench) { b.put("a/b/c/other", "") }, true,
			". a a/b a/b/c a/b/c/other"},
		{"nobody else needs it", nil, func(*bench) {}, true, "."},
		{"it was there", func(b *bench) { b.must(os.MkdirAll(b.at("a/b"), 0o755)) }, func(*bench) {}, true, ". a a/b"},
		{"another one fails", func(b *bench) { b.must(os.MkdirAll(b.at("a/b/c"), 0o755)) },
			func(b *bench) { b.must(os.RemoveAll(b.at("a"))) }, false, ". a a/b a/b/c a/b/c/f"},
		{"another one fails, and then this one", func(b *bench) { b.must(os.MkdirAll(b.at("a/b"), 0o755)) },
			func(b *bench) { b.must(os.RemoveAll(b.at("a"))) }, true, "."},
	} {
		b := newBench(t)
		if c.before != nil {
			c.before(b)
		}
		w, err := openWorkspace(b.env)
		b.must(err)
		defer w.close()
		found, err := w.planWrite(writeFileInput{FilePath: "a/b/c/f"})
		b.must(err)
		c.during(b)
		if b.env.CommitPoint = func() error { return nil }; c.fails {
			b.env.CommitPoint = func() error { return lapsed }
		}
		err = w.replace(t.Context(), b.env, found, []byte("x"), func() error { return nil })
		if names := b.names(); (err == nil) == c.fails || c.fails && !errors.Is(err, lapsed) || names != c.want {
			t.Errorf("%s: the workspace has %s, want %s; %v", c.what, names, c.want, err)
		}
		if err != nil && strings.Contains(err.Error(), "clean up") {
			t.Errorf("%s: what others need is called left over: %v", c.what, err)
		}
	}
}

// TestAFileThatChangesUnderAWrite changes the file after it was looked at, right before the rename.
func TestAFileThatChangesUnderAWrite(t *testing.T) {
	b := newBench(t)
	for name, swap := range map[string]func(){
		"a later write": func() { b.put("f", "theirs, longer\n") },
		"a later write of as many bytes that keeps the time": func() {
			info, err := os.Stat(b.at("f"))
			b.must(err)
			b.put("f", "ours is old\n")
			b.must(os.Chtimes(b.at("f"), info.ModTime(), info.ModTime()))
		},
		"another file": func() { b.put("g", "mine is old\n"); b.must(os.Rename(b.at("g"), b.at("f"))) },
		"gone":         func() { b.must(os.Remove(b.at("f"))) },
		"a FIFO":       func() { b.must(os.Remove(b.at("f"))); b.must(syscall.Mkfifo(b.at("f"), 0o644)) },
		"a link out": func() {
			b.must(os.Remove(b.at("f")))
			b.link(filepath.Join(b.outside, "secret"), "f")
		},
	} {
		b.must(os.RemoveAll(b.at("f")))
		b.put("f", "mine is old\n")
		w, err := openWorkspace(b.env)
		b.must(err)
		p, err := w.planEdit(t.Context(), editFileInput{FilePath: "f", OldString: "old", NewString: "new"})
		b.must(err)
		swap()
		err = w.replace(t.Context(), b.env, p.target, []byte(p.content), w.sameAs(t.Context(), p))
		if e := tool.AsError(err); err == nil || e.Code == toolyard.ExecutionFailed && !e.Retryable {
			t.Errorf("%s: %v", name, err)
		}
		w.close()
		if names := b.names(); strings.Contains(names, ".toolyard-") {
			t.Errorf("%s: left %s", name, names)
		}
	}
	if data, err := os.ReadFile(filepath.Join(b.outside, "secret")); err != nil || string(data) != "TOP SECRET\n" {
		t.Errorf("the file outside is %q, %v", data, err)
	}
}

// TestReadersSeeNoPart reads while a file is written over and over.
func TestReadersSeeNoPart(t *testing.T) {
	b := newBench(t)
	full := map[string]bool{strings.Repeat("a", 5000) + "\n": true, strings.Repeat("b", 3000) + "\n": true}
	write := func() {
		for content := range full {
			b.ok("write_file", in{"file_path": "f", "content": content})
		}
	}
	write()
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if data, err := os.ReadFile(b.at("f")); err != nil || !full[string(data)] {
				t.Errorf("a reader saw %d bytes, %v", len(data), err)
				return
			}
		}
	})
	for range 20 {
		write()
	}
	close(done)
	wg.Wait()
}

func TestEditFile(t *testing.T) {
	b := newBench(t)
	const old = "func a() {\n\treturn 1\n}\n\nfunc b() {\n\treturn 1\n}\n"
	edit := func(oldString, newString string, all bool) in {
		return in{"file_path": "f.go", "old_string": oldString, "new_string": newString, "replace_all": all}
	}
	for _, c := range []struct {
		input         in
		content, said string
	}{
		{edit("func a() {\n\treturn 1", "func a() {\n\treturn 2", false), strings.Replace(old, "1", "2", 1),
			"Edited f.go at line 1."},
		{edit("func b", "func c", false), strings.Replace(old, "func b", "func c", 1), "Edited f.go at line 5."},
		{edit("return 1", "return", true), strings.ReplaceAll(old, "return 1", "return"),
			"Edited f.go in 2 places, the first at line 2."},
		{edit("\n\nfunc b() {\n\treturn 1\n}", "", false), "func a() {\n\treturn 1\n}\n", "Edited f.go at line 3."},
	} {
		b.put("f.go", old)
		if got := b.ok("edit_file", c.input); got != c.said {
			t.Errorf("%v: said %q, want %q", c.input, got, c.said)
		}
		if got := b.content("f.go"); got != c.content {
			t.Errorf("%v: the file is\n%s", c.input, got)
		}
	}
	b.put("f.go", old)
	for _, c := range []struct {
		input in
		parts []string
	}{
		{edit("", "x", false), []string{"old_string is empty"}},
		{edit("func a", "func a", false), []string{"are the same"}},
		{edit("return 1", "return 2", false), []string{"2 times (lines 2, 6)", "replace_all"}},
		{edit("\n", "", false), []string{"7 times (lines 1, 2, 3, 4, 5, 6, 7)"}},
		{edit("func a() {\n    return 1\n}", "x", false),
			[]string{"other white space is in lines 1 to 3", `2: \treturn 1`}},
		{edit("  return 1  ", "x", false), []string{"other white space is in lines 2 to 2", `2: \treturn 1`}},
		{edit("1\tfunc a() {\n2\t\treturn 1", "x", false), []string{"line numbers of read_file"}},
		{edit("func aa() {", "x", false), []string{"most like it", "1: func a() {"}},
		{edit("zzzzzzzzzzz", "x", false), []string{"nor is anything like it"}},
	} {
		b.contains(b.refused(toolyard.InvalidArguments, "edit_file", c.input), c.parts...)
	}
	if got := b.content("f.go"); got != old {
		t.Errorf("a refused edit changed the file: %q", got)
	}
	b.put("f.go", "one\r\ntwo\r\n")
	b.contains(b.refused(toolyard.InvalidArguments, "edit_file", edit("one\ntwo", "x", false)), `end in \r\n`)
	b.ok("edit_file", edit("one\r\ntwo", "x", false))
	b.put("f.go", "aaa")
	b.contains(b.refused(toolyard.InvalidArguments, "edit_file", edit("aa", "b", false)), "2 times") // they overlap
	b.put("f.go", strings.Repeat("a\n", 50))
	b.contains(b.refused(toolyard.InvalidArguments, "edit_file", edit("a", "b", false)), "more than 10 times",
		"9, 10, ...")
	b.put("f.go", strings.Repeat("a", 1000))
	b.contains(b.refused(toolyard.InvalidArguments, "edit_file", edit("a", strings.Repeat("b", 20_000), true)),
		"after the edit")
	b.put("f.go", "a\x00b")
	b.contains(b.refused(toolyard.InvalidArguments, "edit_file", edit("a", "b", false)), "binary")
	b.put("f.go", strings.Repeat("word\n", MaxNearBytes/5+1))
	b.contains(b.refused(toolyard.InvalidArguments, "edit_file", edit("absent", "b", false)), "too large to look for")
}

// TestAnEditOfManyLinesIsSoonRefused: to look for text like old_string takes no time that grows with the product of two
// lengths. It took minutes here.
func TestAnEditOfManyLinesIsSoonRefused(t *testing.T) {
	b := newBench(t)
	b.put("f", strings.Repeat("\n", 400_000))
	b.contains(b.refused(toolyard.InvalidArguments, "edit_file", in{"file_path": "f", "new_string": "y",
		"old_string": strings.Repeat(" \n", 200_000) + "x"}), "nor is anything like it")
}

// TestWritesThroughLinksIntoProtectedPlaces: the permission was given for the path as written, and not for where a link
// leads.
func TestWritesThroughLinksIntoProtectedPlaces(t *testing.T) {
	b := newBench(t)
	for _, dir := range []string{".vscode", ".git/hooks", "docs"} {
		b.must(os.MkdirAll(b.at(dir), 0o755))
	}
	b.put(".vscode/tasks.json", "x\n")
	for link, to := range map[string]string{"docs/code": "../.vscode", "docs/tasks": "../.vscode/tasks.json",
		"docs/new": "../.vscode/new.json", "docs/hooks": b.at(".git/hooks"), "docs/head": "../HEAD",
		"docs/fine": "../docs"} {
		b.must(os.Symlink(to, b.at(link)))
	}
	for _, path := range []string{"docs/code/tasks.json", "docs/code/new", "docs/tasks", "docs/new",
		"docs/hooks/pre-commit", "docs/head", b.at("docs/tasks")} {
		b.contains(b.refused(toolyard.SandboxViolation, "write_file", in{"file_path": path, "content": "owned"}),
			"protected")
	}
	b.contains(b.refused(toolyard.SandboxViolation, "edit_file",
		in{"file_path": "docs/tasks", "old_string": "x", "new_string": "y"}), "protected")
	// The path itself was judged by permission, and other links are followed.
	b.run("write_file", in{"file_path": ".vscode/tasks.json", "content": "y"})
	b.run("write_file", in{"file_path": "docs/fine/a.md", "content": "y"})
}

// TestNamedLocksAndLinks: a call that holds only the lock of its path goes through no link to another file. Other
// spellings of the path are the same file.
func TestNamedLocksAndLinks(t *testing.T) {
	b := newBench(t)
	b.put("dir/real.txt", "one\n")
	b.link("real.txt", "dir/link.txt")
	b.link("dir", "other")
	locks := func(path string) {
		name, ok := registry.FileLock(path)
		if !ok {
			t.Fatal(path)
		}
		b.env.Locks = []tool.Lock{{Name: name}}
	}
	for _, path := range []string{"dir/link.txt", "other/real.txt", "other/new.txt"} {
		locks(path)
		for name, input := range map[string]in{
			"read_file":  {"file_path": path},
			"write_file": {"file_path": path, "content": "two\n"},
			"edit_file":  {"file_path": path, "old_string": "one", "new_string": "two"},
		} {
			err := b.run(name, input)
			if e, ok := errors.AsType[*tool.Error](err); !ok || e.Code != toolyard.InvalidArguments ||
				!strings.Contains(e.Message, "named locks; give the path dir/") {
				t.Errorf("%s of %s: %v", name, path, err)
			}
		}
	}
	if got := b.content("dir/real.txt"); got != "one\n" {
		t.Errorf("the file has %q", got)
	}
	locks("dir/real.txt")
	b.ok("write_file", in{"file_path": "./dir//real.txt", "content": "two\n"})
	b.ok("edit_file", in{"file_path": "dir/real.txt", "old_string": "two", "new_string": "three"})
	b.ok("read_file", in{"file_path": "dir/real.txt"})
	locks(".git/hooks/pre-commit")
	if err := b.run("write_file", in{"file_path": ".git/hooks/pre-commit", "content": ""}); err == nil ||
		!strings.Contains(err.Error(), "without named locks") {
		t.Errorf("a protected place: %v", err)
	}
	locks("new/file")
	b.ok("write_file", in{"file_path": "new/file", "content": ""})
	b.env.Locks = nil // the call has the whole workspace
	b.ok("write_file", in{"file_path": "dir/link.txt", "content": "four\n"})
}
