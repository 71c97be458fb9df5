package natsbroker_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
)

// TestPoolsAreBounded: past so many pools no more consumers are made, and a pool that nobody serves for longer than any
// batch lives makes room for another.
func TestPoolsAreBounded(t *testing.T) {
	bubble.Run(t, broker.Settings{MaxStoreBytes: 256 << 20}, func(e *bubble.Env) {
		b := e.Broker("test")
		const most = 8
		b.LimitPools(most)
		open := func(pool int) (err error) {
			for _, class := range toolyard.Classes {
				for number := range broker.Lanes {
					r := batch.Route{Pool: toolyard.Pool(fmt.Sprint("pool", pool)), Class: class}
					l, failed := b.Lane(e.Context(), r, number, nil)
					if failed != nil {
						return failed
					}
					l.Stop()
				}
			}
			return nil
		}
		for pool := range most {
			if err := open(pool); err != nil {
				t.Fatal(err)
			}
		}
		err := open(most)
		if !errors.Is(err, broker.ErrFull) || !strings.Contains(err.Error(), `"pool8"`) {
			t.Errorf("one pool more: %v", err)
		}
		if err := open(0); err != nil {
			t.Errorf("a pool that is there: %v", err)
		}
		time.Sleep(b.Settings().Lifetime + 2*b.Settings().Slack)
		if err := open(most); err != nil {
			t.Errorf("when nobody has served the others for longer than batches live: %v", err)
		}
	})
}
