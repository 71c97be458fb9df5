package natsbroker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/testenv"
)

// TestASubmissionThatNobodyAnswers: after the error, the batch is not sent later by the client library, and may be
// submitted again under the same id.
func TestASubmissionThatNobodyAnswers(t *testing.T) {
	s := testenv.Restartable(t)
	b := testenv.Broker(t, s.Server, "/test")
	s.Shutdown()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond,
		fmt.Errorf("%w in 300 ms", broker.ErrNoAnswer))
	defer cancel()
	if err := b.Submit(ctx, submission("b")); !errors.Is(err, broker.ErrNoAnswer) {
		t.Fatalf("a submission while NATS is away: %v; want ErrNoAnswer", err)
	}
	s.Start()
	other := submission("other") // on the same connection, behind whatever was kept for it
	if err := b.Submit(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	again := submission("b")
	if stored, err := b.Submitted(t.Context(), again.Key()); err != nil || stored {
		t.Errorf("the batch was not acknowledged, and is stored: %t, %v", stored, err)
	}
	if err := b.Submit(t.Context(), again); err != nil {
		t.Errorf("the same batch again: %v", err)
	}
	if stored, err := b.Submitted(t.Context(), again.Key()); err != nil || !stored {
		t.Errorf("the batch was acknowledged, and is stored: %t, %v", stored, err)
	}
}
