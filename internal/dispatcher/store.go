package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/toolyard/toolyard/internal/broker"
)

// watchStore measures the room in the store until ctx ends.
func (d *Dispatcher) watchStore(ctx context.Context) error {
	tick := time.NewTicker(d.cfg.StoreEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			d.lookAtStore(ctx)
		}
	}
}

// lookAtStore measures how full the store is, and whether its disk has room. What cannot be measured now keeps its
// last value.
func (d *Dispatcher) lookAtStore(ctx context.Context) {
	looking, cancel := context.WithTimeout(ctx, d.cfg.StoreEvery)
	defer cancel()
	was := d.store.last()
	now := was
	fill, err := d.b.Fill(looking)
	if err == nil {
		now.fill = fill
	} else if ctx.Err() == nil {
		d.log.Info("it cannot be told how full the store is", "error", err)
	}
	if d.cfg.Room != nil {
		now.disk = d.cfg.Room() // what the log tells of
	} else if disk, err := d.b.Room(looking); err == nil {
		now.disk = disk
	} else if ctx.Err() == nil {
		d.log.Info("it cannot be told what room the disk has", "error", err)
	}
	d.store.set(now)
	most := d.cfg.AdmitPercent
	switch before, after := was.fullness(most), now.fullness(most); {
	case before == "" && after != "":
		d.log.Warn("the store is nearly full; new batches are refused", "reason", after)
	case before != "" && after == "":
		d.log.Warn("the store has room again; new batches are taken", "stream", fill.Stream, "percent", fill.Percent)
	case !was.disk.Stalled && now.disk.Stalled:
		d.log.Warn("the store is full; what is under way waits for room", "reason", now.disk.Reason)
	case was.disk.Stalled && !now.disk.Stalled:
		d.log.Warn("the store takes what is under way again", "reason", after)
	}
}

// store is the room in the store.
type store struct {
	fill broker.Fill
	disk broker.Room
}

// fullness returns why the rest of the store is kept for batches that are under way, or "".
func (s store) fullness(most int) string {
	switch {
	case s.disk.Full:
		return s.disk.Reason
	case s.fill.Percent >= most:
		return fmt.Sprintf("the store is %d%% full (%s); from %d%% on, what is left is for batches that are under way",
			s.fill.Percent, s.fill.Stream, most)
	}
	return ""
}

// storeWatch has the room in the store, as measured last.
type storeWatch struct {
	mu    sync.Mutex
	store store
}

func (w *storeWatch) last() store {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.store
}

func (w *storeWatch) set(now store) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.store = now
}

// storeNow returns the room now. A server in this process is asked for its disk; otherwise the last measurement
// counts.
func (d *Dispatcher) storeNow() store {
	s := d.store.last()
	if d.cfg.Room != nil {
		s.disk = d.cfg.Room()
	}
	return s
}

// whyFull returns why new batches are refused now, or "".
func (d *Dispatcher) whyFull() string { return d.storeNow().fullness(d.cfg.AdmitPercent) }

// Room is what room the disk of the store has, as this dispatcher knows it.
func (d *Dispatcher) Room() broker.Room { return d.storeNow().disk }
