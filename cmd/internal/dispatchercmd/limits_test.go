package dispatchercmd

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestLimits: the command lists constants and settings with values, units and flags, all of them or those with some
// words.
func TestLimits(t *testing.T) {
	t.Parallel()
	run := func(args ...string) (string, string, int) {
		var out, errs bytes.Buffer
		status := cli.Main(Command(strings.NewReader(""), &out, &errs), append([]string{"limits"}, args...), &errs)
		return out.String(), errs.String(), status
	}
	list := func(args ...string) (all []limit) {
		t.Helper()
		out, errs, status := run(append(args, "--json")...)
		if status != cli.ExitOK {
			t.Fatalf("limits %q ends with %d: %s", args, status, errs)
		}
		must.OK(t, json.Unmarshal([]byte(out), &all))
		return all
	}
	all := list()
	find := func(pkg, name string) (found limit) {
		for _, l := range all {
			if l.Package == pkg && l.Name == name {
				found = l
			}
		}
		return found
	}
	for _, want := range []limit{
		{Package: "toolyard", Name: "MaxCallsPerBatch", Value: toolyard.MaxCallsPerBatch, Unit: "count"},
		{Package: "toolyard", Name: "MaxBatchBytes", Value: toolyard.MaxBatchBytes, Unit: "bytes"},
		{Package: "toolyard", Name: "DefaultMaxConcurrency", Value: toolyard.DefaultMaxConcurrency, Unit: "count",
			Flag: "--max-concurrency"},
		{Package: "internal/dispatcher", Name: "DefaultMaxBatches", Value: dispatcher.DefaultMaxBatches, Unit: "count",
			Flag: "--max-batches"},
		{Package: "internal/dispatcher", Name: "DefaultWorkerWait", Value: dispatcher.DefaultWorkerWait.Milliseconds(),
			Unit: "ms", Flag: "--worker-wait"},
		{Package: "settings", Name: "CallAckWait", Value: 3_000, Replicated: 10_000, Unit: "ms", Flag: "--ack-wait"},
	} {
		got := find(want.Package, want.Name)
		if got.Bounds == "" {
			t.Errorf("%s says nothing of what it bounds", want.Name)
		}
		if got.Bounds = ""; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	for _, l := range all {
		if l.Flag == "" {
			continue
		}
		known := false
		for _, name := range []string{"serve", "run", "submit"} {
			sub, _, err := Command(strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}).Find([]string{name})
			must.OK(t, err)
			known = known || sub.Flags().Lookup(strings.TrimPrefix(l.Flag, "--")) != nil
		}
		if !known && l.Flag != "--limit" { // of dispatcher dead
			t.Errorf("%s names the flag %s, which no command has", l.Name, l.Flag)
		}
	}
	if some := list("internal/api", "stream"); len(some) == 0 || len(some) >= len(all) {
		t.Errorf("two words find %d of %d limits", len(some), len(all))
	}
	for _, l := range list("settings") {
		if l.Package != "settings" {
			t.Errorf("a package's name finds %+v", l)
		}
	}
	out, _, _ := run("MaxCallsPerBatch")
	if !strings.Contains(out, "toolyard\n  MaxCallsPerBatch  10,000  calls in one batch\n") ||
		!strings.HasSuffix(out, "\n1 limit\n") {
		t.Errorf("a person sees:\n%s", out)
	}
	if out, errs, status := run("no-such-limit"); status != cli.ExitUsage || out != "" ||
		!strings.Contains(errs, "no-such-limit") {
		t.Errorf("an unknown word: %d, %q, %q", status, out, errs)
	}
}

// TestQuantities: values are written as people write them.
func TestQuantities(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n    int64
		unit string
		want string
	}{
		{0, "count", "0"}, {999, "count", "999"}, {1_000, "count", "1,000"}, {1_234_567, "count", "1,234,567"},
		{1 << 20, "bytes", "1 MiB"}, {32 << 30, "bytes", "32 GiB"}, {1_000, "bytes", "1,000 bytes"},
		{85, "percent", "85 %"},
		{50_000, "chars", "50,000 chars"}, {50, "ms", "50ms"}, {1_500, "ms", "1.5s"}, {60_000, "ms", "1m"},
		{3_600_000, "ms", "1h"}, {259_200_000, "ms", "72h"}, {90_000, "ms", "1m30s"},
	} {
		if got := quantity(c.n, c.unit); got != c.want {
			t.Errorf("%d %s is %q, want %q", c.n, c.unit, got, c.want)
		}
	}
}
