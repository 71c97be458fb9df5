package worker

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/tool"
)

// counted is a meter that keeps what it is told.
type counted struct {
	mu   sync.Mutex
	ran  []toolyard.Code
	lost int
}

func (c *counted) Ran(r *toolyard.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ran = append(c.ran, r.Code)
}

func (c *counted) LeaseLost() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost++
}

// TestACallIsCounted once, by its code, and it has a slot while it runs.
func TestACallIsCounted(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	b := newBench(t, toolyard.ReadOnly, func(context.Context, tool.Env) (string, error) {
		close(began)
		<-goOn
		return "done", nil
	})
	meter := &counted{}
	b.w.cfg.Meter = meter // before there is a call
	if l := b.w.Load(); !l.Registered || l.Slots[toolyard.ReadOnly] != DefaultReadSlots ||
		l.Busy[toolyard.ReadOnly] != 0 {
		t.Errorf("before the call: %+v", l)
	}
	b.hand(look)
	<-began
	if l := b.w.Load(); l.Busy[toolyard.ReadOnly] != 1 || l.Busy[toolyard.Unsafe] != 0 {
		t.Errorf("while it runs: %+v", l)
	}
	close(goOn)
	b.end()
	meter.mu.Lock()
	defer meter.mu.Unlock()
	if len(meter.ran) != 1 || meter.ran[0] != toolyard.OK || meter.lost != 0 {
		t.Errorf("counted were %q, and %d lost leases", meter.ran, meter.lost)
	}
}

// TestALostLeaseIsCounted, and no result of the call.
func TestALostLeaseIsCounted(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	b := newBench(t, toolyard.WriteExclusive, func(_ context.Context, env tool.Env) (string, error) {
		close(began)
		<-goOn
		return "", env.CommitPoint()
	})
	meter := &counted{}
	b.w.cfg.Meter = meter
	b.hand(write)
	<-began
	b.w.registered.lapse(broker.Stop(4 * time.Minute))
	if l := b.w.Load(); l.Registered {
		t.Errorf("its heartbeats are not stored: %+v", l)
	}
	close(goOn)
	b.end()
	meter.mu.Lock()
	defer meter.mu.Unlock()
	if len(meter.ran) != 0 || meter.lost != 1 {
		t.Errorf("counted were %q, and %d lost leases", meter.ran, meter.lost)
	}
}
