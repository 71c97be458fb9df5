package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// settings are flags of each kind, on one command of two.
type settings struct {
	Name  string
	Count int
	Yes   bool
	Wait  time.Duration
	Rules []string
	Hosts []string
}

// tree makes a command with settings, and another with one of its own.
func tree() (*cobra.Command, *settings) {
	s := &settings{}
	cmd := &cobra.Command{Use: "one", RunE: func(*cobra.Command, []string) error { return nil }}
	cmd.Flags().StringVar(&s.Name, "name", "default", "")
	cmd.Flags().IntVar(&s.Count, "max-count", 10, "")
	cmd.Flags().BoolVar(&s.Yes, "yes", false, "")
	cmd.Flags().DurationVar(&s.Wait, "wait", time.Second, "")
	cmd.Flags().StringArrayVar(&s.Rules, "rule", nil, "")
	cmd.Flags().StringSliceVar(&s.Hosts, "hosts", nil, "")
	other := &cobra.Command{Use: "two", RunE: func(*cobra.Command, []string) error { return nil }}
	other.Flags().String("of-two", "", "")
	root := &cobra.Command{Use: "prog"}
	root.AddCommand(cmd, other)
	WithSettings(root)
	return root, s
}

// pairs is an environment as a process has it.
func pairs(env map[string]string) (out []string) {
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	return out
}

// parse gives the settings that a command line, an environment and a file make together.
func parse(t *testing.T, env map[string]string, file string, args ...string) (settings, error) {
	t.Helper()
	root, s := tree()
	if file != "" {
		path := must.File(t, "settings.yaml", file)
		args = append(args, "--config", path)
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		return apply(cmd, environment(pairs(env)))
	}
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetArgs(append([]string{"one"}, args...))
	err := root.Execute()
	return *s, err
}

