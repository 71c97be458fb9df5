package broker

import (
	"testing"
	"time"
)

// TestFollows: a dispatcher that hears of a delivery right behind its own cannot tell how long that has waited for it.
// So nothing is known when it had lost the submission before.
func TestFollows(t *testing.T) {
	late := Settings{}.WithDefaults().BatchAckWait
	for name, c := range map[string]struct {
		silent     time.Duration
		deliveries uint64
		want       bool
	}{
		"the next one":                      {0, 2, true},
		"another one was between":           {0, 3, false},
		"the next one, but this was silent": {late, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			first := (&Submission{Wait: late, Deliveries: 1}).Received(time.Now().Add(-c.silent))
			second := (&Submission{Wait: late, Deliveries: c.deliveries}).Received(time.Now())
			if got := second.Follows(first); got != c.want {
				t.Errorf("it follows: %v, want %v", got, c.want)
			}
		})
	}
}
