package place

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/protect"
	"github.com/toolyard/toolyard/tool"
)

// Root is the directory of a workspace, held: whatever its path leads to later, this is what is used. A root knows what
// is protected in it. It is safe for concurrent use.
type Root struct {
	names []string // its absolute paths: with no symbolic link in it, and as it was given
	of    []string // those of the directory that this one is a copy of
	held  *os.Root
	info  fs.FileInfo
	list  *protect.List
	// quarantine says why nothing may be done in it, where the mark could not be written.
	quarantine atomic.Pointer[Quarantine]
}

var _ tool.Root = (*Root)(nil)

// Hold opens a directory and resolves its path, once. A nil list is the built-in one.
func Hold(dir string, list *protect.List) (*Root, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return nil, err
	}
	held, err := os.OpenRoot(real)
	if err != nil {
		return nil, err
	}
	r := &Root{names: []string{real}, held: held, list: list}
	if abs != real {
		r.names = append(r.names, abs)
	}
	if r.info, err = held.Stat("."); err != nil {
		return nil, errors.Join(err, held.Close())
	}
	return r, nil
}

// Beside opens a copy of the directory, in which the same is protected. What names a path of the directory itself means
// the same in the copy, since that comes back from there.
func (r *Root) Beside(dir string) (*Root, error) {
	c, err := Hold(dir, r.list)
	if err == nil {
		c.of = slices.Concat(r.names, r.of)
	}
	return c, err
}

// Dir is the directory's path, with no symbolic link in it, as it was found when it was held.
func (r *Root) Dir() string { return r.names[0] }

// Names are its absolute paths: [Root.Dir], and as it was given.
func (r *Root) Names() []string { return r.names }

// Open opens the directory once more. The caller closes it.
func (r *Root) Open() (*os.Root, error) { return r.held.OpenRoot(".") }

// Close gives the directory back.
func (r *Root) Close() error { return r.held.Close() }

// Check reports that the directory must not be used: its path leads elsewhere by now, or it is in quarantine. The error
// is a [tool.Error] of code sandbox_violation.
func (r *Root) Check() error {
	now, err := os.Stat(r.Dir())
	if err == nil && !os.SameFile(now, r.info) {
		err = errors.New("another directory is there")
	}
	if err != nil {
		return &tool.Error{Code: toolyard.SandboxViolation, Err: fmt.Errorf("the workspace's directory %s was "+
			"replaced since the worker started: %w; put it back, or start the worker anew", r.Dir(), err),
			Message: "the workspace's directory was replaced since the worker started, so nothing is done in it; an " +
				"operator must mend that"}
	}
	q, err := r.Quarantined()
	switch {
	case err != nil:
		return &tool.Error{Code: toolyard.SandboxViolation, Err: err,
			Message: "nobody knows whether the workspace is in quarantine, so nothing is done in it; an operator " +
				"must mend that"}
	case q != nil:
		return &tool.Error{Code: toolyard.SandboxViolation,
			Err: fmt.Errorf("%s is in quarantine since %s: %s; \"worker workspace clear\" ends that", r.Dir(),
				q.Since.Format(time.RFC3339), q.Why),
			Message: "the workspace is in quarantine, as a command has left something in it that could not be taken " +
				"away; an operator must look at it"}
	}
	return nil
}

// Forms is [Forms] in this directory.
func (r *Root) Forms(p string) []string {
	if r == nil {
		return nil
	}
	return forms(r.names[len(r.names)-1], r.Dir(), p)
}

// Protection looks at what is protected.
func (r *Root) Protection() (*protect.Set, error) {
	return r.list.Of(r.held, slices.Concat(r.names, r.of)...)
}

// Protected returns the protected place that one of a path's forms is in. What cannot be read counts as protected.
func (r *Root) Protected(forms []string) (protect.Place, bool) {
	if r == nil || len(forms) == 0 { // what is not known is nobody's place: see [policy.Request].Paths
		return protect.Place{}, false
	}
	set, err := r.Protection()
	if err != nil {
		return protect.Place{Path: ".", Why: err.Error()}, true
	}
	for _, f := range forms {
		if p, ok := set.Covers(f); ok {
			return p, true
		}
	}
	return protect.Place{}, false
}

