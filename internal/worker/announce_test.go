package worker

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// counting is a log that counts the lines about announcements, without those for debugging.
type counting struct {
	slog.Handler
	lines *atomic.Int32
}

func (c counting) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo && strings.Contains(r.Message, "announced") {
		c.lines.Add(1)
	}
	return c.Handler.Handle(ctx, r)
}

func (c counting) WithAttrs(attrs []slog.Attr) slog.Handler {
	return counting{c.Handler.WithAttrs(attrs), c.lines}
}

// TestToolsThatCannotBeAnnounced: while there is no room for what a worker offers, it tries at each heartbeat, and the
// log says that once, and that it is over.
func TestToolsThatCannotBeAnnounced(t *testing.T) {
	settings := broker.Settings{MaxStoreBytes: 256 << 20, Lifetime: time.Minute, Slack: 10 * time.Second}
	bubble.Run(t, settings, func(e *bubble.Env) {
		made, err := tool.New(tool.Typed[struct{}, string]{Declaration: tool.Declaration{Name: "read",
			Description: "A tool of a test.", Class: tool.ClassRule{Static: toolyard.ReadOnly}},
			Run: func(context.Context, tool.Env, struct{}) (string, error) { return "", nil }})
		must.OK(e.T, err)
		lines := new(atomic.Int32)
		w, err := New(e.Broker("w"), Config{ID: "w", Tools: []tool.Tool{made}, Origin: registry.Toolset,
			Mode: policy.Bypass, DrainGrace: time.Second, Log: slog.New(counting{e.Log().Handler(), lines})})
		must.OK(e.T, err)
		e.Start(w)
		e.Server.Fill("OBJ_ty_blob", true)
		time.Sleep(10 * time.Minute)
		if n := lines.Load(); n != 1 {
			t.Errorf("the log has %d lines, want 1", n)
		}
		e.Server.Fill("OBJ_ty_blob", false)
		time.Sleep(time.Minute)
		if n := lines.Load(); n != 2 {
			t.Errorf("with room again the log has %d lines, want 2", n)
		}
	})
}
