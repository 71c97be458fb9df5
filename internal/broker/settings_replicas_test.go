package broker

import (
	"testing"
	"time"
)

// TestASystemOnMoreServers: the waits of a system follow its replicas where they are the defaults, and stay where
// somebody has chosen them. The other settings do not change.
func TestASystemOnMoreServers(t *testing.T) {
	one, three := Settings{}.WithDefaults(), Settings{Replicas: 3}.WithDefaults()
	other := Settings{Lifetime: time.Hour, Shards: 2, Compression: CompressionS2}
	asked := func(n int) Settings {
		s := other
		s.Replicas = n
		return s.WithAckWait(20 * time.Second).WithDefaults()
	}
	for name, c := range map[string]struct {
		have Settings
		n    int
		want Settings
	}{
		"more":                   {one, 3, three},
		"fewer":                  {three, 1, one},
		"as many":                {one, 1, one},
		"unsaid":                 {three, 0, three},
		"more, with an ack wait": {asked(1), 3, asked(3)},
		"fewer, with one":        {asked(3), 1, asked(1)},
	} {
		if got := c.have.WithReplicas(c.n); got != c.want {
			t.Errorf("%s: %+v on %d servers becomes %+v, not %+v", name, c.have, c.n, got, c.want)
		}
	}
	few := Settings{Replicas: 1, CallAckWait: 5 * time.Second}.WithDefaults().WithReplicas(3)
	if err := few.Check(); err == nil {
		t.Errorf("%+v is not refused", few)
	}
}
