package pause

import (
	"net/http"
	"strconv"
	"time"
)

// MaxAsked is the longest pause that a server can ask for: a longer one counts as this.
const MaxAsked = time.Hour

// Asked is the pause that a response's Retry-After asks for, in seconds or as a date; 0 if it asks for none. A date is
// by the server's clock, as the response's own is: only where that is missing does the time here count.
func Asked(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil {
		return time.Duration(min(seconds, uint64(MaxAsked/time.Second))) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if answered, err := http.ParseTime(h.Get("Date")); err == nil {
		now = answered
	}
	return min(max(at.Sub(now), 0), MaxAsked)
}
