package place

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/protect"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestQuarantineHoldsForEverybody: it stands in the workspace, so that every worker sees it, and ends when an operator
// says so.
func TestQuarantineHoldsForEverybody(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := hold(t, dir), hold(t, dir)
	must.OK(t, os.Mkdir(filepath.Join(dir, ".vscode"), 0o755))
	must.OK(t, ours.Quarantine(Quarantine{Why: "it stays", Since: time.Now(), Places: []string{".vscode"}}))
	for _, r := range []*Root{ours, theirs, hold(t, dir)} {
		violates(t, r.Check())
	}
	if err := theirs.ClearQuarantine(false); err == nil || !strings.Contains(err.Error(), ".vscode is still there") {
		t.Errorf("%v", err)
	}
	must.OK(t, theirs.ClearQuarantine(true))
	if err := theirs.Check(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, protect.MarkDir)); err == nil {
		t.Error("the mark is still there")
	}
	if err := ours.Check(); err != nil {
		t.Errorf("the worker that has found it does not see that it is over: %v", err)
	}
	// A mark that nobody can read is one.
	must.OK(t, os.MkdirAll(filepath.Join(dir, quarantineMark), 0o755))
	violates(t, theirs.Check())
}

// TestAQuarantineThatCannotBeNoted holds for who has found it, for as long as what it is about is there.
func TestAQuarantineThatCannotBeNoted(t *testing.T) {
	dir := t.TempDir()
	r := hold(t, dir)
	for _, name := range []string{protect.MarkDir, ".envrc"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
	}
	if err := r.Quarantine(Quarantine{Why: "it stays", Places: []string{".envrc"}}); err == nil {
		t.Fatal("it was noted in a file")
	}
	violates(t, r.Check())
	must.OK(t, os.Remove(filepath.Join(dir, ".envrc")))
	if err := r.Check(); err != nil {
		t.Error(err)
	}
}

// TestWhatEndsAQuarantineIsSaid: an error says that it goes on, and then it does.
func TestWhatEndsAQuarantineIsSaid(t *testing.T) {
	for name, tt := range map[string]struct {
		places []string
		stand  func(dir string) error
	}{
		"git is elsewhere": {nil, func(dir string) error {
			return os.Symlink(t.TempDir(), filepath.Join(dir, ".git"))
		}},
		"git is a file": {nil, func(dir string) error {
			return os.WriteFile(filepath.Join(dir, ".git"), nil, 0o644)
		}},
		"a file is where the directory was": {[]string{"a/.vscode"}, func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "a"), nil, 0o644)
		}},
	} {
		dir := t.TempDir()
		r := hold(t, dir)
		must.OK(t, r.Quarantine(Quarantine{Why: "it stays", Since: time.Now(), Places: tt.places}))
		must.OK(t, tt.stand(dir))
		if err := r.ClearQuarantine(false); err != nil {
			t.Errorf("%s: %v, and the check says %v", name, err, r.Check())
		}
		if _, err := os.Lstat(filepath.Join(dir, protect.MarkDir)); err == nil || r.Check() != nil {
			t.Errorf("%s: the mark is still there (%v)", name, r.Check())
		}
	}
}

// TestTheRecordOutlivesItsQuarantine: a sandbox undoes the rest by it, unless what was made is to stay.
func TestTheRecordOutlivesItsQuarantine(t *testing.T) {
	for _, keep := range []bool{false, true} {
		dir := t.TempDir()
		r := hold(t, dir)
		record := filepath.Join(dir, protect.MarkDir, "run")
		must.OK(t, r.Quarantine(Quarantine{Why: "it stays", Places: []string{".vscode"}}))
		must.OK(t, os.WriteFile(record, []byte("{}"), 0o644))
		if err := r.ClearQuarantine(keep); err != nil || r.Check() != nil {
			t.Fatal(err, r.Check())
		}
		if _, err := os.Lstat(record); (err == nil) == keep {
			t.Errorf("keep is %t, and of the record: %v", keep, err)
		}
	}
}

// TestQuarantinesAtTheSameTime: several workers may find something at the same time. All of it is noted, and stays so
// until an operator has looked at all of it.
func TestQuarantinesAtTheSameTime(t *testing.T) {
	const workers = 8
	dir := t.TempDir()
	var together sync.WaitGroup
	var want []string
	for i := range workers {
		r, places := hold(t, dir), []string{fmt.Sprintf("place-%d", i), "shared"}
		want = append(want, places...)
		for _, p := range places {
			must.OK(t, os.WriteFile(filepath.Join(dir, p), nil, 0o644))
		}
		together.Go(func() {
			if err := r.Quarantine(Quarantine{Why: fmt.Sprint("reason ", i), Since: time.Unix(int64(i+1), 0),
				Places: places}); err != nil {
				t.Error(err)
			}
		})
	}
	together.Wait()
	slices.Sort(want)
	want = slices.Compact(want)
	r := hold(t, dir)
	q, err := r.Quarantined()
	if err != nil || q == nil {
		t.Fatalf("%v, %v", q, err)
	}
	if !slices.Equal(q.Places, want) || !q.Since.Equal(time.Unix(1, 0)) {
		t.Errorf("%q since %s, want %q", q.Places, q.Since, want)
	}
	for i := range workers {
		if !strings.Contains(q.Why, fmt.Sprint("reason ", i)) {
			t.Errorf("it does not say reason %d: %s", i, q.Why)
		}
	}
	for _, p := range want {
		if err := r.ClearQuarantine(false); err == nil || !strings.Contains(err.Error(), p) {
			t.Fatalf("with %s there: %v", p, err)
		}
		must.OK(t, os.Remove(filepath.Join(dir, p)))
	}
	if err := r.ClearQuarantine(false); err != nil || r.Check() != nil {
		t.Fatal(err, r.Check())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestAQuarantineThatBeginsWhileAnotherIsCleared outlives that.
func TestAQuarantineThatBeginsWhileAnotherIsCleared(t *testing.T) {
	for range 50 {
		dir := t.TempDir()
		one, other := hold(t, dir), hold(t, dir)
		must.OK(t, os.WriteFile(filepath.Join(dir, "there"), nil, 0o644))
		must.OK(t, one.Quarantine(Quarantine{Why: "it was there", Places: []string{"gone"}}))
		var both sync.WaitGroup
		both.Go(func() { _ = one.ClearQuarantine(false) }) // it may see the other, and then refuses
		both.Go(func() {
			if err := other.Quarantine(Quarantine{Why: "it is there", Places: []string{"there"}}); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		if q, err := hold(t, dir).Quarantined(); err != nil || q == nil || !slices.Contains(q.Places, "there") {
			t.Fatalf("%+v, %v", q, err)
		}
	}
}

// TestManyMarks: more than are read at a time are cleared one part after the other.
func TestManyMarks(t *testing.T) {
	r := hold(t, t.TempDir())
	for range maxMarks + 1 {
		must.OK(t, r.Quarantine(Quarantine{Why: "it stays", Places: []string{"gone"}}))
	}
	if err := r.ClearQuarantine(false); err == nil || !strings.Contains(err.Error(), "once more") {
		t.Errorf("the first part: %v", err)
	}
	if err := r.ClearQuarantine(false); err != nil || r.Check() != nil {
		t.Errorf("the rest: %v, %v", err, r.Check())
	}
}
