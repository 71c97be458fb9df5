//go:build unix

package e2e

import (
	"bufio"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestTheUsualMistakes: what is often wrong is said in one line that names it, and says what to do.
func TestTheUsualMistakes(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{"fine.json": fine, "cut.json": `{"calls":[`, "settings.yaml": "max-batchs: 3\n",
		"garbage.creds": "garbage\n", "tokens": "tok-ann ann\n"})
	must.OK(t, errors.Join(os.Chmod(filepath.Join(p.dir, "tokens"), 0o600),
		os.Mkdir(filepath.Join(p.dir, "empty"), 0o700)))
	data := testenv.StoreDir(t)
	d := dispatcher(t, "--data", data, "--token-file", filepath.Join(p.dir, "tokens"))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	defer func() { _ = taken.Close() }()
	port, other := taken.Addr().String(), t.TempDir()
	serve := func(args ...string) []string {
		return append([]string{"serve", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--data", other},
			args...)
	}
	at := func(args ...string) []string { return append(args, "--nats", d.says["nats"]) }
	old := expired(t, filepath.Join(data, "creds"))
	for _, c := range []struct {
		mistake   string
		env, args []string
		status    int
		names     string // the input
		fix       string
	}{
		{"the HTTP port is taken", nil, serve("--listen", port), 2, "--listen " + port,
			"name another address, or port 0"},
		{"the NATS port is taken", nil, serve("--nats-listen", port), 2, "--nats-listen " + port,
			"name another address, or port 0"},
		{"the metrics port is taken", nil, serve("--metrics-listen", port), 2, "--metrics-listen " + port,
			"name another address, or port 0"},
		{"NATS is away", nil, []string{"submit", "--nats", "nats://127.0.0.1:1", "fine.json"}, 1, "nats://127.0.0.1:1",
			"dispatcher serve starts one"},
		{"HTTP is away", nil, []string{"batches", "--server", "http://127.0.0.1:1"}, 1, "http://127.0.0.1:1",
			"refused"},
		{"the wrong data directory", nil, at("batches", "--data", other), 1, other, "with --creds FILE"},
		{"a data directory that is a file", nil, serve("--data", "fine.json"), 2, "--data fine.json", "name one"},
		{"a second server on one data directory", nil, serve("--data", data), 1, data, "stop it, or name another"},
		{"a typo in a flag", nil, []string{"run", "--permision-mode", "plan", "fine.json"}, 2, "--permision-mode",
			"did you mean --permission-mode?"},
		{"a flag of another command", nil, []string{"tools", "--max-batches", "3"}, 2, "--max-batches",
			"it is a flag of dispatcher serve"},
		{"a time without a unit", nil, []string{"run", "--timeout", "10", "fine.json"}, 2, `"10"`, "like 10s"},
		{"a typo in a key", nil, serve("--config", "settings.yaml"), 2, `settings.yaml: key "max-batchs"`,
			"did you mean max-batches?"},
		{"a typo in a tool", nil, []string{"run", "--allow", "raed_file", "fine.json"}, 2, `"raed_file"`,
			`do you mean "read_file"?`},
		{"a typo in a command", nil, []string{"sumbit", "fine.json"}, 2, `"sumbit"`, "did you mean dispatcher submit?"},
		{"a typo in a variable", []string{"TOOLYARD_MAX_CONCURENCY=3"}, []string{"run", "fine.json"}, 2,
			"TOOLYARD_MAX_CONCURENCY", "did you mean TOOLYARD_MAX_CONCURRENCY?"},
		{"a variable that may not set its flag", []string{"TOOLYARD_DANGEROUSLY_RUN_UNSANDBOXED=true"},
			[]string{"run", "fine.json"}, 2, "TOOLYARD_DANGEROUSLY_RUN_UNSANDBOXED", "give the flag"},
		{"two systems", nil, at("batches", "--server", d.says["http"]), 2, "--server and --nats", "leave one out"},
		{"two systems in the environment", []string{"TOOLYARD_NATS=" + d.says["nats"],
			"TOOLYARD_SERVER=" + d.says["http"]}, []string{"batches"}, 2, "--server and --nats", "leave one out"},
		{"a workspace without a directory", nil, serve("--with-worker", "--workspace", "web"), 2, `"web"`,
			"write NAME=DIR"},
		{"a workspace that is not there", nil, []string{"run", "--workspace", "nowhere", "fine.json"}, 2, `"nowhere"`,
			"no such file or directory"},
		{"a malformed batch file", nil, []string{"run", "cut.json"}, 2, "cut.json", "want a value or ']'"},
		{"an unknown format", nil, []string{"run", "--format", "openapi", "fine.json"}, 2, `"openapi"`,
			"use one of native, anthropic, openai"},
		{"a missing file", nil, []string{"run", "missing.json"}, 2, "missing.json", "or - for standard input"},
		{"a bad token", nil, []string{"batches", "--server", d.says["http"], "--token", "wrong"}, 1, d.says["http"],
			"--token"},
		{"no token", nil, []string{"batches", "--server", d.says["http"]}, 1, d.says["http"], "--token"},
		{"https for http", nil, []string{"batches", "--server", strings.Replace(d.says["http"], "http:", "https:",
			1)}, 2,
			"--server https://127.0.0.1", "use http://"},
		{"the NATS server as an HTTP API", nil, []string{"batches", "--server",
			strings.Replace(d.says["nats"], "nats:", "http:", 1)}, 2, "--server http://127.0.0.1",
			"use --nats nats://127"},
		{"the same with https", nil, []string{"batches", "--server",
			strings.Replace(d.says["nats"], "nats:", "https:", 1)}, 2, "--server https://127.0.0.1",
			"use --nats nats://127"},
		{"an HTTP API as the NATS server", nil, []string{"batches", "--nats", d.says["http"]}, 2, "--nats \"http://127",
			"--server"},
		{"a server without a scheme", nil, []string{"batches", "--server", "127.0.0.1:8080"}, 2, `"127.0.0.1:8080"`,
			"use http://127.0.0.1:8080"},
		{"a worker's credentials", nil, at("submit", "--creds", filepath.Join(data, "creds", "worker.creds"),
			"fine.json"), 1, `the credentials are those of workers of pool "default"`, "hand in no batches"},
		{"no call at a time", nil, []string{"run", "--max-concurrency", "0", "fine.json"}, 2, "--max-concurrency 0",
			"use 1 to"},
		{"no time", nil, []string{"run", "--timeout", "0", "fine.json"}, 2, "--timeout 0s", "use at least 1ms"},
		{"no time for a call", []string{"TOOLYARD_CALL_TIMEOUT=0s"}, []string{"run", "fine.json"}, 2,
			"--call-timeout 0s", "use at least 1ms"},
		{"a flag of many commands", nil, serve("--json"), 2, "--json", "and others"},
		{"credentials that are not there", nil, at("batches", "--creds", "nowhere.creds"), 2, "nowhere.creds",
			"dispatcher creds"},
		{"credentials that cannot be read", nil, at("batches", "--creds", "garbage.creds"), 2, "garbage.creds",
			"dispatcher creds"},
		{"a directory without credentials", nil, at("batches", "--creds", "empty"), 2, "empty", "dispatcher creds"},
		{"credentials that ran out", nil, at("batches", "--creds", old), 1, old, "put new ones there"},
		{"no such batch", nil, at("watch", "nope"), 2, "default/nope", "dispatcher batches lists"},
		{"no such batch of an agent", nil, at("watch", "ann/nope"), 2, "ann/nope", "dispatcher batches lists"},
		{"another agent than the batch's", nil, at("watch", "--agent", "bob", "ann/nope"), 2, "ann/nope",
			"leave one out"},
		{"no such approval", nil, at("approve", "nope"), 2, `"nope"`, "dispatcher approvals lists"},
		{"an unknown status", nil, at("batches", "--status", "done"), 2, `"done"`, "completed"},
		{"an address that others reach", nil, serve("--listen", "0.0.0.0:0"), 2, "--listen 0.0.0.0:0", "--token-file"},
		{"a token file that is not there", nil, serve("--token-file", "nowhere"), 2, "nowhere", "docs/http.md"},
	} {
		_, stderr, status := p.run(nil, c.env, c.args...)
		line, whole := strings.CutSuffix(stderr, "\n")
		if status != c.status || !whole || strings.Contains(line, "\n") || !strings.Contains(line, c.names) ||
			!strings.Contains(line, c.fix) {
			t.Errorf("%s: exit status %d, want %d with %q and %q in one line:\n%s", c.mistake, status, c.status, c.names,
				c.fix, stderr)
		}
	}
}

// TestAFlagWinsOverTheVariableOfAnother that says the same thing in another way: what an environment has for other
// commands is in nobody's way.
func TestAFlagWinsOverTheVariableOfAnother(t *testing.T) {
	t.Parallel()
	p := newPlace(t, nil)
	data := testenv.StoreDir(t)
	d := dispatcher(t, "--data", data)
	for _, c := range []struct {
		env  string
		args []string
	}{
		{"TOOLYARD_SERVER=http://127.0.0.1:1", []string{"--nats", d.says["nats"], "--data", data}},
		{"TOOLYARD_NATS=nats://127.0.0.1:1", []string{"--server", d.says["http"]}},
		{"TOOLYARD_NATS_CONTEXT=nobody's", []string{"--server", d.says["http"]}},
		{"TOOLYARD_NATS_CONTEXT=nobody's", []string{"--nats", d.says["nats"], "--data", data}},
		{"TOOLYARD_NATS_NKEY=nowhere", []string{"--nats", d.says["nats"], "--creds", filepath.Join(data, "creds")}},
	} {
		_, stderr, status := p.run(nil, []string{c.env}, append([]string{"batches"}, c.args...)...)
		if status != 0 {
			t.Errorf("%s and %q: exit status %d: %s", c.env, c.args, status, stderr)
		}
	}
}

// TestAWorkerWithoutAWorkspace is no mistake for sure: it starts, and says what that means.
func TestAWorkerWithoutAWorkspace(t *testing.T) {
	t.Parallel()
	p := newPlace(t, nil)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--with-worker"}, "its tools get no directory"},
		{[]string{"--workspace", "default=."}, "--workspace without --with-worker"},
		{nil, "worker serve without --workspace: the worker takes the calls of every workspace, and its tools get no"},
	} {
		cmd := p.command(t.Context(), nil, nil, append([]string{"serve", "--listen", "127.0.0.1:0", "--nats-listen",
			"127.0.0.1:0", "--data", t.TempDir()}, c.args...)...)
		if c.args == nil {
			url := dispatcher(t).says["nats"]
			data, _ := stores.Load(url)
			cmd = p.command(t.Context(), nil, nil, "serve", "--nats", url, "--data", data.(string))
			cmd.Path = filepath.Join(bin, "worker")
		}
		errs, err := cmd.StderrPipe()
		must.OK(t, err)
		must.OK(t, cmd.Start())
		line, err := bufio.NewReader(errs).ReadString('\n')
		if err != nil || !strings.Contains(line, c.says) {
			t.Errorf("%q: %v: %s", c.args, err, line)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait()                                                           // it says below how it ended
		if status := cmd.ProcessState.ExitCode(); status != 0 && status != 130 { // it was ready already, or not yet
			t.Errorf("%q: exit status %d", c.args, status)
		}
	}
}

// TestFailOnError: for a script, a call that failed is the command's own failure.
func TestFailOnError(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{"a.txt": "one\n", "fine.json": fine,
		"bad.json": `{"calls":[{"tool":"read_file","input":{"file_path":"a.txt"}},{"tool":"no_such_tool"}]}`})
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"fine.json"}, 0, ""}, {[]string{"--fail-on-error", "fine.json"}, 0, ""}, {[]string{"bad.json"}, 0,
			""},
		{[]string{"--fail-on-error", "bad.json"}, 1, "1 of 2 calls failed"},
		{[]string{"--fail-on-error", "--json", "bad.json"}, 1, "1 of 2 calls failed"},
		{[]string{"--fail-on-error", "--format", "openai", "bad.json"}, 1, "1 of 2 calls failed"},
	} {
		stdout, stderr, status := p.run(nil, nil, append([]string{"run"}, c.args...)...)
		if status != c.status || !strings.Contains(stderr, c.says) || (c.says == "") != (stderr == "") || stdout == "" {
			t.Errorf("%q: exit status %d, %s", c.args, status, stderr)
		}
	}
	if out := p.ok(nil, "run", "--color", "always", "bad.json"); !strings.Contains(out, "\x1b[31m✗\x1b[0m") {
		t.Errorf("it has no colours: %q", out)
	}
	if out := p.ok([]string{"TOOLYARD_COLOR=never"}, "run", "-v", "bad.json"); strings.Contains(out, "\x1b") ||
		!strings.Contains(out, "resolve_tool") || strings.Contains(p.ok(nil, "run", "bad.json"), "resolve_tool") {
		t.Errorf("the phases belong to -v:\n%s", out)
	}
}
