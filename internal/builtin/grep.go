package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

type grepInput struct {
	Pattern    string `json:"pattern"`
	Path       string `json:"path"`
	Glob       string `json:"glob"`
	IgnoreCase bool   `json:"ignore_case"`
	Context    *whole `json:"context"`
}

func grep() (tool.Tool, error) {
	no := false
	return define(tool.Declaration{
		Name: "grep",
		Description: fmt.Sprintf("Searches the text files of the workspace, line by line, for a regular expression. "+
			"Gives path:line:text for each line that matches "+
			"and, with context, path-line-text for the lines around it; at most %d matching lines. Binary files, "+
			"files over %d MiB and .git directories "+
			"are skipped, symbolic links to directories are not entered.", MaxGrepMatches, MaxGrepFileBytes>>20),
		InputSchema: object(
			text("pattern", "The regular expression, in RE2 syntax (as in Go): no look-around and no "+
				"back-references. Write \\. for a dot, \\( for a parenthesis.").withExamples(`func \w+\(ctx`,
				"TODO").required(),
			text("path",
				"The file or directory to search: relative to the workspace's directory, or absolute inside it.").
				withDefault("."),
			text("glob", "Search only files that match this glob: by their name alone (*.go), or by their path below "+
				"path when it holds a slash (src/**/*.ts).").withExamples("*.go"),
			boolean("ignore_case", "Whether capital and small letters are the same."),
			number("context", 0, MaxGrepContext, "How many lines to show before and after each match.").withDefault(0),
		),
		Class:          tool.ClassRule{Static: toolyard.ReadOnly},
		ReadOnly:       true,
		Specifier:      tool.Specifier{Path: "path"},
		Interrupt:      tool.Cancel,
		AbortsSiblings: &no,

		MaxResultSizeChars: MaxGrepChars,
	}, checkGrep, runGrep)
}

// grepPlan is what to search for, and where.
type grepPlan struct {
	base    target
	shown   string // the path of base in answers
	re      *regexp.Regexp
	glob    string // empty: every file
	context int    // lines
}

// includes reports whether a file must be searched; name is its path below base.
func (p *grepPlan) includes(name string) bool {
	switch {
	case p.glob == "":
		return true
	case strings.Contains(p.glob, "/"):
		return doublestar.MatchUnvalidated(p.glob, name)
	}
	return doublestar.MatchUnvalidated(p.glob, path.Base(name))
}

func checkGrep(_ context.Context, env tool.Env, in grepInput) error {
	w, err := openWorkspace(env)
	if err != nil {
		return err
	}
	defer w.close()
	_, err = w.planGrep(in)
	return err
}

func (w *workspace) planGrep(in grepInput) (p grepPlan, err error) {
	if p.re, err = compile(in.Pattern, in.IgnoreCase); err != nil {
		return p, err
	}
	if in.Glob != "" {
		if err := checkGlobPattern("glob", in.Glob); err != nil {
			return p, err
		}
		p.glob = strings.TrimPrefix(in.Glob, "./")
	}
	lines, err := in.Context.between("context", 0, 0, MaxGrepContext)
	if err != nil {
		return p, err
	}
	p.context = int(lines)
	if p.base, err = w.resolve("path", cmp.Or(in.Path, ".")); err != nil {
		return p, err
	}
	if err := w.exist(p.base); err != nil {
		return p, err
	}
	if !p.base.info.IsDir() {
		if err := w.regular(p.base); err != nil {
			return p, err
		}
		if !p.includes(path.Base(p.base.name)) {
			return p, tool.Invalid("glob %s does not match the file that path names, %s; leave glob out to search that file",
				show(in.Glob), show(in.Path))
		}
	}
	p.shown = w.shownName(p.base)
	return p, nil
}

// compile compiles the expression. Its size is bounded by its text and by the limits of regexp/syntax.
func compile(pattern string, ignoreCase bool) (*regexp.Regexp, error) {
	switch {
	case pattern == "":
		return nil, tool.Invalid("pattern is empty; give a regular expression")
	case len(pattern) > MaxPatternBytes:
		return nil, tool.Invalid("pattern is %d bytes long; it has at most %d", len(pattern), MaxPatternBytes)
	case !utf8.ValidString(pattern):
		return nil, tool.Invalid("pattern is not valid UTF-8")
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, tool.Invalid("pattern is not a regular expression in RE2 syntax: %v",
			strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	if ignoreCase {
		if re, err = regexp.Compile("(?i)" + pattern); err != nil {
			return nil, tool.Invalid("pattern is too large to ignore case")
		}
	}
	return re, nil
}

func runGrep(ctx context.Context, env tool.Env, in grepInput) (string, error) {
	w, err := openWorkspace(env)
	if err != nil {
		return "", err
	}
	defer w.close()
	p, err := w.planGrep(in)
	if err != nil {
		return "", err
	}
	s := &search{grepPlan: p, left: MaxGrepBytes, clean: w.clean}
	entries := &countedFS{ctx: ctx, w: w, base: p.base.name, left: MaxWalkEntries, progress: env.Progress}
	if p.base.info.IsDir() {
		err = entries.ended(s.walk(entries, "."))
	} else {
		err = s.file(ctx, w, p.base.name, p.shown)
	}
	switch {
	case stopped(ctx) != nil:
		return "", stopped(ctx)
	case err != nil && !errors.Is(err, errFull) && !errors.Is(err, errWalkLimit):
		return "", err
	}
	return s.answer(in.Pattern, entries.unread, err), nil
}

// answer is what was found, and what was left out.
func (s *search) answer(pattern string, unread int, err error) string {
	none := s.searched+s.binary+s.large+s.failed+unread == 0 && err == nil
	switch {
	case none && strings.Contains(s.glob, "/"):
		fmt.Fprintf(&s.out, "[no file matches the glob %s: with a slash it is compared with the path below path]\n",
			show(s.glob))
	case none && s.glob != "":
		fmt.Fprintf(&s.out, "[no file matches the glob %s]\n", show(s.glob))
	case s.matches == 0:
		fmt.Fprintf(&s.out, "[no line matches %s in %s]\n", show(pattern), count(s.searched, "file"))
	}
	switch {
	case errors.Is(err, errWalkLimit):
		fmt.Fprintf(&s.out, "[stopped after %d directory entries: there may be more; use a narrower path or glob]\n",
			MaxWalkEntries)
	case errors.Is(err, errFull):
		fmt.Fprintf(&s.out, "[stopped at %s: there may be more; use a narrower pattern, path or glob]\n", s.full)
	}
	var skipped []string
	for _, kind := range []struct {
		n    int
		what string
	}{{s.binary, "binary"}, {s.large, fmt.Sprintf("over %d MiB", MaxGrepFileBytes>>20)}, {s.failed +
		unread, "not readable"}} {
		if kind.n > 0 {
			skipped = append(skipped, fmt.Sprintf("%d %s", kind.n, kind.what))
		}
	}
	if len(skipped) > 0 {
		fmt.Fprintf(&s.out, "[skipped: %s]\n", strings.Join(skipped, ", "))
	}
	return strings.TrimSuffix(s.out.String(), "\n")
}