func TestWhereSettingsComeFrom(t *testing.T) {
	defaults := settings{Name: "default", Count: 10, Wait: time.Second}
	const file = "name: from the file\nmax-count: 1\nyes: true\nwait: 5s\nrule: [a, 'b(c, d)']\nhosts:\n  - x\n  - " +
		"y\nof-two: ignored here\n"
	fromFile := settings{Name: "from the file", Count: 1, Yes: true, Wait: 5 * time.Second,
		Rules: []string{"a", "b(c, d)"}, Hosts: []string{"x", "y"}}
	change := func(s settings, f func(*settings)) settings { f(&s); return s }
	for _, c := range []struct {
		name string
		env  map[string]string
		file string
		args []string
		want settings
	}{
		{name: "nothing", want: defaults},
		{name: "file", file: file, want: fromFile},
		{name: "one value for a list", file: "rule: a",
			want: change(defaults, func(s *settings) { s.Rules = []string{"a"} })},
		{name: "empty file", file: "\n# nothing\n", want: defaults},
		{name: "environment", env: map[string]string{"TOOLYARD_MAX_COUNT": "2", "TOOLYARD_RULE": "a(b\nc)\n\nd",
			"TOOLYARD_YES": "true", "MAX_COUNT": "9", "TOOLYARD_OF_TWO": "another command's",
			"TOOLYARD_READ_SLOTS": "another program's", "TOOLYARD_DISPATCHER_SERVICE_HOST": "of Kubernetes",
			"TOOLYARD_PORT_8080_TCP_ADDR": "of Docker", "TOOLYARD_IDEMPOTENCY_KEY": "a tool's"},
			want: change(defaults, func(s *settings) {
				s.Count, s.Rules, s.Yes = 2, []string{"a(b", "c)", "d"},
					true
			})},
		{name: "environment over file", file: file, env: map[string]string{"TOOLYARD_NAME": "", "TOOLYARD_RULE": "z",
			"TOOLYARD_HOSTS": ""},
			want: change(fromFile, func(s *settings) { s.Name, s.Rules, s.Hosts = "", []string{"z"}, []string{} })},
		{name: "flag over all", file: file, env: map[string]string{"TOOLYARD_MAX_COUNT": "2", "TOOLYARD_RULE": "z"},
			args: []string{"--max-count=3", "--rule", "f", "--rule", "g", "--yes=false"},
			want: change(fromFile, func(s *settings) { s.Count, s.Rules, s.Yes = 3, []string{"f", "g"}, false })},
		{name: "a flag with its own default over all", env: map[string]string{"TOOLYARD_MAX_COUNT": "2"},
			args: []string{"--max-count", "10"}, want: defaults},
		{name: "a bad value that a flag covers", env: map[string]string{"TOOLYARD_MAX_COUNT": "many"},
			args: []string{"--max-count", "10"}, want: defaults},
	} {
		got, err := parse(t, c.env, c.file, c.args...)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

func TestWrongSettings(t *testing.T) {
	for _, c := range []struct {
		name string
		env  map[string]string
		file string
		args []string
		says []string
	}{
		{name: "environment", env: map[string]string{"TOOLYARD_MAX_COUNT": "many"},
			says: []string{"TOOLYARD_MAX_COUNT", `"many"`}},
		{name: "unknown variable", env: map[string]string{"TOOLYARD_MAX_COUNTS": "2"},
			says: []string{"TOOLYARD_MAX_COUNTS", "did you mean TOOLYARD_MAX_COUNT?"}},
		{name: "unknown variable, of another program", env: map[string]string{"TOOLYARD_REDA_SLOTS": "2"},
			says: []string{"TOOLYARD_REDA_SLOTS", "did you mean TOOLYARD_READ_SLOTS"}},
		{name: "unknown variable like none", env: map[string]string{"TOOLYARD_QQQQQ": "2"},
			says: []string{"TOOLYARD_QQQQQ: there is no such setting; unset it"}},
		{name: "two at once", env: map[string]string{"TOOLYARD_MAX_COUNT": "many", "TOOLYARD_WAIT": "5"},
			says: []string{"TOOLYARD_MAX_COUNT", "TOOLYARD_WAIT"}},
		{name: "no such file", env: map[string]string{"TOOLYARD_CONFIG": "nowhere.yaml"},
			says: []string{"nowhere.yaml", "no such file"}},
		{name: "directory", args: []string{"--config", "."}, says: []string{"not a regular file"}},
		{name: "a file in a file", file: "config: other.yaml",
			says: []string{"settings.yaml", `"config"`, "take it out"}},
		{name: "unknown key", file: "nmae: x", says: []string{"settings.yaml", `"nmae"`, "did you mean name?", "--help"}},
		{name: "value", file: "wait: 5", says: []string{"settings.yaml", `"wait"`, "write a number with its unit"}},
		{name: "list for one value", file: "name: [a, b]", says: []string{`"name"`, "one value, not 2"}},
		{name: "empty list for one value", file: "name: []", says: []string{`"name"`, "one value, not 0"}},
		{name: "mapping", file: "name: x\nrule:\n  a: b", says: []string{"line 3", `"rule"`}},
		{name: "list in a list", file: "rule: [[a]]", says: []string{"line 1", `"rule"`}},
		{name: "no mapping", file: "just text", says: []string{"settings.yaml"}},
		{name: "two documents", file: "name: x\n---\nmax-count: 3\n",
			says: []string{"settings.yaml", "line 2", "more than one document"}},
		{name: "not YAML", file: "name: [", says: []string{"settings.yaml", "line"}},
		{name: "too large", file: strings.Repeat("#", maxConfigBytes+1), says: []string{"at most 1048576 bytes"}},
	} {
		_, err := parse(t, c.env, c.file, c.args...)
		if _, ok := errors.AsType[*UsageError](err); !ok && (err == nil || !strings.Contains(c.name, "two")) {
			t.Errorf("%s: %T %v, want a UsageError", c.name, err, err)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: the error does not say %q: %v", c.name, s, err)
			}
		}
	}
}

func TestEnvName(t *testing.T) {
	if got := EnvName("max-concurrency"); got != "TOOLYARD_MAX_CONCURRENCY" {
		t.Errorf("got %s", got)
	}
}

// TestTheSandboxIsNotTakenAwayByTheEnvironment: what does that stands where an operator reads it. A variable that tries
// is an error, also for a command that has no such flag: its author thinks that it has an effect.
func TestTheSandboxIsNotTakenAwayByTheEnvironment(t *testing.T) {
	for _, tt := range []struct {
		env  map[string]string
		args []string
		want bool
		says string
	}{
		{env: map[string]string{EnvName(unsandboxedFlag): "true"}, args: []string{"x"},
			says: "TOOLYARD_DANGEROUSLY_RUN_UNSANDBOXED: no environment variable sets --dangerously-run-unsandboxed"},
		{env: map[string]string{EnvName(unsandboxedFlag): "true"}, args: []string{"y"},
			says: "no environment variable"},
		{args: []string{"x", "--" + unsandboxedFlag}, want: true},
	} {
		var s Sandbox
		run := func(cmd *cobra.Command, _ []string) error { return apply(cmd, environment(pairs(tt.env))) }
		root := &cobra.Command{Use: "prog"}
		x, y := &cobra.Command{Use: "x", RunE: run}, &cobra.Command{Use: "y", RunE: run}
		root.AddCommand(x, y)
		root.PersistentFlags().String(configFlag, "", "")
		s.Add(x.Flags())
		root.SetArgs(tt.args)
		root.SilenceErrors, root.SilenceUsage = true, true
		err := root.Execute()
		_, usage := errors.AsType[*UsageError](err)
		if s.Unsandboxed != tt.want || usage != (tt.says != "") || usage && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v %v: %t, %v", tt.env, tt.args, s.Unsandboxed, err)
		}
	}
}

