package broker

import (
	"strings"
	"testing"
	"time"
)

func TestSettingsThatMayChange(t *testing.T) {
	now := time.Unix(1_000_000_000, 0)
	had := Settings{Lifetime: 24 * time.Hour, MaxStoreBytes: 1 << 30}.WithDefaults()
	ago := func(name string, d time.Duration) Content {
		return Content{Name: name, MaxBytes: 1 << 20, Oldest: now.Add(-d)}
	}
	shorter, longer := Settings{Lifetime: time.Hour}, Settings{Lifetime: 48 * time.Hour}
	smaller, larger := Settings{MaxStoreBytes: 1 << 29}, Settings{MaxStoreBytes: 1 << 31}
	full := []Content{{Name: "TY_EVENT", Bytes: 1 << 19, MaxBytes: 1<<20 - 1}}
	both := Settings{Lifetime: 48 * time.Hour, MaxStoreBytes: 1 << 31}
	room := []Content{{Bytes: 1 << 19, MaxBytes: 1<<20 + 200}}
	old := []Content{ago("TY_EVENT", time.Minute), ago("TY_BATCH", 2*time.Hour)}
	for name, c := range map[string]struct {
		want Settings
		in   Stored
		err  string // "": it is allowed
	}{
		"nothing":                          {},
		"a longer life under load":         {longer, Stored{full, true, true}, ""},
		"a larger store under load":        {larger, Stored{full, true, true}, ""},
		"compression under load":           {Settings{Compression: CompressionS2}, Stored{full, true, true}, ""},
		"an unknown compression":           {Settings{Compression: "zstd"}, Stored{}, "use none or s2"},
		"both":                             {both, Stored{full, true, true}, ""},
		"a smaller store with room":        {smaller, Stored{room, true, true}, ""},
		"a smaller store without":          {smaller, Stored{Streams: full}, "TY_EVENT holds 524288 bytes"},
		"a store that is too small":        {Settings{MaxStoreBytes: 1 << 20}, Stored{}, "at least 64 MiB"},
		"a shorter life of an idle system": {shorter, Stored{Streams: []Content{ago("TY_BATCH", 119*time.Minute)}}, ""},
		"a shorter life of an empty one":   {shorter, Stored{Streams: []Content{{Name: "TY_BATCH"}}}, ""},
		"what is too old":                  {shorter, Stored{Streams: old}, "TY_BATCH holds what came 2h0m0s ago"},
		"beside processes":                 {shorter, Stored{Running: true}, "stop all of them"},
		"beside batches":                   {shorter, Stored{UnderWay: true}, "let them end"},
		"a life that is too short":         {Settings{Lifetime: time.Second}, Stored{}, "at least 1m"},
		"other replicas":                   {Settings{Replicas: 3}, Stored{}, "replicas: the system was made with 1"},
		"another ack wait":                 {Settings{CallAckWait: time.Minute}, Stored{}, "call ack wait"},
		"the same replicas and a store":    {Settings{Replicas: 1, MaxStoreBytes: 1 << 31}, Stored{}, ""},
	} {
		next, err := had.With(c.want)
		if err == nil {
			err = had.MayBecome(next, c.in, now)
		}
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, want %q", name, err, c.err)
		}
		if c.err == "" && (c.want.Lifetime != 0 && next.Lifetime != c.want.Lifetime ||
			c.want.MaxStoreBytes != 0 && next.MaxStoreBytes != c.want.MaxStoreBytes ||
			next.CallAckWait != had.CallAckWait || next.Slack != had.Slack) {
			t.Errorf("%s: the settings become %+v", name, next)
		}
	}
}
