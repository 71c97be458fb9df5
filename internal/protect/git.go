package protect

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Files is a workspace, for looking at. No name that is asked for leads out of it.
type Files interface {
	Lstat(name string) (fs.FileInfo, error)
	ReadFile(name string) ([]byte, error)
	Readlink(name string) (string, error)
}

// Set is what is protected in one workspace, as it was when it was looked at.
type Set struct {
	list  *List
	files Files
	// places are those at the workspace's own top: what a sandbox protects.
	places []Place
	// pointed are those that a repository's configuration names, which no list has.
	pointed []Place
}

// Places are what a sandbox protects, parents before what lies in them.
func (s *Set) Places() []Place { return s.places }

// Covers says which protected place a path is in. Names are compared as the most forgiving file system does, and places
// of the list are found at any depth.
func (s *Set) Covers(p string) (Place, bool) {
	names, ok := split(p)
	if !ok {
		return Place{}, false
	}
	if place, ok := s.list.covers(names); ok {
		return place, true
	}
	for _, place := range s.pointed {
		if place.Holds(p) {
			return place, true
		}
	}
	for dir := path.Dir(path.Clean(p)); ; dir = path.Dir(dir) {
		if s.isGitDir(dir) {
			return Place{Path: path.Join(dir, "HEAD"),
				Why: "the directory is a git repository without a .git, and git runs what is configured there"}, true
		}
		if dir == "." {
			return Place{}, false
		}
	}
}

// Holds reports whether a path is the place, or lies in it.
func (p Place) Holds(other string) bool {
	own, ok := split(p.Path)
	names, known := split(other)
	return ok && known && len(own) <= len(names) && same(names[:len(own)], own)
}

// Since are the places that a repository's configuration names, or where one lies, that an earlier look did not find.
func (s *Set) Since(was *Set) (more []Place) {
	for _, place := range s.pointed {
		if _, known := was.Covers(place.Path); !known {
			more = append(more, place)
		}
	}
	return more
}

// isGitDir reports whether git takes a directory for a repository by what lies in it.
func (s *Set) isGitDir(dir string) bool {
	if !isHead(s.files, path.Join(dir, "HEAD")) {
		return false
	}
	_, common := s.files.Lstat(path.Join(dir, "commondir"))
	_, objects := s.files.Lstat(path.Join(dir, "objects"))
	_, refs := s.files.Lstat(path.Join(dir, "refs"))
	return common == nil || objects == nil && refs == nil
}

// Bounds of what is read of a repository's configuration.
const (
	MaxConfigBytes = 1 << 20
	MaxIncludes    = 64
)

// Of says what is protected in a workspace. dirs are the absolute names of its directory. The error says what cannot be
// read, so that nobody knows what it names.
func (l *List) Of(files Files, dirs ...string) (*Set, error) {
	s := &Set{list: l, files: files}
	for _, e := range l.all() {
		if e.edits {
			continue
		}
		if info, err := files.Lstat(e.Path); err != nil || !info.IsDir() || e.parts == nil {
			s.places = append(s.places, e.Place)
			continue
		}
		for _, p := range e.parts {
			p.Path, p.Why = path.Join(e.Path, p.Path), e.Why
			s.places = append(s.places, p)
		}
	}
	g := &repository{files: files, dirs: dirs, read: map[string]bool{}}
	if err := g.look(); err != nil {
		return nil, err
	}
	s.places = append(s.places, g.places...)
	s.pointed = append(g.pointed, g.places...)
	for _, p := range g.pointed {
		if !slices.ContainsFunc(s.places, func(q Place) bool {
			return q.Path == p.Path ||
				strings.HasPrefix(p.Path, q.Path+"/") && q.Make == ""
		}) {
			s.places = append(s.places, p)
		}
	}
	return s, nil
}

// repository looks at what git would find in a workspace's directory.
type repository struct {
	files Files
	dirs  []string
	read  map[string]bool // files of configuration
	// places are the parts of git's own directories; pointed what the configuration names.
	places, pointed []Place
}

const whyGit = "git runs what it holds or names"

// GitBar is what stands in place of a .git that is missing, while a command runs: a file that git cannot read. Git
// looks no further then, neither for a repository without a .git in the same directory nor in one above.
const GitBar = ""

func (g *repository) look() error {
	info, err := g.files.Lstat(".git")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		g.places = append(g.places, Place{Path: ".git", Why: whyGit, Make: File, Content: GitBar})
	case err != nil:
		return fmt.Errorf("look at .git of the workspace: %w", err)
	case info.IsDir():
		if _, err := g.files.Lstat(".git/HEAD"); err != nil { // no repository, and no command makes it one
			g.places = append(g.places, Place{Path: ".git", Why: whyGit})
		} else if err := g.directory(".git"); err != nil {
			return err
		}
	default:
		g.places = append(g.places, Place{Path: ".git", Why: whyGit})
		if info.Mode().IsRegular() {
			if err := g.linked(); err != nil {
				return err
			}
		}
	}
	if isHead(g.files, "HEAD") { // the workspace is a repository without .git, or nearly one
		return g.directory("")
	}
	g.places = append(g.places,
		Place{Path: "HEAD",
			Why: "with objects and refs it makes the directory a git repository, whose configuration names programs"})
	return nil
}

// linked follows a .git that is a file to where it leads, if that is in the workspace.
func (g *repository) linked() error {
	text, err := g.text(".git")
	if err != nil {
		return err
	}
	to, ok := strings.CutPrefix(text, "gitdir: ")
	if !ok {
		return nil
	}
	if dir, ok := g.inside("", strings.TrimRight(to, "\r\n")); ok {
		if info, err := g.files.Lstat(dir); err == nil && info.IsDir() {
			return g.directory(dir)
		}
		g.places = append(g.places, Place{Path: dir, Why: whyGit})
	}
	return nil
}

