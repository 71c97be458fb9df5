package deploy

import (
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"golang.org/x/mod/modfile"

	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

const top = "../.."

// project reads compose.yaml as Compose does: a key that it does not know is an error. Nothing of this machine's
// environment counts.
func project(t *testing.T) *types.Project { return projectOf(t, "compose.yaml") }

func projectOf(t *testing.T, files ...string) *types.Project {
	t.Helper()
	var paths []string
	for _, name := range files {
		paths = append(paths, filepath.Join(top, "deploy", name))
	}
	o, err := cli.NewProjectOptions(paths, cli.WithProfiles([]string{"*"}))
	must.OK(t, err)
	p, err := o.LoadProject(t.Context())
	must.OK(t, err)
	return p
}

// services are those of compose.yaml, and of it with compose.large.yaml.
func services(t *testing.T) iter.Seq2[string, types.ServiceConfig] {
	t.Helper()
	large := projectOf(t, "compose.yaml", "compose.large.yaml")
	if len(large.Services) != len(project(t).Services)+1 {
		t.Fatalf("with compose.large.yaml there are the services %v", large.ServiceNames())
	}
	return func(yield func(string, types.ServiceConfig) bool) {
		for _, p := range []*types.Project{project(t), large} {
			for name, s := range p.Services {
				if !yield(name, s) {
					return
				}
			}
		}
	}
}

// TestContainers: each container is hardened and bounded, and each that stays says whether it is well.
func TestContainers(t *testing.T) {
	for name, s := range services(t) {
		for what, ok := range map[string]bool{
			"a user who is not root": s.User == "65532:65532",
			"a read-only root":       s.ReadOnly,
			"no capabilities":        slices.Equal(s.CapDrop, []string{"ALL"}) && len(s.CapAdd) == 0 && !s.Privileged,
			"no-new-privileges":      strings.HasPrefix(s.SecurityOpt[0], "no-new-privileges"),
			"a memory limit":         s.MemLimit > 0,
			"a limit of processes":   s.PidsLimit > 0,
			"a bound on its log":     s.Logging != nil && s.Logging.Options["max-size"] != "",
			"a health check":         s.Restart == "no" || s.HealthCheck != nil,
			"images of one tag":      strings.HasSuffix(s.Image, ":local"),
		} {
			if !ok {
				t.Errorf("%s does not have %s", name, what)
			}
		}
	}
}

// TestNodesHaveTimeToGo: no NATS node is killed while it lets its clients go.
func TestNodesHaveTimeToGo(t *testing.T) {
	nodes := 0
	for name, s := range project(t).Services {
		if s.StopSignal != "SIGUSR2" {
			continue
		}
		nodes++
		if s.StopGracePeriod == nil || time.Duration(*s.StopGracePeriod) < natsd.LameDuck*3/2 {
			t.Errorf("%s has %v to end, and its clients alone take %s", name, s.StopGracePeriod, natsd.LameDuck)
		}
	}
	if nodes != 3 {
		t.Errorf("%d services are told by SIGUSR2", nodes)
	}
}

// TestSecretsAreApart: each kind of container has its own secrets and no other, read-only.
func TestSecretsAreApart(t *testing.T) {
	want := map[string]string{"nats1": "nats1", "nats2": "nats2", "nats3": "nats3", "dispatcher": "dispatcher",
		"worker": "worker", "worker-unsafe": "worker", "worker-gpu": "worker", "cli": "cli", "proxy": ""}
	for name, s := range services(t) {
		if name == "secrets" { // makes them
			continue
		}
		var got []string
		for _, v := range s.Volumes {
			if secret, ok := strings.CutPrefix(v.Source, "secrets-"); ok {
				got = append(got, secret)
				if !v.ReadOnly {
					t.Errorf("%s can write %s", name, v.Source)
				}
			}
		}
		if strings.Join(got, " ") != want[name] {
			t.Errorf("%s has the secrets %q, want %q", name, got, want[name])
		}
	}
}

// TestFlags: each flag and each variable of our commands is one that the command's help has.
func TestFlags(t *testing.T) {
	for name, s := range services(t) {
		program := strings.TrimSuffix(strings.TrimPrefix(s.Image, "toolyard-"), ":local")
		var help string
		switch {
		case name == "cli":
			help = helpOf(t, "./cmd/dispatcher", "submit")
		case program == "dispatcher" || program == "worker":
			help = helpOf(t, "./cmd/"+program, s.Command[0])
		case program == "secrets":
			help = helpOf(t, "./deploy/secrets")
		}
		for _, argument := range s.Command {
			if flag, ok := strings.CutPrefix(argument, "--"); ok && help != "" {
				flag, _, _ = strings.Cut(flag, "=")
				if !hasFlag(help, flag) {
					t.Errorf("%s: the help of %s has no --%s", name, program, flag)
				}
			}
		}
		for variable := range s.Environment {
			flag, ok := strings.CutPrefix(variable, "TOOLYARD_")
			flag = strings.ToLower(strings.ReplaceAll(flag, "_", "-"))
			if ok && !hasFlag(help, flag) {
				t.Errorf("%s: %s is set, and the help of %s has no --%s", name, variable, program, flag)
			}
		}
	}
}

// TestHasFlag is the control of TestFlags.
func TestHasFlag(t *testing.T) {
	help := helpOf(t, "./cmd/worker", "serve")
	if !hasFlag(help, "classes") || hasFlag(help, "class") || hasFlag(help, "no-such-flag") {
		t.Errorf("flags are not told apart in %s", help)
	}
}

func hasFlag(help, name string) bool {
	return regexp.MustCompile(`(?m)^\s+--?` + regexp.QuoteMeta(name) + `\s`).MatchString(help)
}

// helps are the texts that helpOf has got.
var helps sync.Map

func helpOf(t *testing.T, program ...string) string {
	t.Helper()
	name := strings.Join(program, " ")
	if text, ok := helps.Load(name); ok {
		return text.(string)
	}
	cmd := exec.CommandContext(t.Context(), "go", slices.Concat([]string{"run"}, program, []string{"--help"})...)
	cmd.Dir, cmd.Env = top, append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(string(out), "exit status") || len(out) == 0 {
		t.Fatalf("%v: %v\n%s", program, err, out)
	}
	helps.Store(name, string(out))
	return string(out)
}

// TestWorkersHaveRoom: commands in all slots of a worker, each at its limit, leave memory and processes for the worker.
func TestWorkersHaveRoom(t *testing.T) {
	const commandProcesses, own = 128, 256 << 20 // the default of --sandbox-processes, and what a worker itself needs
	for _, name := range []string{"worker", "worker-unsafe"} {
		s := project(t).Services[name]
		number := func(variable string) int64 {
			v := s.Environment[variable]
			if v == nil {
				return 0
			}
			n, err := strconv.ParseInt(*v, 10, 64)
			if err != nil {
				t.Fatalf("%s: %s: %v", name, variable, err)
			}
			return n
		}
		slots := number("TOOLYARD_WRITE_SLOTS") + number("TOOLYARD_READ_SLOTS")
		if want := types.UnitBytes(slots*number("TOOLYARD_SANDBOX_MEMORY")<<20 + own); slots == 0 || s.MemLimit < want {
			t.Errorf("%s has %d slots and %d bytes of memory, want %d", name, slots, s.MemLimit, want)
		}
		if want := slots * commandProcesses; s.PidsLimit < want {
			t.Errorf("%s has %d slots and may have %d processes, want %d", name, slots, s.PidsLimit, want)
		}
	}
}

// TestDockerfile: the stages that compose.yaml names and the arguments that it sets are there, and the Go release is
// that of go.mod.
func TestDockerfile(t *testing.T) {
	f, err := os.Open(filepath.Join(top, "deploy/Dockerfile"))
	must.OK(t, err)
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	parsed, err := parser.Parse(f)
	must.OK(t, err)
	for _, w := range parsed.Warnings {
		t.Error(w.Short)
	}
	stages, global, err := instructions.Parse(parsed.AST, nil)
	must.OK(t, err)
	arguments := map[string]string{}
	for _, command := range global {
		for _, a := range command.Args {
			arguments[a.Key] = a.ValueString()
		}
	}
	for name, s := range project(t).Services {
		if s.Build == nil {
			if name != "cli" {
				t.Errorf("%s has an image that nothing builds", name)
			}
			continue
		}
		if !slices.ContainsFunc(stages, func(st instructions.Stage) bool { return st.Name == s.Build.Target }) {
			t.Errorf("%s is built from the stage %q, which is not there", name, s.Build.Target)
		}
		for key, value := range s.Build.Args {
			if preset, ok := arguments[key]; !ok || value == nil || preset != *value {
				t.Errorf("%s is built with %s=%v, and the Dockerfile's own value is %q", name, key, value, preset)
			}
		}
	}
	content := must.Read(t, filepath.Join(top, "go.mod"))
	module, err := modfile.Parse("go.mod", content, nil)
	must.OK(t, err)
	release := strings.Join(strings.SplitN(module.Go.Version, ".", 3)[:2], ".")
	if got := arguments["GO_IMAGE"]; got != "golang:"+release {
		t.Errorf("the Dockerfile builds with %s, and go.mod says %s", got, module.Go.Version)
	}
}

// TestUpgrade: who follows deploy/README.md has the new version write the accounts of NATS before a node is replaced,
// and so before the processes that need them. No command of an upgrade does so by itself: a node comes without what it
// depends on.
func TestUpgrade(t *testing.T) {
	content := must.Read(t, filepath.Join(top, "deploy/README.md"))
	_, section, _ := strings.Cut(string(content), "\n## Upgrade\n")
	section, _, _ = strings.Cut(section, "\n## ")
	at := -1
	for _, step := range []string{"\n$ export DEPLOY_TAG=", "\n$ docker compose build\n",
		"\n$ docker compose run --rm secrets\n", "--no-deps $node", "dispatcher worker worker-unsafe\n"} {
		next := strings.Index(section, step)
		if next <= at {
			t.Fatalf("%q is not behind the step before it:\n%s", step, section)
		}
		at = next
	}
}