// Avoided is a path that no workspace may hold or lie in, and what it is.
type Avoided struct{ Path, What string }

// HoldAll holds the directories of a worker's workspaces. It refuses those that overlap, the whole machine, home
// directories and what is to be avoided, and says why.
func HoldAll(dirs map[toolyard.Workspace]string, list *protect.List,
	avoid []Avoided) (roots map[toolyard.Workspace]*Root, err error) {
	roots = map[toolyard.Workspace]*Root{}
	defer func() {
		if err != nil {
			for _, r := range roots {
				_ = r.Close() // it was only looked at
			}
			roots = nil
		}
	}()
	names := slices.Sorted(maps.Keys(dirs))
	for _, name := range names {
		r, err := Hold(dirs[name], list)
		if err != nil {
			return roots, fmt.Errorf("workspace %q: %w", name, err)
		}
		roots[name] = r
		if why := r.unfit(avoid); why != "" {
			return roots, fmt.Errorf("workspace %q: %s %s; give a directory of its own", name, r.Dir(), why)
		}
	}
	for i, a := range names {
		for _, b := range names[i+1:] {
			if why := overlap(roots[a], roots[b]); why != "" {
				return roots,
					fmt.Errorf("workspaces %q and %q overlap: %s %s %s; who acts in one would act in the other", a, b,
						roots[a].Dir(), why, roots[b].Dir())
			}
		}
	}
	return roots, nil
}

func overlap(a, b *Root) string {
	switch {
	case os.SameFile(a.info, b.info):
		return "is"
	case a.holds(b.Dir()):
		return "holds"
	case b.holds(a.Dir()):
		return "lies in"
	}
	return ""
}

// holds reports whether a path is the directory or lies in it, by what the directories on the way are: a bind mount has
// another name.
func (r *Root) holds(p string) bool {
	for ; ; p = filepath.Dir(p) {
		if info, err := os.Stat(p); err == nil && os.SameFile(info, r.info) {
			return true
		}
		if p == filepath.Dir(p) {
			return false
		}
	}
}

// unfit says why a directory can't be a workspace.
func (r *Root) unfit(avoid []Avoided) string {
	if r.Dir() == filepath.Dir(r.Dir()) {
		return "is the whole machine"
	}
	for _, h := range homes() {
		if real, err := filepath.EvalSymlinks(h); err == nil && r.holds(real) {
			if real == r.Dir() {
				return "is a home directory"
			}
			return "holds the home directory " + h
		}
	}
	for _, a := range avoid {
		real := existing(a.Path)
		if r.holds(real) {
			return fmt.Sprintf("holds %s, %s", a.What, a.Path)
		}
		if info, err := os.Stat(real); err == nil && info.IsDir() &&
			(&Root{names: []string{real}, info: info}).holds(r.Dir()) && real == resolved(a.Path) {
			return fmt.Sprintf("lies in %s, %s", a.What, a.Path)
		}
	}
	return ""
}

// resolved is a path with its links followed, or as it is where nothing is there yet.
func resolved(p string) string {
	if real, ok := follow(p); ok {
		return real
	}
	return p
}

// existing is the deepest part of a path that exists, with its links followed.
func existing(p string) string {
	if abs, err := filepath.Abs(p); err == nil {
		p = abs
	}
	for p = resolved(p); ; p = filepath.Dir(p) {
		if _, err := os.Stat(p); err == nil || p == filepath.Dir(p) {
			return p
		}
	}
}

// firstPerson is the first user id that people have, on most systems.
const firstPerson = 1000

// homes are the home directories of this user, and of the people and root of this machine as far as they can be read.
func homes() (dirs []string) {
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, home)
	}
	users, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return dirs
	}
	for line := range strings.Lines(string(users)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		const uid, home, all = 2, 5, 7
		if len(fields) != all || !strings.HasPrefix(fields[home], "/") || fields[home] == "/" {
			continue
		}
		var id int
		if _, err := fmt.Sscanf(fields[uid], "%d", &id); err == nil && (id == 0 || id >= firstPerson) {
			dirs = append(dirs, fields[home])
		}
	}
	return dirs
}