// directory adds the parts of one of git's directories, and what its configuration names.
func (g *repository) directory(dir string) error {
	commons := []string{dir}
	if text, err := g.text(path.Join(dir, "commondir")); err != nil {
		return err
	} else if common, ok := g.inside(dir, strings.TrimSpace(text)); ok && text != "" && common != path.Clean(dir) {
		commons = append(commons, common)
	}
	for _, d := range commons {
		for _, p := range []Place{
			{Path: "hooks", Make: Directory}, {Path: "config", Make: File}, {Path: "config.worktree", Make: File},
			// it would move config and hooks elsewhere; this one leaves them
			{Path: "commondir", Make: File, Content: ".\n"},
			{Path: "info/attributes"}, {Path: "modules"}, {Path: "worktrees"},
		} {
			p.Path, p.Why = path.Join(d, p.Path), whyGit
			g.places = append(g.places, p)
		}
		for _, name := range []string{"config", "config.worktree"} {
			if err := g.config(path.Join(d, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// config adds what a file of configuration names in the workspace.
func (g *repository) config(file string) error {
	if g.read[file] {
		return nil
	}
	if g.read[file] = true; len(g.read) > MaxIncludes {
		return fmt.Errorf("git's configuration in the workspace has more than %d files", MaxIncludes)
	}
	text, err := g.text(file)
	if err != nil {
		return err
	}
	for _, v := range parseConfig(text) {
		switch v.is() {
		case anInclude:
			if at, ok := g.inside(path.Dir(file), v.value); ok {
				g.point(at, v)
				if err := g.config(at); err != nil {
					return err
				}
			}
		case aPath:
			if at, ok := g.inside("", v.value); ok {
				g.point(at, v)
			}
		case aProgram:
			for _, word := range words(v.value) {
				at, ok := g.inside("", word)
				if !ok {
					continue
				}
				info, err := g.files.Lstat(at)
				if err == nil && !info.IsDir() || err != nil && strings.Contains(word, "/") {
					g.point(at, v)
				}
			}
		}
	}
	return nil
}

func (g *repository) point(at string, v variable) {
	if at == "" || at == "." || slices.ContainsFunc(g.pointed, func(p Place) bool { return p.Path == at }) {
		return
	}
	g.pointed = append(g.pointed, Place{Path: at, Why: "git's configuration names it in " + v.section + "." + v.key})
}

// inside gives a path of the configuration as one below the workspace's directory. A relative one begins at from.
func (g *repository) inside(from, p string) (string, bool) {
	if rest, ok := strings.CutPrefix(p, "~/"); ok {
		return g.belowHome(rest)
	}
	if p == "" || strings.HasPrefix(p, "~") || strings.HasPrefix(p, "%(") || strings.ContainsRune(p, 0) {
		return "", false
	}
	if strings.HasPrefix(p, "/") {
		p = path.Clean(p)
		for _, dir := range g.dirs {
			if rest, ok := strings.CutPrefix(p, strings.TrimSuffix(dir, "/")+"/"); ok {
				return rest, true
			}
		}
		return "", false
	}
	p = path.Join(from, p)
	return p, p != "." && p != ".." && !strings.HasPrefix(p, "../")
}

// belowHome gives a path in the home directory of whoever runs git. Nobody knows here whose that is: it is one below
// the workspace's directory where that could be.
func (g *repository) belowHome(p string) (string, bool) {
	names, ok := split(p)
	if !ok {
		return "", false
	}
	for _, dir := range g.dirs {
		for i := len(names) - 1; i > 0; i-- { // the workspace is the directory of names[:i] in the home directory
			if strings.HasSuffix(path.Clean(dir), "/"+path.Join(names[:i]...)) {
				return path.Join(names[i:]...), true
			}
		}
	}
	return p, true // the workspace is the home directory
}

// text reads a file; "" where there is none. One that is no plain file is nothing that git reads here: the sandbox
// refuses it.
func (g *repository) text(name string) (string, error) {
	info, err := g.files.Lstat(name)
	if err != nil || !info.Mode().IsRegular() {
		return "", nil
	}
	if info.Size() > MaxConfigBytes {
		return "",
			fmt.Errorf("%s of the workspace has %d bytes; more than %d are not read, so nobody knows what it names",
				name, info.Size(), MaxConfigBytes)
	}
	b, err := g.files.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read %s of the workspace, to see what it names: %w", name, err)
	}
	return string(b), nil
}

// isHead reports whether git takes a name for a repository's HEAD: a link into refs, or a file that names a ref or a
// commit. It also returns true for what it cannot read.
func isHead(files Files, name string) bool {
	info, err := files.Lstat(name)
	if err != nil {
		return false
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := files.Readlink(name)
		if err != nil || strings.HasPrefix(to, "refs/") {
			return true
		}
	case !info.Mode().IsRegular():
		return false
	case info.Size() > MaxConfigBytes:
		return true
	}
	b, err := files.ReadFile(name)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	text := string(b)
	if ref, ok := strings.CutPrefix(text, "ref:"); ok {
		return strings.HasPrefix(strings.TrimLeft(ref, " \t\r\n"), "refs/")
	}
	const hexes = 40
	return len(text) >= hexes && strings.Trim(text[:hexes], "0123456789abcdefABCDEF") == ""
}
