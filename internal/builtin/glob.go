package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

type globInput struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
}

func glob() (tool.Tool, error) {
	no := false
	return define(tool.Declaration{
		Name: "glob",
		Description: fmt.Sprintf("Finds files and directories of the workspace by name. In the pattern * and ? match "+
			"inside one name, ** matches any number of "+
			"directories, [a-z] a class of characters, {a,b} alternatives: **/*.go finds every Go file, src/* what "+
			"is in src. Gives sorted paths "+
			"relative to the workspace's directory, one a line, directories with a slash at the end; at most %d. "+
			".git directories are left out "+
			"unless the pattern names them; symbolic links to directories are listed, not entered.", MaxGlobResults),
		InputSchema: object(
			text("pattern", "What to look for, relative to path.").withExamples("**/*.go", "src/*.{ts,tsx}").required(),
			text("path",
				"The directory to look in: relative to the workspace's directory, or absolute inside it.").withDefault("."),
		),
		Class:          tool.ClassRule{Static: toolyard.ReadOnly},
		ReadOnly:       true,
		Specifier:      tool.Specifier{Path: "path"},
		Interrupt:      tool.Cancel,
		AbortsSiblings: &no,

		MaxResultSizeChars: MaxGlobChars,
	}, checkGlob, runGlob)
}

// globPlan says where a pattern is searched: its leading names without wildcards are resolved like a path, with the
// same checks, and only the rest is matched.
type globPlan struct {
	base    target // the directory; if it does not exist, nothing matches
	shown   string // the directory, as each match begins
	pattern string // the rest
	dirs    bool   // the pattern ends in a slash: directories only
	git     bool   // the pattern names .git
}

func checkGlob(_ context.Context, env tool.Env, in globInput) error {
	w, err := openWorkspace(env)
	if err != nil {
		return err
	}
	defer w.close()
	_, err = w.planGlob(in)
	return err
}

func (w *workspace) planGlob(in globInput) (p globPlan, err error) {
	if err := checkGlobPattern("pattern", in.Pattern); err != nil {
		return p, err
	}
	dir, err := w.resolve("path", cmp.Or(in.Path, "."))
	if err != nil {
		return p, err
	}
	if err := w.directory(dir); err != nil {
		return p, err
	}
	pattern := cmp.Or(strings.TrimRight(in.Pattern, "/"), "/")
	p.dirs = strings.HasSuffix(in.Pattern, "/")
	p.git = slices.Contains(globNames(pattern), ".git")
	base, rest := doublestar.SplitPattern(pattern)
	if slices.Contains(globNames(rest), "..") {
		return p, tool.Violation("pattern %s holds .. behind a wildcard, which could lead out of the workspace",
			show(in.Pattern))
	}
	p.pattern = cmp.Or(strings.Join(splitNames(rest), "/"), ".")
	if !strings.HasPrefix(base, "/") && in.Path != "" {
		base = in.Path + "/" + base
	}
	if p.base, err = w.resolve("pattern", base); err != nil {
		return p, err
	}
	p.shown = w.shownName(p.base)
	return p, nil
}

// shownName is the path of a target in answers: below the workspace's directory, with the names of the links that the
// model used, unless ".." makes these hard to read.
func (w *workspace) shownName(t target) string {
	names, _, err := w.split(t.field, t.written)
	if err != nil || slices.Contains(names, "..") {
		return t.name
	}
	return path.Join(append([]string{"."}, names...)...)
}

// globNames splits a pattern into its names, including those of its alternatives.
func globNames(pattern string) []string {
	return strings.FieldsFunc(pattern, func(r rune) bool { return strings.ContainsRune("/{},", r) })
}

// checkGlobPattern returns an error if a pattern is not a glob, or has too many alternatives.
func checkGlobPattern(field, pattern string) error {
	switch {
	case pattern == "":
		return tool.Invalid("%s is empty; give a glob such as **/*.go", field)
	case len(pattern) > MaxPatternBytes:
		return tool.Invalid("%s is %d bytes long; a glob has at most %d", field, len(pattern), MaxPatternBytes)
	case !utf8.ValidString(pattern):
		return tool.Invalid("%s is not valid UTF-8", field)
	case strings.ContainsRune(pattern, 0):
		return tool.Invalid("%s holds a NUL character, which no path can", field)
	case !doublestar.ValidatePattern(pattern):
		return tool.Invalid("%s %s is not a glob: a [ or { is not closed, or a } is not opened; write \\[ or \\{ for "+
			"the character itself", field, show(pattern))
	}
	// Matching takes time in proportion to the number of plain patterns that the alternatives produce.
	plain, here := 1, 1
	for _, r := range pattern {
		switch r {
		case ',':
			here++
		case '{':
			plain, here = plain*here, 1
		}
		if plain*here > MaxGlobAlternative {
			return tool.Invalid("%s %s stands for more than %d plain patterns; use fewer {a,b} groups", field,
				show(pattern), MaxGlobAlternative)
		}
	}
	return nil
}

func runGlob(ctx context.Context, env tool.Env, in globInput) (string, error) {
	w, err := openWorkspace(env)
	if err != nil {
		return "", err
	}
	defer w.close()
	p, err := w.planGlob(in)
	if err != nil {
		return "", err
	}
	if p.base.info == nil || !p.base.info.IsDir() {
		return fmt.Sprintf("[no file matches %s]", show(in.Pattern)), nil
	}
	files := &countedFS{ctx: ctx, w: w, base: p.base.name, git: p.git, left: MaxWalkEntries, progress: env.Progress}
	found := map[string]bool{} // the same path can match more than once
	err = doublestar.GlobWalk(files, p.pattern, func(name string, d fs.DirEntry) error {
		if name == "." || p.dirs && !d.IsDir() {
			return nil
		}
		shown := path.Join(p.shown, name)
		if d.IsDir() {
			shown += "/"
		}
		found[shown] = true
		return nil
	}, doublestar.WithNoFollow(), doublestar.WithFailOnIOErrors())
	err = files.ended(err)
	switch {
	case stopped(ctx) != nil:
		return "", stopped(ctx)
	case err != nil && !errors.Is(err, errWalkLimit):
		return "", tool.Failed(err, "the worker failed to look for %s; an operator can see why", show(in.Pattern))
	}
	return globAnswer(in.Pattern, found, files, err != nil), nil
}

// globAnswer lists what was found, and says what was left out.
func globAnswer(pattern string, found map[string]bool, files *countedFS, limited bool) string {
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names[:min(len(names), MaxGlobResults)] {
		b.WriteString(show(name))
		b.WriteByte('\n')
	}
	if len(names) == 0 {
		fmt.Fprintf(&b, "[no file matches %s]\n", show(pattern))
	}
	if len(names) > MaxGlobResults {
		fmt.Fprintf(&b, "[the first %d of %d; use a narrower pattern or path for the others]\n", MaxGlobResults,
			len(names))
	}
	if limited {
		fmt.Fprintf(&b, "[stopped after %d directory entries: there may be more; use a narrower pattern or path]\n",
			MaxWalkEntries)
	}
	if files.unread > 0 {
		fmt.Fprintf(&b, "[directories that could not be read: %d]\n", files.unread)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
