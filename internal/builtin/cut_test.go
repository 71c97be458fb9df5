//go:build unix

package builtin

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestAWalkThatIsCutSaysSo: a directory of which not all entries were read is not called whole, also if some of what
// was read is hidden, and if nothing is looked at behind it.
func TestAWalkThatIsCutSaysSo(t *testing.T) {
	b := newBench(t)
	const files, budget = 1_500, 600 // a directory is read in parts of 512
	for n := range files {
		b.put(fmt.Sprintf("many/%04d.%s", n, []string{"log", "txt"}[n%2]), "hit\n")
	}
	all := func(string) bool { return false }
	logs := func(p string) bool { return path.Ext(p) == ".log" }
	for what, hides := range map[string]func(string) bool{"nothing": nil, "no file": all, "half": logs} {
		w, err := openWorkspace(b.env)
		b.must(err)
		defer w.close()
		w.hides = hides
		for _, c := range []struct {
			left int
			cut  bool
		}{{budget, true}, {2 * files, false}} {
			walk := &countedFS{ctx: t.Context(), w: w, base: "many", left: c.left, progress: b.env.Progress}
			entries, err := walk.ReadDir(".")
			b.must(err)
			if walk.cut != c.cut {
				t.Errorf("%s is hidden, %d entries may be read, %d are shown: cut is %v", what, c.left, len(entries),
					walk.cut)
			}
			if _, err := walk.ReadDir("."); c.cut && !errors.Is(err, errWalkLimit) {
				t.Errorf("%s is hidden: a walk that is cut goes on: %v", what, err)
			}
			s := &search{grepPlan: grepPlan{re: regexp.MustCompile("hit")}, left: MaxGrepBytes}
			walk = &countedFS{ctx: t.Context(), w: w, base: "many", left: c.left, progress: b.env.Progress}
			if err := walk.ended(s.walk(walk, ".")); errors.Is(err, errWalkLimit) != c.cut {
				t.Errorf("%s is hidden, %d entries may be read: the search says %v", what, c.left, err)
			}
		}
	}
	walk := &countedFS{ctx: context.Background(), cut: true}
	if out := globAnswer("x", nil, walk, walk.ended(nil) != nil); !strings.Contains(out, "there may be more") {
		t.Errorf("the answer of a walk that was cut: %s", out)
	}
}

// TestAWalkCountsWhatItDoesNotShow: a walk reads at most so many entries, also if most of them are hidden or in .git.
func TestAWalkCountsWhatItDoesNotShow(t *testing.T) {
	b := newBench(t)
	const dirs, files, budget = 10, 10, 1 + 10 + 4*(1+10) // four directories
	for n := range dirs * files {
		b.put(fmt.Sprintf("many/%d/%d.log", n/files, n%files), "hit\n")
	}
	for what, c := range map[string]struct {
		hides func(string) bool
		files int // that are searched
	}{
		"all is hidden":     {func(p string) bool { return path.Ext(p) == ".log" }, 0},
		"half is hidden":    {func(p string) bool { return path.Ext(p) == ".log" && path.Base(p) < "5" }, 20},
		"nothing is hidden": {nil, 40},
		"nothing matches":   {func(string) bool { return false }, 40},
	} {
		w, err := openWorkspace(b.env)
		b.must(err)
		defer w.close()
		w.hides = c.hides
		s := &search{grepPlan: grepPlan{re: regexp.MustCompile("hit")}, left: MaxGrepBytes}
		walk := &countedFS{ctx: t.Context(), w: w, base: "many", left: budget, progress: b.env.Progress}
		if err := walk.ended(s.walk(walk, ".")); !errors.Is(err, errWalkLimit) || s.searched != c.files {
			t.Errorf("%s: %d files are searched, then %v", what, s.searched, err)
		}
	}
}
