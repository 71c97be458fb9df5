package protect

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// tree is a workspace in memory. It has no symbolic links but those of links.
type tree struct {
	fstest.MapFS
	links map[string]string
}

func (t tree) Lstat(name string) (fs.FileInfo, error) {
	if to, ok := t.links[name]; ok {
		return fstest.MapFS{name: {Data: []byte(to), Mode: fs.ModeSymlink}}.Lstat(name)
	}
	return t.MapFS.Stat(name)
}

func (t tree) Readlink(name string) (string, error) { return t.links[name], nil }

func files(of map[string]string) tree {
	t := tree{MapFS: fstest.MapFS{}, links: map[string]string{}}
	for name, content := range of {
		if to, ok := strings.CutPrefix(content, "-> "); ok {
			t.links[name] = to
		} else if dir, ok := strings.CutSuffix(name, "/"); ok {
			t.MapFS[dir] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
		} else {
			t.MapFS[name] = &fstest.MapFile{Data: []byte(content), Mode: 0o644}
		}
	}
	return t
}

func set(t *testing.T, l *List, of map[string]string) *Set {
	t.Helper()
	s, err := l.Of(files(of), "/w")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEveryEntry has each line of the list, with a path that it covers. Whoever adds a line adds it here.
func TestEveryEntry(t *testing.T) {
	want := map[string]string{
		".git": ".git/hooks/pre-commit", "HEAD": "HEAD", ".svn": ".svn/wc.db", ".hg": ".hg/hgrc",
		".jj":        ".jj/repo/config.toml",
		".gitconfig": ".gitconfig", ".gitmodules": ".gitmodules", ".husky": ".husky/pre-commit",
		".bashrc": ".bashrc", ".bash_profile": ".bash_profile", ".bash_login": ".bash_login",
		".bash_logout": ".bash_logout", ".profile": ".profile",
		".zshrc": ".zshrc", ".zshenv": ".zshenv", ".zprofile": ".zprofile", ".zlogin": ".zlogin",
		".zlogout": ".zlogout",
		".cshrc":   ".cshrc", ".tcshrc": ".tcshrc", ".login": ".login", ".kshrc": ".kshrc",
		".config/fish": ".config/fish/config.fish",
		".envrc":       ".envrc", ".tool-versions": ".tool-versions", ".asdfrc": ".asdfrc",
		"mise.toml": "mise.toml", ".mise.toml": ".mise.toml", "mise.local.toml": "mise.local.toml",
		".mise.local.toml": ".mise.local.toml",
		"mise/config.toml": "mise/config.toml", ".mise": ".mise/config.toml",
		".config/mise": ".config/mise/conf.d/x.toml", ".config/mise.toml": ".config/mise.toml",
		".rtx.toml": ".rtx.toml",
		".vscode":   ".vscode/tasks.json", ".idea": ".idea/workspace.xml", ".vs": ".vs/x", ".zed": ".zed/tasks.json",
		".fleet":        ".fleet/run.json",
		".devcontainer": ".devcontainer/devcontainer.json", ".devcontainer.json": ".devcontainer.json",
		".vimrc": ".vimrc", ".exrc": ".exrc", ".nvimrc": ".nvimrc", ".nvim.lua": ".nvim.lua",
		".dir-locals.el": ".dir-locals.el",
		".claude":        ".claude/settings.json", ".mcp.json": ".mcp.json", ".cursor": ".cursor/mcp.json",
		".windsurf": ".windsurf/x", ".codex": ".codex/config.toml",
		".gemini": ".gemini/settings.json", ".continue": ".continue/config.yaml", ".roo": ".roo/mcp.json",
		".kiro": ".kiro/settings/mcp.json", ".amazonq": ".amazonq/mcp.json",
		".opencode": ".opencode/plugin/x.ts", "opencode.json": "opencode.json", ".aider.conf.yml": ".aider.conf.yml",
		".npmrc": ".npmrc", ".yarnrc": ".yarnrc", ".yarnrc.yml": ".yarnrc.yml", ".pnpmfile.cjs": ".pnpmfile.cjs",
		".pypirc": ".pypirc", ".mvn": ".mvn/extensions.xml",
		".cargo/config": ".cargo/config", ".cargo/config.toml": ".cargo/config.toml",
		".ssh": ".ssh/authorized_keys", ".gnupg": ".gnupg/gpg.conf",
		".github/workflows": ".github/workflows/ci.yml", ".github/actions": ".github/actions/x/action.yml",
		".forgejo/workflows": ".forgejo/workflows/ci.yml",
		".gitea/workflows":   ".gitea/workflows/ci.yml", ".gitlab-ci.yml": ".gitlab-ci.yml",
		".circleci": ".circleci/config.yml", ".buildkite": ".buildkite/pipeline.yml",
		".travis.yml": ".travis.yml", ".drone.yml": ".drone.yml", ".woodpecker": ".woodpecker/ci.yml",
		".woodpecker.yml": ".woodpecker.yml",
		"Jenkinsfile":     "Jenkinsfile", "azure-pipelines.yml": "azure-pipelines.yml",
		"bitbucket-pipelines.yml": "bitbucket-pipelines.yml",
		".toolyard":               ".toolyard/quarantine",
	}
	s := set(t, nil, nil)
	for _, e := range builtin {
		p := want[e.Path]
		delete(want, e.Path)
		for _, in := range []string{p, "sub/dir/" + p, strings.ToUpper(p), p + "."} {
			if got, ok := s.Covers(in); !ok || got.Path != e.Path && !strings.HasSuffix(e.Path, "/"+got.Path) ||
				got.Why == "" {
				t.Errorf("%s does not cover %q: %+v %t", e.Path, in, got, ok)
			}
		}
		if !e.edits && !slices.ContainsFunc(s.Places(), func(q Place) bool { return q.Path == e.Path }) {
			t.Errorf("commands may write %s", e.Path)
		}
	}
	for path := range want {
		t.Errorf("%s is not on the list", path)
	}
}

func TestWhatIsNotCovered(t *testing.T) {
	s := set(t, nil, map[string]string{"src/": ""})
	for _, p := range []string{
		".", "src/a.go", ".gitignore", ".gitattributes", ".github/ISSUE_TEMPLATE/bug.md", ".github",
		"github/workflows/x", ".config/other", "gitlab-ci.yml", "x.vscode", ".vscodes", ".env",
		"sub/HEAD/x", "head.go", "src/HEADER", "hooks/useThing.ts", "config", "objects/x", "refs/x", "Jenkinsfile.md",
		"..", "../.vscode", "/.vscode",
	} {
		if got, ok := s.Covers(p); ok {
			t.Errorf("%q is covered by %s", p, got.Path)
		}
	}
}

// TestNamesThatMeanTheSame: what some file system takes for the name of a protected place is one.
func TestNamesThatMeanTheSame(t *testing.T) {
	s := set(t, nil, nil)
	for _, p := range []string{".GIT/config", ".Git/config", ".git./config", ".git /config",
		".git::$INDEX_ALLOCATION/config", "git~1/config", "GIT~1/x", ".g\u200cit/config", ".git\u2060/config",
		"a/./b/../.vscode/x", ".ENVRC"} {
		if _, ok := s.Covers(p); !ok {
			t.Errorf("%q is not covered", p)
		}
	}
}

func TestWhatAnOperatorAdds(t *testing.T) {
	l, err := New("deploy/prod.yml", "./scripts/")
	if err != nil {
		t.Fatal(err)
	}
	s := set(t, l, nil)
	for p, want := range map[string]bool{"deploy/prod.yml": true, "a/deploy/prod.yml": true, "scripts/x/y": true,
		"deploy/test.yml": false, ".vscode/x": true, "script": false} {
		if _, ok := s.Covers(p); ok != want {
			t.Errorf("%s: %t", p, ok)
		}
	}
	for _, p := range []string{"", "/etc", "~/x", ".", "..", "../x", "a/../..", "*.yml", "a[b]", "{a,b}", "a\x00",
		"a\nb", "\xff"} {
		if _, err := New(p); err == nil {
			t.Errorf("%q is taken", p)
		}
	}
	if _, err := New(slices.Repeat([]string{"a"}, MaxOwn+1)...); err == nil {
		t.Error("any number is taken")
	}
}

func TestNames(t *testing.T) {
	for _, tt := range []struct {
		pattern, place string
		want           bool
	}{
		{".vscode/**", ".vscode", true}, {".vscode", ".vscode", true}, {"**/.vscode/*.json", ".vscode", true},
		{"sub/.VSCODE/x", ".vscode", true},
		{"**", ".vscode", false}, {"*", ".vscode", false}, {".vs*/**", ".vscode", false},
		{"{.vscode,src}/**", ".vscode", false}, {"", ".vscode", false},
		{".github/**", ".github/workflows", false}, {".github/workflows/ci.yml", ".github/workflows", true},
		{".github/*/workflows", ".github/workflows", false},
		{"**", ".", false}, {".", ".", false},
	} {
		if got := Names(tt.pattern, Place{Path: tt.place}); got != tt.want {
			t.Errorf("%q names %s: %t", tt.pattern, tt.place, got)
		}
	}
}

// TestRepositories: which places a repository brings, however it lies in the workspace.
func TestRepositories(t *testing.T) {
	const head = "ref: refs/heads/main\n"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  []string // of the sandbox's places that are no entries of the list; "+" is made when it is missing
		edits []string // covered for edits
	}{
		{"none", nil, []string{"+.git", "HEAD"}, []string{"HEAD", "sub/HEAD"}},
		{"a plain one", map[string]string{".git/HEAD": head, ".git/config": ""},
			[]string{"+.git/hooks", "+.git/config", "+.git/config.worktree", "+.git/commondir", ".git/info/attributes",
				".git/modules", ".git/worktrees", "HEAD"}, nil},
		{"a .git that is none", map[string]string{".git/refs/x": ""}, []string{".git", "HEAD"}, nil},
		{"a file that leads out", map[string]string{".git": "gitdir: /elsewhere/.git/worktrees/w\n"},
			[]string{".git", "HEAD"}, nil},
		{"a file that leads inside", map[string]string{".git": "gitdir: real\n", "real/HEAD": head, "real/objects/": "",
			"real/refs/": ""},
			[]string{".git", "+real/hooks", "+real/config", "+real/config.worktree", "+real/commondir",
				"real/info/attributes", "real/modules", "real/worktrees", "HEAD"},
			[]string{"real/hooks/x", "real/config", "real/description"}},
		{"a file that leads to what is missing", map[string]string{".git": "gitdir: real\n"},
			[]string{".git", "real", "HEAD"}, []string{"real/config"}},
		{"without .git", map[string]string{"HEAD": head, "objects/": "", "refs/": "", "config": ""},
			[]string{"+.git", "+hooks", "+config", "+config.worktree", "+commondir", "info/attributes", "modules",
				"worktrees"}, []string{"config", "hooks/x", "src/a.go"}},
		{"a HEAD that is no head", map[string]string{"HEAD": "hello\n", "objects/": "", "refs/": ""},
			[]string{"+.git", "HEAD"}, nil},
		{"a HEAD that is a link", map[string]string{"HEAD": "-> refs/heads/main"},
			[]string{"+.git", "+hooks", "+config", "+config.worktree", "+commondir", "info/attributes", "modules",
				"worktrees"}, nil},
		{"a directory HEAD", map[string]string{"HEAD/": ""}, []string{"+.git", "HEAD"}, nil},
		{"below the top", map[string]string{"sub/HEAD": "0123456789012345678901234567890123456789\n",
			"sub/objects/": "", "sub/refs/": ""}, []string{"+.git", "HEAD"}, []string{"sub/config", "sub/a/b"}},
		{"a common directory", map[string]string{".git/HEAD": head, ".git/commondir": "../common\n",
			"common/config": "[core]\n\thooksPath = githooks\n"},
			[]string{"+.git/hooks", "+.git/config", "+.git/config.worktree", "+.git/commondir", ".git/info/attributes",
				".git/modules", ".git/worktrees",
				"+common/hooks", "+common/config", "+common/config.worktree", "+common/commondir",
				"common/info/attributes", "common/modules", "common/worktrees", "HEAD", "githooks"},
			[]string{"common/config", "githooks/pre-commit"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := set(t, nil, tt.files)
			var got []string
			for _, p := range s.Places() {
				if slices.ContainsFunc(builtin, func(e entry) bool { return !e.edits && e.Path == p.Path }) {
					continue
				}
				if p.Make != "" {
					p.Path = "+" + p.Path
				}
				got = append(got, p.Path)
			}
			slices.Sort(got)
			slices.Sort(tt.want)
			if !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
			for _, p := range tt.edits {
				if _, ok := s.Covers(p); !ok {
					t.Errorf("%s is not covered", p)
				}
			}
		})
	}
}

