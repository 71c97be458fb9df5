package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// overlay makes the overlay of a batch, and returns it as another workspace of the store.
func (y *yard) overlay(t *testing.T, k Key, ran ...int) *yard {
	t.Helper()
	over, err := y.store.Overlay(t.Context(), y.root, k, "w", ranBy("w", ran...))
	must.OK(t, err)
	must.OK(t, over.Close())
	return &yard{dir: over.Dir(), store: y.store}
}

// ranBy are groups whose calls a worker has claimed.
func ranBy(worker string, groups ...int) (ran []Ran) {
	for _, g := range groups {
		ran = append(ran, Ran{g, worker})
	}
	return ran
}

func (y *yard) commit(t *testing.T, w Commit) (*toolyard.Overlay, error) {
	t.Helper()
	return y.store.Commit(t.Context(), y.root, w)
}

// times and names of one inode are what a commit does not promise.
var notPromised = regexp.MustCompile(` time -?\d+| is .*`)

// promised is what a workspace is, as far as a commit promises it.
func (y *yard) promised(t *testing.T) map[string]string {
	t.Helper()
	all := y.look(t)
	for p, said := range all {
		all[p] = notPromised.ReplaceAllString(strings.ReplaceAll(said, "\n", " "), "")
	}
	return all
}

// TestWhateverHappensIsCommitted: random workspaces, random changes of an overlay, and a commit that is broken off at a
// random change and run again. Before the commit the workspace is as it was.
func TestWhateverHappensIsCommitted(t *testing.T) {
	const runs = 60
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	broken := errors.New("broken off")
	cut := 0
	for n := range runs {
		y := newYard(t)
		changes := func(dir string) {
			for range r.IntN(60) {
				must.OK(t, change(r, dir))
			}
		}
		changes(y.dir)
		before := y.look(t)
		k := key("b", 0)
		o := y.overlay(t, k)
		if same(t, o.promised(t), y.promised(t)); t.Failed() {
			t.Fatalf("seed %d, run %d: the copy differs", seed, n)
		}
		if c, err := y.store.Changes(t.Context(), y.root, k); err != nil || c.Added+c.Changed+c.Removed != 0 {
			t.Fatalf("seed %d, run %d: a new overlay: %v, %v", seed, n, c, err)
		}
		changes(o.dir)
		want := o.promised(t)
		same(t, y.look(t), before)
		left := r.IntN(20)
		w := Commit{Key: k, Act: func() error {
			if left--; left < 0 {
				return broken
			}
			return nil
		}}
		_, err := y.commit(t, w)
		if errors.Is(err, broken) {
			cut++
			if err := y.store.Drop(t.Context(), y.root, w); err == nil && left < -1 {
				t.Fatal("what is committed in part was dropped")
			}
			w.Act = nil
			_, err = y.commit(t, w)
		}
		if err != nil {
			t.Fatalf("seed %d, run %d: %v", seed, n, err)
		}
		if same(t, y.promised(t), want); t.Failed() {
			t.Fatalf("seed %d, run %d", seed, n)
		}
		if again, err := y.commit(t, w); err != nil || again == nil {
			t.Fatalf("again: %v, %v", again, err)
		}
		if _, err := os.Lstat(o.dir); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("the copy is left: %v", err)
		}
	}
	if cut == 0 || cut == runs {
		t.Errorf("%d of %d were broken off", cut, runs)
	}
}

