package shard

import (
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestYoung: a map is read again after a while, also when the machine was suspended for it and its monotonic clock
// stood still, or somebody has set the clock back.
func TestYoung(t *testing.T) {
	t.Parallel()
	read := time.Now()
	for name, tt := range map[string]struct {
		now  time.Time
		want bool
	}{
		"at once":                       {read, true},
		"later":                         {read.Add(freshFor + 1), false},
		"after a suspended machine":     {must.Step(t, read, 10*time.Minute), false},
		"later, and the clock is set":   {must.Step(t, read.Add(freshFor+1), -time.Hour), false},
		"at once, and the clock is set": {must.Step(t, read, -time.Hour), true},
	} {
		if got := Young(read, tt.now); got != tt.want {
			t.Errorf("%s a map is young: %t", name, got)
		}
	}
}
