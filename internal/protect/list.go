// Package protect has the list of places in a workspace that something else runs or obeys by itself: git at the next
// commit, an editor or a shell when a person opens the directory, a build server at the next push. Bash, the file
// tools, accept_edits, rules and hooks all ask it.
//
// Authority: the list of this package, what an operator adds to it, and what the configuration of the workspace's own
// repository names. Failure: what cannot be read counts as protected, or is an error.
package protect

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Place is one protected place.
type Place struct {
	// Path is below the workspace's directory, with slashes. The place is what has that name, and all below it.
	Path string
	// Why says what runs or obeys it.
	Why string
	// Make says what a sandbox puts there while a command runs, if it is missing: else the command would be the first
	// to make it. What is not made is taken away when it appears.
	Make Kind
	// Content is what the file has that is made.
	Content string
}

// Kind is what is made in place of a protected place that is missing. Empty: nothing.
type Kind string

// The kinds.
const (
	Directory Kind = "directory"
	File      Kind = "file"
)

// entry is one line of the list.
type entry struct {
	Place
	// parts are what a command must not write of it, where it is a directory; the rest is its own business. Nil: all of
	// it.
	parts []Place
	// file says that only the name itself is meant, and nothing below it.
	file bool
	// edits says that only file tools are kept from it: commands may make it, and write it.
	edits bool
}

// MarkDir is where a sandbox notes what it has to undo in a workspace, and where the mark of a quarantine stands.
const MarkDir = ".toolyard"

// GitMarkDir is where it notes that in a repository: there nobody sees it.
const GitMarkDir = ".git/toolyard"

func entries(why string, paths ...string) (out []entry) {
	for _, p := range paths {
		out = append(out, entry{Place: Place{Path: p, Why: why}})
	}
	return out
}

// builtin is the list. TestEveryEntry has each with what it covers.
var builtin = slices.Concat(
	[]entry{
		// for commands see [List.Of]
		{Place: Place{Path: ".git", Why: "git runs what is configured there"}, edits: true},
		{Place: Place{Path: "HEAD",
			Why: "with objects and refs it makes a directory a git repository, whose configuration names programs"},
			file: true, edits: true},
		{Place: Place{Path: ".svn", Why: "Subversion's own"}, edits: true},
		{Place: Place{Path: ".hg", Why: "Mercurial runs what is configured there"}, parts: []Place{
			{Path: "hgrc", Make: File}, {Path: "hgrc-not-shared", Make: File}, {Path: "sharedpath"}}},
		{Place: Place{Path: ".jj", Why: "Jujutsu runs what is configured there"}, parts: []Place{
			{Path: "config.toml"}, {Path: "workspace-config.toml"}, {Path: "repo/config.toml"}}},
	},
	entries("git reads it as its configuration, or for submodules", ".gitconfig", ".gitmodules"),
	entries("git runs it at commits", ".husky"),
	entries("a shell runs it when it starts or ends", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout",
		".profile",
		".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".cshrc", ".tcshrc", ".login", ".kshrc",
		".config/fish"),
	entries("direnv, asdf or mise runs it when a shell enters the directory", ".envrc", ".tool-versions", ".asdfrc",
		"mise.toml", ".mise.toml", "mise.local.toml", ".mise.local.toml", "mise/config.toml", ".mise", ".config/mise",
		".config/mise.toml", ".rtx.toml"),
	entries("an editor runs what it names when the directory is opened", ".vscode", ".idea", ".vs", ".zed", ".fleet",
		".devcontainer", ".devcontainer.json",
		".vimrc", ".exrc", ".nvimrc", ".nvim.lua", ".dir-locals.el"),
	entries("an agent obeys it, or starts what it names", ".claude", ".mcp.json", ".cursor", ".windsurf", ".codex",
		".gemini", ".continue", ".roo", ".kiro", ".amazonq", ".opencode", "opencode.json", ".aider.conf.yml"),
	entries("a package manager runs what it names", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".pypirc",
		".mvn", ".cargo/config", ".cargo/config.toml"),
	entries("keys, and who may log in with them", ".ssh", ".gnupg"),
	entries("a build server runs it at the next push", ".github/workflows", ".github/actions", ".forgejo/workflows",
		".gitea/workflows", ".gitlab-ci.yml", ".circleci", ".buildkite",
		".travis.yml", ".drone.yml", ".woodpecker", ".woodpecker.yml", "Jenkinsfile", "azure-pipelines.yml",
		"bitbucket-pipelines.yml"),
	entries("Toolyard's own marks", MarkDir),
)