// TestConflicts: names that others have changed since stay as they are, and with them all others, unless by force.
func TestConflicts(t *testing.T) {
	do := func(y *yard, line string) {
		t.Helper()
		f := strings.Fields(line)
		var err error
		switch f[0] {
		case "write":
			if err = os.MkdirAll(filepath.Dir(y.at(f[1])), 0o755); err == nil {
				err = os.WriteFile(y.at(f[1]), []byte(f[2]), 0o644)
			}
		case "remove":
			err = os.RemoveAll(y.at(f[1]))
		case "chmod":
			err = os.Chmod(y.at(f[1]), 0o700)
		case "open":
			err = os.Chmod(y.at(f[1]), 0o750)
		case "give":
			var uid int
			if uid, err = strconv.Atoi(f[2]); err == nil {
				err = os.Chown(y.at(f[1]), uid, uid)
			}
		case "mkdir":
			err = os.Mkdir(y.at(f[1]), 0o755)
		}
		if err != nil {
			t.Fatal(line, err)
		}
	}
	for _, c := range []struct{ theirs, others, names string }{
		{"write a x", "write other x", ""},
		{"write a x", "write a y", `["a"]`},
		{"write a x", "write a x", ""}, // both wrote the same
		{"write a x", "remove a", `["a"]`},
		{"write a x", "chmod a", `["a"]`},
		{"remove a", "write a y", `["a"]`},
		{"remove a", "remove a", ""},
		{"write new x", "write new y", `["new"]`},
		{"write new x", "write new x", ""},
		{"write new x", "mkdir new", `["new"]`},
		{"remove d", "write d/new x", `["d/new"]`},
		{"remove d", "write d/f x", `["d/f"]`},
		{"write d/new x", "remove d", `["d/new"]`},
		{"write d/new x", "write d/f x", ""},
		{"write d/deep/new x", "remove d", `["d/deep"]`},
		{"chmod a", "chmod a", ""},
		{"chmod a", "open a", `["a"]`},
		{"chmod d", "chmod d", ""},
		{"chmod d", "open d", `["d"]`},
		{"chmod d", "remove d", `["d"]`},
		{"write secret x", "write secret y", ""},
		{"give a 1", "give a 1", ""},
		{"give a 1", "give a 2", `["a"]`},
	} {
		if strings.HasPrefix(c.theirs, "give") && os.Geteuid() != 0 {
			continue // only root may
		}
		y := newYard(t)
		for _, name := range []string{"a", "d/f", "secret"} {
			y.write(t, name, "before")
		}
		w := Commit{Key: key("b", 0), Hidden: func(p string) bool { return p == "secret" }}
		o := y.overlay(t, w.Key)
		do(o, c.theirs)
		do(y, c.others)
		before, want := y.look(t), o.promised(t)
		_, err := y.commit(t, w)
		if c.names == "" && !strings.Contains(c.theirs, "secret") {
			if err != nil {
				t.Errorf("%s, %s: %v", c.theirs, c.others, err)
			}
			continue
		}
		said, ok := errors.AsType[*tool.Error](err)
		if !ok || said.Code != toolyard.ExecutionFailed || c.names != "" && !strings.Contains(said.Message, c.names) ||
			strings.Contains(said.Message, "secret") {
			t.Errorf("%s, %s: %v, want %s", c.theirs, c.others, err, c.names)
			continue
		}
		same(t, y.look(t), before)
		w.Force = true
		if _, err := y.commit(t, w); err != nil {
			t.Errorf("%s, %s by force: %v", c.theirs, c.others, err)
			continue
		}
		got := y.promised(t)
		name := "/" + strings.Fields(c.theirs)[1]
		for p, is := range want {
			if strings.HasPrefix(c.theirs, "write") && strings.HasPrefix(p, name) && got[p] != is {
				t.Errorf("%s, %s by force: %q is %q, want %q", c.theirs, c.others, p, got[p], is)
			}
		}
		if got[name] != want[name] {
			t.Errorf("%s, %s by force: %q, want %q", c.theirs, c.others, got[name], want[name])
		}
	}
}

// TestWorkersThatShareNoOverlay: a call does not run where the effects of earlier ones are not seen.
func TestWorkersThatShareNoOverlay(t *testing.T) {
	y := newYard(t)
	y.write(t, "a", "x")
	k := key("b", 1)
	if _, err := y.store.Overlay(t.Context(), y.root, k, "w", ranBy("w", 0)); err == nil ||
		!strings.Contains(err.Error(), "does not see") {
		t.Errorf("group 0 ran elsewhere: %v", err)
	}
	k.Group = 0
	y.overlay(t, k)
	k.Group = 2
	o := y.overlay(t, k, 0)
	if _, err := y.store.Overlay(t.Context(), y.root, k, "", ranBy("w", 0, 1)); err == nil {
		t.Error("group 1 ran elsewhere")
	}
	y.write(t, "a", "changed")
	if content, err := os.ReadFile(o.at("a")); err != nil || string(content) != "x" {
		t.Errorf("%q, %v", content, err)
	}
}

// TestACopyOfNoRun: a worker that gets a call which another one has, or which has ended, makes a copy for it, and the
// call does not run there. That is not the overlay of the batch: no later call runs on it, and nobody commits or drops
// it in the place of the other.
func TestACopyOfNoRun(t *testing.T) {
	y := newYard(t)
	y.write(t, "a", "x")
	k := key("b", 0)
	y.overlay(t, k) // by w, and another worker has claimed the call
	k.Group = 1
	if _, err := y.store.Overlay(t.Context(), y.root, k, "w", ranBy("other", 0)); err == nil ||
		!strings.Contains(err.Error(), "does not see") {
		t.Errorf("a later call runs: %v", err)
	}
	w := Commit{Key: k, Ran: ranBy("other", 0)}
	_, committed := y.commit(t, w)
	_, _, shown := y.store.Diff(t.Context(), y.root, w, nil)
	for _, err := range []error{committed, shown, y.store.Drop(t.Context(), y.root, w)} {
		if err == nil || !strings.Contains(err.Error(), "sees no overlay") {
			t.Errorf("it is used: %v", err)
		}
	}
	w.Ran = ranBy("", 0) // an older dispatcher does not say who
	if _, err := y.commit(t, w); err != nil {
		t.Error(err)
	}
}

