package natsbroker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/testenv"
)

// TestNothingIsKeptForLater: what is published while the connection is lost fails, and is not sent when it is back.
func TestNothingIsKeptForLater(t *testing.T) {
	s := testenv.Restartable(t)
	nc := testenv.Conn(t, s.Server)
	lost, back := nc.StatusChanged(nats.RECONNECTING), nc.StatusChanged(nats.CONNECTED)
	s.Shutdown()
	<-lost
	if err := nc.Publish("kept", nil); !errors.Is(err, nats.ErrReconnectBufExceeded) {
		t.Errorf("without a connection: %v", err)
	}
	s.Start()
	<-back
	if err := nc.Publish("sent", nil); err != nil {
		t.Error(err)
	}
}

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
