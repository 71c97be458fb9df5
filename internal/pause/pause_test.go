package pause

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := For(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		why := errors.New("it was told to stop")
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(why) })
		if err := For(ctx, time.Minute); !errors.Is(err, why) || time.Since(began) != time.Minute+time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