// TestAnOverlayInQuarantine: it is looked at, and dropped, and not committed.
func TestAnOverlayInQuarantine(t *testing.T) {
	y := newYard(t)
	y.write(t, "a", "x")
	w := Commit{Key: key("b", 0), Force: true, Recover: func(_ context.Context, root *place.Root) error {
		return root.Quarantine(place.Quarantine{Why: "a command left .vscode", Places: []string{".vscode"}})
	}}
	o := y.overlay(t, w.Key)
	o.write(t, "a", "y")
	before := y.look(t)
	var refused *tool.Error
	if _, err := y.commit(t, w); !errors.As(err, &refused) || refused.Code != toolyard.SandboxViolation {
		t.Errorf("%v", err)
	}
	same(t, y.look(t), before)
	if changes, _, err := y.store.Diff(t.Context(), y.root, w, nil); err != nil || changes.Changed != 1 {
		t.Errorf("%v, %v", changes, err)
	}
	must.OK(t, y.store.Drop(t.Context(), y.root, w))
}

// TestWhatGitRunsByNow: where the workspace's git looks since the overlay was made, the overlay's commands could write,
// so nothing is committed there, by force neither. What was protected in the overlay too is committed.
func TestWhatGitRunsByNow(t *testing.T) {
	for _, c := range []struct{ name, before, since, writes, link, names string }{
		{"hooks", "", "[core]\n\thooksPath = tools/hooks\n", "tools/hooks/pre-commit", "", `"tools/hooks`},
		{"an include", "", "[include]\n\tpath = ../conf\n", "conf", "", `"conf"`},
		{"a program", "", "[filter \"x\"]\n\tclean = ./bin/clean\n", "bin/clean", "", `"bin/clean"`},
		{"through a link", "", "[core]\n\thooksPath = lead\n", "led/pre-commit", "", `"led/pre-commit"`},
		{"a link on the way", "", "[core]\n\thooksPath = deep/hooks\n", "x/hooks/pre-commit", "deep", `"deep"`},
		{"somewhere else", "", "[core]\n\thooksPath = tools/hooks\n", "tools/other", "", ""},
		{"protected before", "[core]\n\thooksPath = hooks\n", "[core]\n\thooksPath = hooks\n", "hooks/x", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			y := newYard(t)
			y.write(t, ".git/HEAD", "ref: refs/heads/main\n")
			y.write(t, ".git/config", c.before)
			y.write(t, "led/a", "x")
			must.OK(t, os.Symlink("led", y.at("lead")))
			w := Commit{Key: key("b", 0), Force: true}
			o := y.overlay(t, w.Key)
			o.write(t, c.writes, "evil")
			if c.link != "" {
				must.OK(t, os.Symlink("x", o.at(c.link)))
			}
			y.write(t, ".git/config", c.since)
			before := y.look(t)
			_, err := y.commit(t, w)
			if c.names == "" {
				must.OK(t, err)
				return
			}
			var refused *tool.Error
			if !errors.As(err, &refused) || refused.Code != toolyard.SandboxViolation ||
				!strings.Contains(refused.Message, c.names) {
				t.Errorf("%v", err)
			}
			same(t, y.look(t), before)
			y.write(t, ".git/config", "")
			_, err = y.commit(t, w)
			must.OK(t, err)
		})
	}
}

// TestDrop: a dropped overlay changes nothing, is gone, and is not made again.
func TestDrop(t *testing.T) {
	y := newYard(t)
	y.write(t, "a", "x")
	w := Commit{Key: key("b", 0)}
	if err := y.store.Drop(t.Context(), y.root, w); err == nil || !strings.Contains(err.Error(), "sees no overlay") {
		t.Errorf("none is there: %v", err)
	}
	o := y.overlay(t, w.Key)
	o.write(t, "a", "y")
	before := y.look(t)
	for range 2 {
		must.OK(t, y.store.Drop(t.Context(), y.root, w))
	}
	same(t, y.look(t), before)
	if _, err := y.commit(t, w); err == nil || !strings.Contains(err.Error(), "dropped already") {
		t.Errorf("%v", err)
	}
	if _, err := y.store.Overlay(t.Context(), y.root, w.Key, "w", nil); err == nil {
		t.Error("it was made again")
	}
	if err := y.store.Sweep(t.Context()); err != nil || y.objects(t) != 0 {
		t.Errorf("%d objects are left, %v", y.objects(t), err)
	}
}

