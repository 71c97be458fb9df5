package sandbox

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolyard/toolyard/internal/sandbox/stage"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// aMachine is one that no test runs on: a plan looks at nothing else.
func aMachine() *machine {
	return &machine{
		System: []place{{Path: "/usr", Dir: true}, {Path: "/bin", To: "usr/bin"}, {Path: "/etc/ssl/certs", Dir: true},
			{Path: "/etc/ld.so.cache"}},
		Path:    []string{"/usr/local/go/bin", "/opt/tool/bin", "/home/me/bin", "relative", "/usr/bin"},
		Devices: []string{"/dev/null"},
		HostUID: 4242, HostGID: 4243, Namespaces: map[string]string{"pid": "pid:[1]"},
		Limits: kernelLimits{Core: 4, CPU: 0, Data: 2, NProc: 6, NoFile: 7}, Filter: []byte("filter"),
	}
}

// TestTheZeroPolicyIsTheStrictest: everything that a command gets under the zero policy, spelled out. What is not here
// it has not.
func TestTheZeroPolicyIsTheStrictest(t *testing.T) {
	root, spec, err := plan(Policy{}, Command{Argv: []string{"true"}}, aMachine(), nil)
	must.OK(t, err)
	if d := cmp.Diff([]stage.Bind{
		{Source: "/usr", Target: "usr", IsDir: true, ReadOnly: true},
		{Source: "/etc/ssl/certs", Target: "etc/ssl/certs", IsDir: true, ReadOnly: true},
		{Source: "/etc/ld.so.cache", Target: "etc/ld.so.cache", ReadOnly: true},
		{Source: "/dev/null", Target: "dev/null", ReadOnly: true, Device: true},
	}, root.Binds); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"HOME=/tmp", "LANG=C.UTF-8", "LOGNAME=sandbox",
		"PATH=/usr/local/go/bin:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/bin", "TMPDIR=/tmp", "USER=sandbox"},
		spec.Env); d != "" {
		t.Error(d)
	}
	if !root.Build || root.Bytes != DefaultScratch || root.Inodes != 65_536 ||
		!slices.Equal(root.Open, []string{"tmp", "dev/shm"}) || root.UID != 1000 || root.HostUID != 4242 ||
		root.HostGID != 4243 || string(root.Filter) != "filter" {
		t.Errorf("%+v", root)
	}
	if spec.Binds != nil || spec.Files != nil || spec.Workspace != "" || spec.Proxy || spec.Dir != "/tmp" ||
		spec.Memory != DefaultMemory || spec.CPU != 2*DefaultWall {
		t.Errorf("%+v", spec)
	}
	for _, l := range spec.Rlimits {
		if l.Max > 1<<41 || l.Soft > l.Max {
			t.Errorf("limit %d is %d, at most %d", l.Resource, l.Soft, l.Max)
		}
	}
}

func TestPlans(t *testing.T) {
	ws := &leased{dir: "/tmp/a/work", dev: 1, ino: 2, writable: true, protect: []stage.Protected{{Path: ".git"}}}
	p := Policy{
		Read: []string{"/opt/tool"}, Env: map[string]string{"HOME": "/opt"}, Secrets: []Secret{{"token", []byte("x")}},
		Network: Network{Allow: []string{"example.com:443"}},
		Limits:  Limits{Memory: 1 << 20, Wall: time.Second, CPU: 1500 * time.Millisecond, Files: 9, Processes: 3},
	}
	root, spec, err := plan(p, Command{Argv: []string{"x", "y"}}, aMachine(), ws)
	must.OK(t, err)
	if d := cmp.Diff([]stage.Bind{{Source: "/tmp/a/work", Dev: 1, Ino: 2, Target: "tmp/a/work", IsDir: true}},
		spec.Binds); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]stage.Dir{{Path: "tmp/a", Mode: 0o755}}, spec.Dirs); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]stage.File{{Path: "run/secrets/token", Mode: 0o400, Content: []byte("x")}},
		spec.Files); d != "" {
		t.Error(d)
	}
	if !slices.Contains(root.Binds, stage.Bind{Source: "/opt/tool", Target: "opt/tool", IsDir: true, ReadOnly: true}) ||
		!slices.Contains(root.Dirs, stage.Dir{Path: "opt", Mode: 0o755}) {
		t.Errorf("%+v", root)
	}
	env := strings.Join(spec.Env, "\n") + "\n"
	for _, want := range []string{"HOME=/opt\n", "https_proxy=http://127.0.0.1:3128\n",
		"PATH=/usr/local/go/bin:/opt/tool/bin:/usr/bin:"} {
		if !strings.Contains(env, want) {
			t.Errorf("no %q in %s", want, env)
		}
	}
	if strings.Contains(env, "x\n") && strings.Contains(env, "token") || !spec.Proxy || spec.Dir != ws.dir ||
		spec.Workspace != ws.dir || len(spec.Protect) != 1 || spec.Memory != 1<<20 ||
		spec.CPU != 1500*time.Millisecond {
		t.Errorf("%+v", spec)
	}
	for _, l := range spec.Rlimits {
		switch {
		case l.Resource == 2 && l.Max != leastData, l.Resource == 7 && l.Max != 9, l.Resource == 6 && l.Max != 3+
			initProcesses:
			t.Errorf("%+v", l)
		}
	}
	// The same policy has the same root for every command and workspace: that is what makes spares fit.
	again, _, err := plan(p, Command{Argv: []string{"z"}}, aMachine(), nil)
	if d := cmp.Diff(root, again); d != "" || err != nil {
		t.Error(d, err)
	}
}

