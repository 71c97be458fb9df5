package dispatcher

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestUnreadableToolsAreLoggedOnce: the tools of the worker w cannot be read at any of its heartbeats. The log says so
// once, and again when the worker has left and come back.
func TestUnreadableToolsAreLoggedOnce(t *testing.T) {
	inYard(t, func(y *yard) {
		var log bytes.Buffer
		d := y.dispatcher("d", func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		ttl := y.b.Settings().WorkerTTL
		time.Sleep(3 * ttl)
		y.still()
		time.Sleep(3 * ttl)
		y.beat("w")
		time.Sleep(3 * ttl)
		d.End()
		if n := strings.Count(log.String(), "tools cannot be read"); n != 2 {
			t.Errorf("%d lines about one worker's tools:\n%s", n, log.String())
		}
	})
}