// TestOverlaysAreBounded: in number, and in time.
func TestOverlaysAreBounded(t *testing.T) {
	y := newYard(t)
	y.write(t, "closed/f", "x")
	var last *yard
	for i := range MaxOverlays {
		last = y.overlay(t, key(fmt.Sprint(i), 0))
	}
	_, err := y.store.Overlay(t.Context(), y.root, key("more", 0), "w", nil)
	if said, ok := errors.AsType[*tool.Error](err); !ok || said.Code != toolyard.SetupRequired ||
		!strings.Contains(said.Message, "commit or drop some") {
		t.Errorf("%v", err)
	}
	y.overlay(t, key("0", 1), 0) // one that stands
	must.OK(t, os.Chmod(last.at("closed"), 0o500))
	old := time.Now().Add(-2 * lifetime)
	for i := range MaxOverlays {
		k := key(fmt.Sprint(i), 0)
		for _, kind := range []string{base, made} {
			must.OK(t, os.Chtimes(filepath.Join(y.home(t), k.listingName(kind)), old, old))
		}
	}
	must.OK(t, y.store.Sweep(t.Context()))
	if n := y.names(t); n != 0 {
		t.Errorf("%d names are left", n)
	}
	y.store.limits.MustFree = 1 << 60
	if _, err := y.store.Overlay(t.Context(), y.root, key("full", 0), "w", nil); err == nil ||
		!strings.Contains(err.Error(), "no room left") {
		t.Errorf("%v", err)
	}
}

// TestCommitInClosedDirectories: modes that keep the owner out stop no commit, and stay.
func TestCommitInClosedDirectories(t *testing.T) {
	y := newYard(t)
	y.write(t, "closed/f", "before")
	y.write(t, "closed/gone", "before")
	must.OK(t, os.Chmod(y.at("closed"), 0o500))
	w := Commit{Key: key("b", 0)}
	var want map[string]string
	err := y.asAnother(t, func() error {
		over, err := y.store.Overlay(t.Context(), y.root, w.Key, "w", nil)
		if err != nil {
			return err
		}
		if err := over.Close(); err != nil {
			return err
		}
		o := &yard{dir: over.Dir()}
		err = errors.Join(os.Chmod(o.at("closed"), 0o700), os.WriteFile(o.at("closed", "f"), []byte("after"), 0o644),
			os.Remove(o.at("closed", "gone")), os.WriteFile(o.at("closed", "new"), []byte("new"), 0o600),
			os.Chmod(o.at("closed"), 0o500))
		if err != nil {
			return err
		}
		want = o.promised(t)
		_, err = y.store.Commit(t.Context(), y.root, w)
		return err
	})
	must.OK(t, err)
	same(t, y.promised(t), want)
}

// TestDiff: the diff names what there is to commit, and is bounded.
func TestDiff(t *testing.T) {
	y := newYard(t)
	y.write(t, "text", "one\n")
	y.write(t, "gone", "was\n")
	y.write(t, "secret", "s1\n")
	y.write(t, "touched", "same\n")
	w := Commit{Key: key("b", 0), Hidden: func(p string) bool { return p == "secret" }}
	o := y.overlay(t, w.Key)
	o.write(t, "text", "two\n")
	o.write(t, "secret", "s2\n")
	o.write(t, "touched", "same\n")
	o.write(t, "big", strings.Repeat("x", maxComparedBytes+1))
	o.write(t, "new/empty", "")
	must.OK(t, errors.Join(os.Remove(o.at("gone")), os.Symlink("/etc/passwd", o.at("link"))))
	differ := func(name string, before, after []byte) (string, string) {
		return fmt.Sprintf("%s: %q %v %q %v\n", name, before, before == nil, after, after == nil), ""
	}
	sum, text, err := y.store.Diff(t.Context(), y.root, w, differ)
	must.OK(t, err)
	const want = `The overlay changes 6 names: 4 added, 1 changed, 1 removed.
added "big" (too long to be compared)
removed "gone"
gone: "was\n" false "" true
added "link" (symbolic link to "/etc/passwd", mode 0777)
added "new" (directory, mode 0755)
added "new/empty"
new/empty: "" true "" false
changed "text"
text: "one\n" false "two\n" false
`
	if text != want || len(sum.Paths) != 6 || sum.Added != 4 {
		t.Errorf("%+v\n%s\nwant\n%s", sum, text, want)
	}
	for i := range MaxDiffs + toolyard.MaxOverlayPaths {
		o.write(t, fmt.Sprintf("z%03d", i), "x")
	}
	sum, text, err = y.store.Diff(t.Context(), y.root, w, differ)
	if err != nil || len(sum.Paths) != toolyard.MaxOverlayPaths ||
		!strings.HasSuffix(text, fmt.Sprintf("%d more names are not shown.\n", 6+toolyard.MaxOverlayPaths)) {
		t.Errorf("%d paths, %v\n%s", len(sum.Paths), err, text)
	}
}
