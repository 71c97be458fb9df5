package natsbroker

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// longestAckDelay is how long a message that is done may stay in the queue, or a twentieth of its ack wait.
const longestAckDelay = 50 * time.Millisecond

// lateAck acknowledges a message of a lane when the next one is done, when its delay is over, or when the lane stops.
// While short calls come one after the other, the queue is then never empty. The server makes a new file each time that
// a stream loses its last message, and deletes the former one: that took a quarter of its time. An acknowledgement that
// is lost costs a delivery, as before; the calls are then found to be answered.
type lateAck struct {
	delay time.Duration

	mu      sync.Mutex
	held    *nats.Msg // done, and not acknowledged; nil: none
	timer   *time.Timer
	stopped bool
	failed  error // of acknowledgements that nobody waited for
}

func newLateAck(ackWait time.Duration) *lateAck {
	return &lateAck{delay: min(longestAckDelay, ackWait/20)}
}

// done has a message acknowledged, and returns why an earlier one was not.
func (l *lateAck) done(m *nats.Msg) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ack()
	switch l.held = m; {
	case l.stopped:
		l.ack()
	case l.timer == nil:
		l.timer = time.AfterFunc(l.delay, l.flush)
	default:
		l.timer.Reset(l.delay)
	}
	failed := l.failed
	l.failed = nil
	return failed
}

func (l *lateAck) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ack()
}

// stop acknowledges what is held. From then on nothing waits.
func (l *lateAck) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	l.ack()
	if l.timer != nil {
		l.timer.Stop()
	}
}

func (l *lateAck) ack() {
	if l.held == nil {
		return
	}
	if err := l.held.Ack(); err != nil {
		l.failed = errors.Join(l.failed, fmt.Errorf("acknowledge %s: %w", l.held.Subject, err))
	}
	l.held = nil
}
