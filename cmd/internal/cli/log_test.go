package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// logFlags are the flags as a command line sets them.
func logFlags(t *testing.T, args ...string) *Log {
	t.Helper()
	var l Log
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	l.Add(f)
	must.OK(t, f.Parse(args))
	return &l
}

func TestLogLevels(t *testing.T) {
	for level, lines := range map[string]int{"debug": 2, "info": 1, "warn": 1, "error": 0} {
		for _, format := range []string{"text", "json"} {
			var b bytes.Buffer
			log, err := logFlags(t, "--log-level", level, "--log-format", format).Logger(&b)
			if err != nil {
				t.Errorf("%s %s: %v", level, format, err)
				continue
			}
			log.Debug("a")
			log.Warn("b")
			if got := strings.Count(b.String(), "\n"); got != lines {
				t.Errorf("%s %s: %d lines, want %d", level, format, got, lines)
			}
		}
	}
	for flag, value := range map[string]string{"--log-level": "loud", "--log-format": "xml"} {
		_, err := logFlags(t, flag, value).Logger(nil)
		if _, ok := errors.AsType[*UsageError](err); !ok || !strings.Contains(err.Error(), flag+` "`+value+`"`) {
			t.Errorf("%s %s: %v", flag, value, err)
		}
	}
}

// TestLogJSON: one query finds all lines of a batch and of a call, whichever way the code names the batch.
func TestLogJSON(t *testing.T) {
	var b bytes.Buffer
	log, err := logFlags(t, "--log-format", "json").Logger(&b)
	must.OK(t, err)
	k := toolyard.BatchKey{Agent: "a", ID: "b"}
	log.With("worker", "w").Warn("by its key", "batch", k, "call", 3, "pause", time.Second, "error", errors.New("x\ny"))
	log.With("agent", k.Agent, "batch", k.ID, "call", 3).Warn("by its names", "pause", time.Second)
	log.With("batch", k, "call", 3).Warn("by a key that goes before", "pause", time.Second)
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines: %s", len(lines), b.String())
	}
	for _, line := range lines {
		var got struct {
			Time                       time.Time
			Level, Msg                 string
			Agent, Batch, Pause, Error string
			Call                       int
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil || got.Agent != "a" || got.Batch != "b" ||
			got.Call != 3 || got.Pause != "1s" || got.Level != "WARN" || got.Msg == "" || got.Time.IsZero() {
			t.Errorf("%s: %+v, %v", line, got, err)
		}
	}
}
