package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRetryFull(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	stop := errors.New("stop")
	for name, c := range map[string]struct {
		answers []error
		after   time.Duration // ctx ends; 0: never
		want    []error       // what the error wraps; nil: there is none
		tries   int
	}{
		"at once":     {answers: []error{nil}, tries: 1},
		"room later":  {answers: []error{ErrFull, fmt.Errorf("wrapped: %w", ErrFull), nil}, tries: 3},
		"other error": {answers: []error{ErrFull, ErrConflict}, want: []error{ErrConflict}, tries: 2},
		"the end": {answers: []error{ErrFull, ErrFull, ErrFull}, after: fullPause +
			fullPause/2, want: []error{stop, ErrFull}, tries: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if c.after > 0 {
					time.AfterFunc(c.after, func() { cancel(stop) })
				}
				tries := 0
				err := RetryFull(ctx, log, func() error { tries++; return c.answers[tries-1] })
				if tries != c.tries || (err == nil) != (c.want == nil) {
					t.Errorf("%d tries, %v", tries, err)
				}
				for _, want := range c.want {
					if !errors.Is(err, want) {
						t.Errorf("%v is no %v", err, want)
					}
				}
			})
		})
	}
}

// TestAFullStreamIsToldOnce: the log says once that a stream is full, however long that lasts, and again when it is
// another one.
func TestAFullStreamIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		tries := 0
		err := RetryFull(t.Context(), slog.New(slog.NewTextHandler(&out, nil)), func() error {
			switch tries++; {
			case tries <= 10:
				return ErrFull
			case tries <= 20:
				return fmt.Errorf("another one: %w", ErrFull)
			}
			return nil
		})
		if n := strings.Count(out.String(), "waiting for room"); n != 2 || err != nil {
			t.Errorf("%d lines, %v:\n%s", n, err, out.String())
		}
	})
}
