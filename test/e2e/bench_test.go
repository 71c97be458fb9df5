//go:build unix

package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestBench: bench measures a system of its own, and one that runs, beside a floor; it refuses what is not read-only,
// and leaves nothing but its batches.
func TestBench(t *testing.T) {
	t.Parallel()
	p := newPlace(t, nil)
	type times struct {
		Batches   int
		P50       float64 `json:"p50_ms"`
		P99       float64 `json:"p99_ms"`
		CallsPerS float64 `json:"calls_per_second"`
	}
	measure := func(args ...string) (toolyard times, floor *times) {
		t.Helper()
		var got struct {
			Toolyard times
			Floor    *times
		}
		out := p.ok(nil, append([]string{"bench", "--json", "--for", "100ms", "--rounds", "1", "--calls", "3"},
			args...)...)
		must.OK(t, json.Unmarshal([]byte(out), &got))
		for _, m := range []*times{&got.Toolyard, got.Floor} {
			if m != nil && (m.Batches < 1 || m.P50 <= 0 || m.P99 < m.P50 || m.CallsPerS <= 0) {
				t.Errorf("%q: %s", args, out)
			}
		}
		return got.Toolyard, got.Floor
	}
	if _, floor := measure(); floor == nil {
		t.Error("there is no floor")
	}
	text := p.ok(nil, "bench", "--for", "50ms", "--rounds", "1", "--at-a-time", "2")
	for _, want := range []string{"calls a second\n", "\n  toolyard  ", "\n  floor     ", "\n  ratio     "} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not print %q:\n%s", want, text)
		}
	}
	d := dispatcher(t, "--with-worker", "--workspace", "default="+p.dir)
	streams := func() (names []string) {
		nc, err := nats.Connect(d.says["nats"], credsFor(t, d.says["nats"], "dispatcher"))
		must.OK(t, err)
		defer nc.Close()
		js, err := jetstream.New(nc)
		must.OK(t, err)
		all := js.StreamNames(t.Context())
		for name := range all.Name() {
			names = append(names, name)
		}
		must.OK(t, all.Err())
		return names
	}
	before := streams()
	if _, floor := measure("--nats", d.says["nats"]); floor == nil {
		t.Error("there is no floor")
	}
	if after := streams(); len(before) == 0 || len(after) != len(before) {
		t.Errorf("streams before %q, after %q", before, after)
	}
	if _, floor := measure("--server", d.says["http"]); floor != nil {
		t.Error("there is a floor over HTTP")
	}
	if out := p.ok(nil, "batches", "--nats", d.says["nats"], "--agent", "bench", "--status", "completed", "--limit",
		"1"); !strings.Contains(out, "bench") {
		t.Errorf("its batches are not there:\n%s", out)
	}
	// An agent's credentials hand in batches under its name alone.
	data, _ := stores.Load(d.says["nats"])
	creds := strings.TrimSpace(p.ok(nil, "creds", "--agent", "re viewer", "--data", data.(string)))
	if _, floor := measure("--nats", d.says["nats"], "--creds", creds); floor != nil {
		t.Error("an agent's credentials make streams")
	}
	if out := p.ok(nil, "batches", "--nats", d.says["nats"], "--agent", "re viewer", "--limit", "1"); !strings.Contains(
		out, "re viewer") {
		t.Errorf("the batches are not those of the agent of the credentials:\n%s", out)
	}
	for _, c := range []struct{ args []string }{
		{[]string{"--tool", "write_file", "--input", `{"file_path": "x", "content": "y"}`}},
		{[]string{"--tool", "no_such_tool"}}, {[]string{"--calls", "0"}}, {[]string{"--input", "{"}},
	} {
		stdout, stderr, status := p.run(nil, nil, append([]string{"bench", "--for", "50ms"}, c.args...)...)
		refused(t, stdout, stderr, status, c.args[0])
	}
}