// TestAlternatives: of two flags that take each other's place the one that stands nearer counts. Two that stand in the
// same place both count, and the command judges them.
func TestAlternatives(t *testing.T) {
	for _, tt := range []struct {
		name         string
		env          map[string]string
		file         string
		args         []string
		nats, server string
		natsIs       bool // given
	}{
		{name: "none", nats: "default"},
		{name: "flag over environment", env: map[string]string{"TOOLYARD_SERVER": "s"}, args: []string{"--nats", "n"},
			nats: "n", natsIs: true},
		{name: "the other way round", env: map[string]string{"TOOLYARD_NATS": "n"}, args: []string{"--server", "s"},
			nats: "default", server: "s"},
		{name: "environment over file", file: "server: s", env: map[string]string{"TOOLYARD_NATS": "n"}, nats: "n",
			natsIs: true},
		{name: "flag over file", file: "nats: n", args: []string{"--server", "s"}, nats: "default", server: "s"},
		{name: "two flags", args: []string{"--server", "s", "--nats", "n"}, nats: "n", server: "s", natsIs: true},
		{name: "two variables", env: map[string]string{"TOOLYARD_SERVER": "s", "TOOLYARD_NATS": "n"}, nats: "n",
			server: "s", natsIs: true},
		{name: "an empty variable", file: "nats: n", env: map[string]string{"TOOLYARD_SERVER": ""}, nats: "n",
			natsIs: true},
	} {
		cmd := &cobra.Command{Use: "prog", RunE: func(cmd *cobra.Command, _ []string) error {
			return apply(cmd, environment(pairs(tt.env)))
		}}
		nats, server := cmd.Flags().String("nats", "default", ""), cmd.Flags().String("server", "", "")
		cmd.PersistentFlags().String(configFlag, "", "")
		Alternatives(cmd.Flags(), "nats", "server")
		args := append([]string{}, tt.args...)
		if tt.file != "" {
			path := must.File(t, "settings.yaml", tt.file)
			args = append(args, "--config", path)
		}
		cmd.SetArgs(args)
		if err := cmd.Execute(); err != nil || *nats != tt.nats || *server != tt.server ||
			cmd.Flags().Changed("nats") != tt.natsIs {
			t.Errorf("%s: nats %q (given: %t), server %q, %v", tt.name, *nats, cmd.Flags().Changed("nats"), *server,
				err)
		}
	}
}

func TestSandboxFlags(t *testing.T) {
	for name, s := range map[string]Sandbox{
		"backend": {Backend: "docker"}, "uid": {UID: -1}, "memory": {MemoryMiB: -1}, "processes": {Processes: 1 << 30},
		"place": {AllowNet: []string{"example.com"}}, "directory": {Read: []string{"/no/such"}},
	} {
		_, err := (&Worker{Sandbox: s}).Tools()
		if _, ok := errors.AsType[*UsageError](err); !ok || !strings.Contains(err.Error(), "--sandbox") {
			t.Errorf("%s: %T %v", name, err, err)
		}
	}
	s := Sandbox{Backend: "auto", MemoryMiB: 100, Processes: 7, AllowNet: []string{"example.com:443"},
		Read: []string{"."}}
	p, err := s.Policy()
	if err != nil || p.Limits.Memory != 100<<20 || p.Limits.Processes != 7 || len(p.Network.Allow) != 1 ||
		len(p.Read) != 1 || p.Read[0] == "." {
		t.Errorf("%+v %v", p, err)
	}
}