// MaxOwn is how many places an operator may add.
const MaxOwn = 256

// List is the list with what an operator has added. Nil is the list alone.
type List struct{ own []entry }

// New makes a list with more places than the built-in ones. Each is a path below a workspace's directory, without
// patterns.
func New(more ...string) (*List, error) {
	if len(more) > MaxOwn {
		return nil, fmt.Errorf("%d protected places; at most %d", len(more), MaxOwn)
	}
	l := &List{}
	for _, p := range more {
		clean := path.Clean(p)
		switch {
		case p == "" || !utf8.ValidString(p) || strings.ContainsAny(p, "\x00\n\r"):
			return nil, fmt.Errorf("%q is no path", p)
		case strings.HasPrefix(p, "/") || strings.HasPrefix(p, "~"):
			return nil, fmt.Errorf("%q: write the path as it is below a workspace's directory", p)
		case clean == "." || clean == ".." || strings.HasPrefix(clean, "../"):
			return nil, fmt.Errorf("%q is not below a workspace's directory", p)
		case strings.ContainsAny(p, `*?[]{}\`):
			return nil, fmt.Errorf("%q: a protected place is a plain path, not a pattern; it covers all below it, "+
				"and in edits it is found at any depth", p)
		}
		l.own = append(l.own, entry{Place: Place{Path: clean, Why: "the operator protects it"}})
	}
	return l, nil
}

func (l *List) all() []entry {
	if l == nil {
		return builtin
	}
	return slices.Concat(builtin, l.own)
}

// covers returns the first entry that covers a path. At any depth: who edits a file in a directory below does not know
// who opens that directory by itself.
func (l *List) covers(names []string) (Place, bool) {
	for _, e := range l.all() {
		own := strings.Split(e.Path, "/")
		for i := 0; i+len(own) <= len(names); i++ {
			if same(names[i:i+len(own)], own) && (!e.file || i+len(own) == len(names)) {
				return e.Place, true
			}
		}
	}
	return Place{}, false
}

// same compares names as the most forgiving file system does: what is one file anywhere is one place here.
func same(a, b []string) bool {
	return slices.EqualFunc(a, b, func(x, y string) bool { return x == y || fold(x) == fold(y) })
}

// fold is a name without what some file system does not tell apart: case, letters that are joined, dots and blanks at
// its end, a stream's name behind a colon, and characters that cannot be seen. git~1 is what Windows calls .git as
// well.
func fold(name string) string {
	name, _, _ = strings.Cut(name, ":")
	name = strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) ||
			r == '\u180e' || r >= 0xe0000 && r <= 0xe0fff {
			return -1
		}
		return r
	}, name)
	name = strings.ToLower(strings.ToUpper(strings.TrimRight(name, ". "))) // a long s has no other way to s
	name = joined.Replace(name)
	if name == "git~1" {
		return ".git"
	}
	return name
}

// joined are the letters that file systems without case (ext4, f2fs) take for several Latin ones, in lower case.
var joined = strings.NewReplacer("\u00df", "ss", "\u1e9e", "ss", "\ufb00", "ff", "\ufb01", "fi", "\ufb02", "fl",
	"\ufb03", "ffi", "\ufb04", "ffl", "\ufb05", "st", "\ufb06", "st")

// split gives the names of a clean relative path; ok is false for any other.
func split(p string) (names []string, ok bool) {
	p = path.Clean(p)
	if p == "." || p == ".." || strings.HasPrefix(p, "../") || strings.HasPrefix(p, "/") {
		return nil, false
	}
	return strings.Split(p, "/"), true
}

// Names reports whether a rule's pattern is about a protected place by name: its parts stand in it, one behind the
// other and without wildcards. A rule that covers the place only because it covers much else does not speak of it.
func Names(pattern string, p Place) bool {
	own, ok := split(p.Path)
	if !ok {
		return false
	}
	names := strings.Split(pattern, "/")
	for i := 0; i+len(own) <= len(names); i++ {
		if same(names[i:i+len(own)], own) {
			return true
		}
	}
	return false
}
