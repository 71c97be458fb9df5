package natsbroker_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/testenv"
)

// TestManyWaitWhilePresent: one check serves all waiting requests, and each gets an error when NATS is gone.
func TestManyWaitWhilePresent(t *testing.T) {
	s := testenv.Restartable(t)
	b := testenv.Broker(t, s.Server, "/test")
	const many = 1_000
	before := runtime.NumGoroutine()
	ended := make(chan error, many)
	for range many {
		ctx, stop := b.WhilePresent(t.Context())
		stop() // and another one waits at once
		ctx, stop = b.WhilePresent(t.Context())
		t.Cleanup(stop)
		go func() {
			<-ctx.Done()
			ended <- context.Cause(ctx)
		}()
	}
	if extra := runtime.NumGoroutine() - before - many; extra > many/2 {
		t.Errorf("%d goroutines beside those of the test", extra)
	}
	s.Shutdown()
	for range many {
		if err := <-ended; !errors.Is(err, broker.ErrNoAnswer) {
			t.Fatalf("ended with %v, want ErrNoAnswer", err)
		}
	}
}
