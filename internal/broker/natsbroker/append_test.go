package natsbroker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestAsk: how soon a request has its answer, when each attempt is answered as late as the table says.
func TestAsk(t *testing.T) {
	const never = time.Hour
	failed := errors.New("no responders")
	for _, c := range []struct {
		name    string
		answers []time.Duration // of each attempt, from when it was made; the last one's hold for all after it
		err     error
		after   time.Duration
		want    error
	}{
		{"near", []time.Duration{time.Millisecond}, nil, time.Millisecond, nil},
		{"far: the answers are late", []time.Duration{5 * time.Second}, nil, 5 * time.Second, nil},
		{"the first attempts went to a leader that is gone", []time.Duration{never, never, never, time.Millisecond},
			nil,
			3*attemptTimeout + time.Millisecond, nil},
		{"an error is an answer", []time.Duration{never, time.Millisecond}, failed, attemptTimeout +
			time.Millisecond, failed},
		{"nobody answers", []time.Duration{never}, nil, longestAttempt, context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				_, err := ask(t.Context(), func(ctx context.Context, before int) (int, error) {
					timer := time.NewTimer(c.answers[min(before, len(c.answers)-1)])
					defer timer.Stop()
					select {
					case <-timer.C:
						return before, c.err
					case <-ctx.Done():
						return 0, ctx.Err()
					}
				})
				if took := time.Since(began); took != c.after || !errors.Is(err, c.want) {
					t.Errorf("after %s: %v; want after %s: %v", took, err, c.after, c.want)
				}
			})
		})
	}
}