func TestConfigurationsThatNobodyReads(t *testing.T) {
	for name, of := range map[string]map[string]string{
		"too large":     {".git/HEAD": "x", ".git/config": strings.Repeat("#", MaxConfigBytes+1)},
		"many includes": many(),
	} {
		if _, err := (*List)(nil).Of(files(of), "/w"); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	// A circle ends.
	s := set(t, nil, map[string]string{".git/HEAD": "x", ".git/config": "[include]\npath = ../a\n",
		"a": "[include]\npath = a\n[core]\nhooksPath=h\n"})
	if _, ok := s.Covers("h/x"); !ok {
		t.Error("what an included file names is not covered")
	}
}

func many() map[string]string {
	of := map[string]string{".git/HEAD": "x", ".git/config": "[include]\npath = ../a\n"}
	for name := "a"; len(name) < MaxIncludes+2; name += "a" {
		of[name] = "[include]\npath = " + name + "a\n"
	}
	return of
}

func TestParseConfig(t *testing.T) {
	for text, want := range map[string][]variable{
		"":                            nil,
		"[core]\n\thooksPath = a b\n": {{"core", "hookspath", "a b"}},
		"[core] hooksPath=x":          {{"core", "hookspath", "x"}},
		"[Core \"sub\\\"]x\"]\nA=b":   {{"core", "a", "b"}},
		"[core.sub]\na=b":             {{"core", "a", "b"}},
		"[a]\n# x = y\n; z\nb = c # d\ne = \"#\"": {{"a", "b", "c"}, {"a", "e", "#"}},
		"[a]\nb = \"x\\\"y\" z\\\\\\\n  more\nc":  {{"a", "b", "x\"y z\\  more"}, {"a", "c", ""}},
		"\ufeff[a]\r\nb=c\r\nd = e\r\n":           {{"a", "b", "c"}, {"a", "d", "e"}},
		"[a":                                      nil,
		"[a]\nb = c\\":                            {{"a", "b", "c\\"}},
	} {
		if got := parseConfig(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestWords(t *testing.T) {
	for line, want := range map[string][]string{
		"a b": {"a", "b"}, "'a b' c": {"a b", "c", "a", "b"}, `"$PWD/x" ${PWD}/y`: {"x", "y"},
		"!a;b|c&&d": {"a", "b", "c", "d"}, "--hook=x/y": {"--hook=x/y", "x/y"},
		`sh -c 'tools/x.sh; y'`: {"sh", "-c", "tools/x.sh; y", "tools/x.sh", "y"}, `a\ b`: {"a b", "a", "b"}, "": nil,
	} {
		if got := words(line); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, s := range []string{"[core]\n\thooksPath = a\n", "[a \"b\\\"\"]\nc=\"d\\\n", "[a]\nb='x", "=", "[", "\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<12 {
			return
		}
		for _, v := range parseConfig(text) {
			if strings.ContainsAny(v.section+v.key, "\n") {
				t.Errorf("%q", v)
			}
			words(v.value)
		}
	})
}

// TestInvisibleNames: names that some file system (ext4 and f2fs with casefold) does not tell from a protected one.
func TestInvisibleNames(t *testing.T) {
	set, err := (*List)(nil).Of(tree{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{".g\u00adit/config", ".git\ufe0f/hooks/x", ".\u034fenvrc", ".\u017fsh/config",
		".vs\u180ecode/tasks.json", ".v\U000e0041imrc",
		// one letter that these take for two or three
		".gitcon\ufb01g", ".\u00dfh/authorized_keys", ".\u1e9eH/x", ".github/work\ufb02ows/a.yml", "Jenkins\ufb01le",
		".bash_pro\ufb01le", ".con\ufb01g/\ufb01sh/config.fish", ".\u017f\u017fh/x",
	} {
		if _, ok := set.Covers(p); !ok {
			t.Errorf("%q is not protected", p)
		}
	}
}

// TestAHooksPathFromHome: git itself makes ~ of a path its user's home, which may hold the workspace.
func TestAHooksPathFromHome(t *testing.T) {
	s, err := (*List)(nil).Of(files(map[string]string{".git/HEAD": "ref: refs/heads/main\n", ".git/": "",
		".git/config": "[core]\n\thooksPath = ~/proj/githooks\n", "githooks/pre-commit": "#!/bin/sh\n"}),
		"/home/u/proj")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Covers("githooks/pre-commit"); !ok {
		t.Error("githooks/pre-commit, which git runs at the next commit, is not protected")
	}
}
