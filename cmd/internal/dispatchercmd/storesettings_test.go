package dispatchercmd

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestSettingsOfAnEmbeddedServer: the store of an embedded server grows while it runs, also beyond the default, and the
// server starts again on it without being told.
func TestSettingsOfAnEmbeddedServer(t *testing.T) {
	dir := t.TempDir()
	start := func() *node {
		t.Helper()
		n, err := startNode(t.Context(), testenv.Log(t), nodeConfig{store: dir, observed: cli.NewObserved()})
		must.OK(t, err)
		t.Cleanup(n.close)
		return n
	}
	n := start()
	var out bytes.Buffer
	s := &std{out: &out}
	for _, c := range []struct {
		want broker.Settings
		json bool
		says []string
	}{
		{says: []string{"replicas: 1\n", "batch-lifetime: 72h0m0s\n", "ack-wait: 3s\n",
			"max-store-bytes: 34359738368\n", "store-compression: none\n"}},
		{want: broker.Settings{Compression: broker.CompressionS2},
			says: []string{"store-compression: s2 (was none)\n", "from its next start"}},
		{want: broker.Settings{MaxStoreBytes: 64 << 30, Lifetime: 96 * time.Hour},
			says: []string{"batch-lifetime: 96h0m0s (was 72h0m0s)\n",
				"max-store-bytes: 68719476736 (was 34359738368)\n"}},
		{json: true, says: []string{`"batch_lifetime": "96h0m0s"`, `"store_compression": "s2"`, `"max_store_bytes": 68719476736`}},
	} {
		out.Reset()
		must.OK(t, s.settings(t.Context(), n.nc, c.want, c.json))
		for _, says := range c.says {
			if !strings.Contains(out.String(), says) {
				t.Errorf("with %+v it prints no %q:\n%s", c.want, says, out.String())
			}
		}
	}
	n.close()
	if now := start().broker.Settings(); now.MaxStoreBytes != 64<<30 || now.Lifetime != 96*time.Hour {
		t.Errorf("after a new start the settings are %+v", now)
	}
}

func TestSettingsToChange(t *testing.T) {
	want, err := settingsOf([]string{"batch-lifetime=168h", "max-store-bytes=1GiB",
		"store-compression=s2"})
	if err != nil || want != (broker.Settings{Lifetime: 168 * time.Hour, MaxStoreBytes: 1 << 30,
		Compression: broker.CompressionS2}) {
		t.Errorf("they are %+v, %v", want, err)
	}
	for _, bad := range []string{"batch-lifetime=3d", "batch-lifetime", "batch-lifetime=-1h", "max-store-bytes=64GiX",
		"max-store-bytes=-1", "max-store-bytes=0", "store-compression=zstd", "store-compression=", "ack-wait=4s",
		"replicas=3", ""} {
		if _, err := settingsOf([]string{bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
