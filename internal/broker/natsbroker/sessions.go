package natsbroker

import (
	"context"
	"fmt"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
)

func sessionKey(a toolyard.Agent, s toolyard.Session) string {
	return broker.Escape(string(a)) + "." + broker.Escape(string(s))
}

// Session reads a session; one that was never changed is new.
func (b *Broker) Session(ctx context.Context, a toolyard.Agent, s toolyard.Session) (broker.Session, error) {
	v, _, _, err := load[broker.Session](ctx, b.sessions, sessionKey(a, s))
	if err != nil {
		return v, fmt.Errorf("read session %s of %s: %w", s, a, err)
	}
	return v, nil
}

// ChangeSession changes a session with a compare-and-set; change may be called several times. A change that exceeds a
// limit wraps [ErrFull], and is not stored.
func (b *Broker) ChangeSession(ctx context.Context, a toolyard.Agent, s toolyard.Session,
	change func(*broker.Session)) (broker.Session, error) {
	v, _, err := swap(ctx, b.sessions, sessionKey(a, s), seen[broker.Session]{}, false,
		func(v broker.Session) (broker.Session, error) {
			before := v.Changed
			v.Changed = time.Time{}
			change(&v)
			v.Changed = before
			if err := v.Check(); err != nil {
				return v, err
			}
			v.Changed = time.Now().UTC()
			return v, nil
		})
	if err != nil {
		return v, fmt.Errorf("change session %s of %s: %w", s, a, err)
	}
	return v, nil
}
