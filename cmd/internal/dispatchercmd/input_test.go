package dispatchercmd

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

const oneCall = `{"id":"b","agent":"a","session":"s","calls":[{"id":"c","tool":"grep","input":{}}],"options":{"max_concurrency":2,"timeout_ms":5,"partition":"sequential"}}`

func TestFlagsOverFile(t *testing.T) {
	none := toolyard.Options{Partition: toolyard.Sequential, OnError: toolyard.CancelGroup, MaxConcurrency: 2,
		TimeoutMS: 5}
	for _, c := range []struct {
		name      string
		flags     batchFlags
		workspace toolyard.Workspace
		want      toolyard.Batch
	}{
		{"no flags", batchFlags{}, "", toolyard.Batch{ID: "b", Agent: "a", Session: "s", Workspace: "default",
			Options: none}},
		{"all flags", batchFlags{
			inputFormat: "native", id: "b2", agent: "a2", session: "s2", partition: "safe_first", onError: "continue",
			maxConcurrency: 7,
			timeout:        time.Second, callTimeout: 1500 * time.Microsecond,
		}, "w2", toolyard.Batch{ID: "b2", Agent: "a2", Session: "s2", Workspace: "w2", Options: toolyard.Options{
			Partition: toolyard.SafeFirst, OnError: toolyard.Continue, MaxConcurrency: 7, TimeoutMS: 1000,
			CallTimeoutMS: 1,
		}}},
	} {
		got, err := c.flags.read(t.Context(), strings.NewReader(oneCall), "-", c.workspace)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got.Calls[0].ID != "c" || got.Calls[0].Tool != "grep" {
			t.Errorf("%s: call %+v", c.name, got.Calls[0])
		}
		got.Calls = nil
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
	got, err := new(batchFlags).read(t.Context(), strings.NewReader(`{"calls":[{"tool":"grep"}]}`), "-", "")
	if err != nil || got.ID != "" || got.Agent != "default" || got.Session != "default" || got.Calls[0].ID != "call_1" {
		t.Errorf("a batch without names: %+v, %v", got, err)
	}
}

// saying are the flags of a batch of which one is set to 0.
func saying(t *testing.T, flag string) batchFlags {
	t.Helper()
	var added batchFlags
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	added.add(f)
	must.OK(t, f.Set(flag, "0"))
	return added
}

func TestWrongInput(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags batchFlags
		text  string
		want  string
	}{
		{"not JSON", batchFlags{}, "{", "standard input: the input is not JSON"},
		{"format", batchFlags{inputFormat: "yaml"}, oneCall, `--input-format: "yaml" is not a format`},
		{"forced format", batchFlags{inputFormat: "gemini"}, oneCall, "standard input: "},
		{"short time", batchFlags{timeout: time.Microsecond}, oneCall, "--timeout 1µs: use at least 1ms"},
		{"negative time", batchFlags{callTimeout: -time.Second}, oneCall, "--call-timeout -1s: use at least 1ms"},
		{"name", batchFlags{agent: "a\x00"}, oneCall, "--agent: has the control character U+0000"},
		{"strategy", batchFlags{partition: "nope"}, oneCall, `--partition "nope": use one of`},
		{"no time that is said", saying(t, "timeout"), oneCall, "--timeout 0s: use at least 1ms"},
		{"no time of a call that is said", saying(t, "call-timeout"), oneCall, "--call-timeout 0s: use at least 1ms"},
		{"no concurrency that is said", saying(t, "max-concurrency"), oneCall, "--max-concurrency 0: use 1 to 1000"},
		{"concurrency", batchFlags{maxConcurrency: -1}, oneCall, "--max-concurrency -1: use 1 to 1000"},
	} {
		_, err := c.flags.read(t.Context(), strings.NewReader(c.text), "-", "")
		if _, ok := errors.AsType[*cli.UsageError](err); !ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %T %v, want a UsageError that says %q", c.name, err, err, c.want)
		}
	}
}

// brokenReader fails after its text.
type brokenReader struct{ io.Reader }

func (b brokenReader) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		err = errors.New("the line is dead")
	}
	return n, err
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "in.json")
	must.OK(t, os.WriteFile(path, []byte(oneCall), 0o600))
	if got, err := readFile(t.Context(), nil, path); err != nil || string(got) != oneCall {
		t.Errorf("got %s, %v", got, err)
	}
	if got, err := readFile(t.Context(), strings.NewReader(strings.Repeat(" ", toolyard.MaxBatchBytes)),
		"-"); err != nil || len(got) != toolyard.MaxBatchBytes {
		t.Errorf("at the limit: %d bytes, %v", len(got), err)
	}
	for name, c := range map[string]struct {
		in   io.Reader
		path string
		want string
	}{
		"no name":   {nil, "", "FILE is empty; name a file, or - for standard input"},
		"directory": {nil, dir, "is a directory; name a file"},
		"missing":   {nil, path + "x", "in.jsonx: no such file"},
		"broken":    {brokenReader{strings.NewReader("{")}, "-", "the line is dead"},
		"endless":   {zeros{}, "-", "standard input: the input has more than 16777216 bytes"},
	} {
		_, err := readFile(t.Context(), c.in, c.path)
		if _, ok := errors.AsType[*cli.UsageError](err); !ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %T %v, want a UsageError that says %q", name, err, err, c.want)
		}
	}
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestResultFormat(t *testing.T) {
	for _, name := range []string{"", "native", "anthropic", "openai", "openai-chat", "gemini"} {
		if got, err := resultFormat(name, false); err != nil || string(got) != name {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
	for name, asJSON := range map[string]bool{"anthropic": true, "yaml": false, "Anthropic": false} {
		if _, err := resultFormat(name, asJSON); err == nil || !strings.Contains(err.Error(), "--format") {
			t.Errorf("%q, %t: %v", name, asJSON, err)
		}
	}
}

func TestAFileIsAWholeBatch(t *testing.T) {
	_, err := new(batchFlags).read(t.Context(), strings.NewReader(`{"open":true,"calls":[{"tool":"grep"}]}`), "-", "")
	if _, ok := errors.AsType[*cli.UsageError](err); !ok || !strings.Contains(err.Error(), "open: is true") {
		t.Errorf("an open batch in a file: %v", err)
	}
}
