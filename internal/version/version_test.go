package version

import (
	"runtime/debug"
	"testing"
)

func TestBuildOf(t *testing.T) {
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
		if got := buildOf(&c.info); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
