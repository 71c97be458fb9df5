//go:build unix

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDoctor: each check of a system that is well is a line, and one that is away fails with what to do.
func TestDoctor(t *testing.T) {
	t.Parallel()
	p := newPlace(t, nil)
	d := dispatcher(t, "--with-worker", "--workspace", "default="+p.dir)
	data, _ := stores.Load(d.says["nats"])
	if err := os.Chmod(data.(string), 0o700); err != nil { // as serve makes it
		t.Fatal(err)
	}
	type diagnosis struct {
		Level    string
		Findings []struct{ Check, Level, Says, Fix string }
	}
	look := func(want int, args ...string) (diagnosis, map[string]string) {
		t.Helper()
		stdout, stderr, status := p.run(nil, nil, append([]string{"doctor", "--json"}, args...)...)
		var got diagnosis
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || status != want {
			t.Fatalf("%q: exit status %d, %v: %s%s", args, status, err, stdout, stderr)
		}
		levels := map[string]string{}
		for _, f := range got.Findings {
			levels[f.Check] = f.Level
		}
		return got, levels
	}
	got, levels := look(0, "--nats", d.says["nats"])
	for _, check := range []string{"machine", "data", "credentials", "nats", "clock", "streams", "workers", "versions",
		"dead letters"} {
		if levels[check] != "ok" {
			t.Errorf("%s is %q: %+v", check, levels[check], got)
		}
	}
	if levels["sandbox"] == "" || levels["sandbox"] == "fail" {
		t.Errorf("sandbox: %+v", got)
	}
	if _, levels = look(0, "--server", d.says["http"]); levels["http"] != "ok" || levels["workers"] != "ok" {
		t.Errorf("over HTTP: %v", levels)
	}
	// Others can look into the store: its disk is looked at all the same.
	if err := os.Chmod(data.(string), 0o755); err != nil {
		t.Fatal(err)
	}
	room := 0
	got, _ = look(0, "--nats", d.says["nats"])
	for _, f := range got.Findings {
		if f.Check == "data" && (f.Level == "warn" && strings.HasPrefix(f.Fix, "chmod 700 ") ||
			strings.Contains(f.Says, "MiB are free")) {
			room++
		}
	}
	if room != 2 {
		t.Errorf("a store that others can look into: %+v", got)
	}
	// Credentials that the server takes, and that do not reach what is to be looked at.
	for file, whose := range map[string]string{"agent.creds": `agent "default"`, "worker.creds": `pool "default"`} {
		got, levels = look(1, "--nats", d.says["nats"], "--creds", filepath.Join(data.(string), "creds", file))
		if f := got.Findings[len(got.Findings)-1]; f.Check != "credentials" || f.Level != "fail" ||
			!strings.Contains(f.Says, whose) || !strings.Contains(f.Fix, "operator") || levels["clock"] != "" {
			t.Errorf("%s: %+v", file, got)
		}
	}
	got, levels = look(1, "--nats", "nats://127.0.0.1:1")
	if got.Level != "fail" || levels["nats"] != "fail" || levels["workers"] != "" {
		t.Errorf("no server: %+v", got)
	}
	stdout, stderr, status := p.run(nil, nil, "doctor", "--nats", "nats://127.0.0.1:1")
	if status != 1 || !strings.Contains(stdout, "\nfail  nats ") || !strings.Contains(stderr, "a check has failed") {
		t.Errorf("exit status %d\n%s%s", status, stdout, stderr)
	}
	for line := range strings.Lines(stdout) {
		if len([]rune(line)) > 81 {
			t.Errorf("a line is too long: %s", line)
		}
	}
	// A flag that is wrong is said at the end too, behind what the other checks have found.
	for _, args := range [][]string{{"--nats", d.says["nats"], "--creds", "nowhere"}, {"--sandbox", "none"},
		{"--server", "localhost"}, {"--server", d.says["http"], "--server-ca", "nowhere"}} {
		stdout, stderr, status := p.run(nil, nil, append([]string{"doctor"}, args...)...)
		flag := args[len(args)-2]
		if strings.Contains(stdout, "nowhere") && strings.Count(stdout, "\nfail  ") != 1 {
			t.Errorf("%q: one mistake is more than one finding:\n%s", args, stdout)
		}
		if status != 2 || !strings.Contains(stderr, flag) || strings.Count(stderr, "\n") != 1 ||
			!strings.Contains(stdout, "\nfail  ") || !strings.HasPrefix(stdout, "ok    machine ") {
			t.Errorf("%q: exit status %d\n%s%s", args, status, stdout, stderr)
		}
	}
	if stdout, stderr, status = p.run(nil, nil, "doctor", "--log-level", "x"); status != 2 || stdout != "" ||
		!strings.Contains(stderr, "--log-level") {
		t.Errorf("the log: exit status %d\n%s%s", status, stdout, stderr)
	}
}
