package version

import (
	"runtime/debug"
	"testing"
)

func TestRelease(t *testing.T) {
	ours := func(version string) debug.Module { return debug.Module{Path: modulePath, Version: version} }
	replaced := ours("v1.2.3")
	replaced.Replace = &debug.Module{Path: "../toolyard"}
	v := ours("v1.2.3")
	for name, c := range map[string]struct {
		info debug.BuildInfo
		want string
	}{
		"our own command":        {debug.BuildInfo{Main: ours("v1.2.3")}, "v1.2.3"},
		"a build that says none": {debug.BuildInfo{Main: ours("")}, "(devel)"},
		"somebody else's program": {debug.BuildInfo{Main: debug.Module{Path: "example.com/agent", Version: "v9.0.0"},
			Deps: []*debug.Module{&v}}, "v1.2.3"},
		"with its own copy of us": {debug.BuildInfo{Main: debug.Module{Path: "example.com/agent", Version: "v9.0.0"},
			Deps: []*debug.Module{&replaced}}, "(devel)"},
	} {
		if got := infoOf(&c.info).Release; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestCommit: one word names release and commit, and each of them once.
func TestCommit(t *testing.T) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	checkout := func(path, version string) debug.BuildInfo {
		return debug.BuildInfo{Main: debug.Module{Path: path, Version: version}, Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: commit}, {Key: "vcs.time", Value: "2026-11-23T10:00:00Z"},
			{Key: "vcs.modified", Value: "true"}}}
	}
	for name, c := range map[string]struct {
		info   debug.BuildInfo
		build  string
		commit string
	}{
		"a release from its checkout": {checkout(modulePath, "v1.2.3"), "v1.2.3+0123456789ab", commit},
		"between two releases": {checkout(modulePath, "v1.2.4-0.20261123100000-0123456789ab"),
			"v1.2.4-0.20261123100000-0123456789ab", commit},
		"a release with changes": {checkout(modulePath, "v1.2.3+dirty"), "v1.2.3+dirty.0123456789ab", commit},
		"no tag, and no version": {checkout(modulePath, "(devel)"), "(devel)+0123456789ab", commit},
		"as go install makes it": {debug.BuildInfo{Main: debug.Module{Path: modulePath, Version: "v1.2.3"}}, "v1.2.3",
			""},
		"the commit of somebody else's program": {checkout("example.com/agent", "v9.0.0"), "(devel)", ""},
		"nothing at all":                        {debug.BuildInfo{}, "(devel)", ""},
	} {
		got := infoOf(&c.info)
		if got.Build() != c.build || got.Commit != c.commit {
			t.Errorf("%s: %q of commit %q, want %q of %q", name, got.Build(), got.Commit, c.build, c.commit)
		}
		if got.Go == "" || got.Platform == "" || got.Wire != Wire {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
