package cli

import (
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"testing"

	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestMemory: a flag comes before the runtime's variable, and that before the default.
func TestMemory(t *testing.T) {
	gc, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetGCPercent(gc); debug.SetMemoryLimit(limit) })
	for _, tt := range []struct {
		name    string
		env     map[string]string
		args    []string
		percent int
		limit   int64 // 0: whatever the machine has
	}{
		{"defaults", nil, nil, DefaultGCPercent, 0},
		{"flags", nil, []string{"--gc-percent", "300", "--memory-limit", "900000000"}, 300, 900_000_000},
		{"variables", map[string]string{"GOGC": "77", "GOMEMLIMIT": "1GiB"}, nil, 77, math.MaxInt64},
		{"both", map[string]string{"GOGC": "77", "GOMEMLIMIT": "1GiB"},
			[]string{"--gc-percent", "150", "--memory-limit", "800000000"}, 150, 800_000_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			debug.SetGCPercent(77) // as the runtime has read GOGC
			debug.SetMemoryLimit(math.MaxInt64)
			for _, k := range []string{"GOGC", "GOMEMLIMIT"} {
				t.Setenv(k, tt.env[k]) // also restores it
				if tt.env[k] == "" {
					must.OK(t, os.Unsetenv(k))
				}
			}
			var m Memory
			f := pflag.NewFlagSet("", pflag.ContinueOnError)
			m.Add(f)
			must.OK(t, f.Parse(tt.args))
			must.OK(t, m.Apply(slog.New(slog.DiscardHandler)))
			// Without a setting, a collection may have raised it meanwhile.
			free := len(tt.args) == 0 && tt.env == nil
			if got := debug.SetGCPercent(100); got != tt.percent && (!free || got < tt.percent) {
				t.Errorf("gc percent %d, want %d", got, tt.percent)
			}
			if got := debug.SetMemoryLimit(-1); tt.limit > 0 && got != tt.limit {
				t.Errorf("memory limit %d, want %d", got, tt.limit)
			}
		})
	}
	for _, bad := range []Memory{{gcPercent: -1}, {limit: -1}} {
		if err := bad.Apply(slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
