package dispatcher

import (
	"context"
	"fmt"
	"time"

	"github.com/toolyard/toolyard/internal/broker"
)

// fillEvery is how often a dispatcher looks how full the store is, and whether its disk has room.
const fillEvery = time.Second

// watchStore looks how full the store is, again and again, until ctx ends.
func (d *Dispatcher) watchStore(ctx context.Context) error {
	tick := time.NewTicker(fillEvery)
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

// lookAtStore looks how full the store is, and whether its disk has room. What cannot be told now is as it was told
// last: whoever writes finds out.
func (d *Dispatcher) lookAtStore(ctx context.Context) {
	looking, cancel := context.WithTimeout(ctx, fillEvery)
	defer cancel()
	was := d.lobby.seen()
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
	d.lobby.mu.Lock()
	d.lobby.store = now
	d.lobby.mu.Unlock()
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

// store is what is known of the room in the store.
type store struct {
	fill broker.Fill
	disk broker.Room
}

// fullness is why the rest of the store is kept for batches that are under way; "" when it is not.
func (s store) fullness(most int) string {
	switch {
	case s.disk.Full:
		return s.disk.Reason
	case s.fill.Percent >= most:
		return fmt.Sprintf("the store is %d%% full (%s); from %d%% on, what is left is for batches that are under way", s.fill.Percent, s.fill.Stream, most)
	}
	return ""
}

func (l *lobby) seen() store {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.store
}

// filled is what is known now: the disk under a server in this process needs no asking.
func (d *Dispatcher) filled() store {
	s := d.lobby.seen()
	if d.cfg.Room != nil {
		s.disk = d.cfg.Room()
	}
	return s
}

// full is why new batches are refused now; "" when they are taken.
func (d *Dispatcher) full() string { return d.filled().fullness(d.cfg.AdmitPercent) }

// Room is what room the disk of the store has, as this dispatcher knows it.
func (d *Dispatcher) Room() broker.Room { return d.filled().disk }