func TestPlansThatAreRefused(t *testing.T) {
	long := strings.Repeat("x", maxArgBytes)
	for name, tt := range map[string]struct {
		p    Policy
		argv []string
		ws   string
	}{
		"no command": {argv: nil}, "an empty name": {argv: []string{""}}, "NUL": {argv: []string{"a\x00b"}},
		"not UTF-8": {argv: []string{"a", "\xff"}}, "a long argument": {argv: []string{"a", long}},
		"many long arguments":    {argv: slices.Repeat([]string{long[1:]}, 9)},
		"no memory":              {p: Policy{Limits: Limits{Memory: -1}}},
		"all memory":             {p: Policy{Limits: Limits{Memory: MaxMemory + 1}}},
		"negative time":          {p: Policy{Limits: Limits{Wall: -1}}},
		"endless time":           {p: Policy{Limits: Limits{Wall: MaxWall + 1}}},
		"endless CPU":            {p: Policy{Limits: Limits{CPU: 3 * MaxWall}}},
		"many processes":         {p: Policy{Limits: Limits{Processes: MaxProcesses + 1}}},
		"negative files":         {p: Policy{Limits: Limits{Files: -1}}},
		"endless output":         {p: Policy{Limits: Limits{Output: 1 << 50}}},
		"the machine to read":    {p: Policy{Read: []string{"/"}}},
		"sockets to read":        {p: Policy{Read: []string{"/run/user/1000"}}},
		"/proc to read":          {p: Policy{Read: []string{"/proc"}}},
		"a path that climbs":     {p: Policy{Read: []string{"/usr/../root"}}},
		"a relative path":        {p: Policy{Read: []string{"usr"}}},
		"a secret's name":        {p: Policy{Secrets: []Secret{{Name: "../etc/passwd"}}}},
		"a nameless secret":      {p: Policy{Secrets: []Secret{{}}}},
		"many secrets":           {p: Policy{Secrets: make([]Secret, maxSecrets+1)}},
		"an environment's name":  {p: Policy{Env: map[string]string{"A=B": "c"}}},
		"NUL in the environment": {p: Policy{Env: map[string]string{"A": "\x00"}}},
		"a large environment":    {p: Policy{Env: map[string]string{"A": strings.Repeat("x", maxEnvBytes)}}},
		"the machine to work in": {ws: "/"},
		"the system to work in":  {ws: "/etc"},
		"/dev to work in":        {ws: "/dev/shm"},
		"all of /usr to work in": {ws: "/usr"},
	} {
		argv := tt.argv
		if argv == nil && name != "no command" {
			argv = []string{"true"}
		}
		var ws *leased
		if tt.ws != "" {
			ws = &leased{dir: tt.ws}
		}
		if _, _, err := plan(tt.p, Command{Argv: argv}, aMachine(), ws); !errors.Is(err, ErrViolation) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := plan(Policy{}, Command{Argv: []string{"true"}, Dir: "x"}, aMachine(), nil); !errors.Is(err,
		ErrViolation) {
		t.Errorf("a relative directory: %v", err)
	}
	// The control: what lies in the system's directories, and is not one of them, can be a workspace.
	if _, _, err := plan(Policy{}, Command{Argv: []string{"true"}}, aMachine(),
		&leased{dir: "/usr/local/src/x"}); err != nil {
		t.Error(err)
	}
}
