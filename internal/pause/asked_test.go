package pause

import (
	"net/http"
	"testing"
	"time"
)

// TestAsked: a pause is asked for in seconds, or until a date by the server's clock.
func TestAsked(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for value, want := range map[string]time.Duration{"": 0, "7": 7 * time.Second, "-1": 0, "soon": 0, "1.5": 0,
		"9999999999": MaxAsked, "18446744073709551615": MaxAsked, "99999999999999999999": 0,
		at(90 * time.Second): 90 * time.Second, at(-time.Minute): 0, at(48 * time.Hour): MaxAsked} {
		h := http.Header{}
		if value != "" {
			h.Set("Retry-After", value)
		}
		if got := Asked(h, now); got != want {
			t.Errorf("%q is a pause of %s, want %s", value, got, want)
		}
		h.Set("Date", at(0))
		for _, apart := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
			if got := Asked(h, now.Add(apart)); got != want {
				t.Errorf("%q is a pause of %s by a clock that is off by %s, want %s", value, got, apart, want)
			}
		}
	}
}
