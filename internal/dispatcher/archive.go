package dispatcher

import (
	"context"
	"time"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/version"
)

const (
	// archiveEvery is how often a dispatcher looks for batches that may be archived, at least.
	archiveEvery = 10 * time.Second
	// archiveTimeout bounds one round. What it has begun is continued by the next one, of any dispatcher.
	archiveTimeout = 5 * time.Minute
)

// archive returns what moves batches that are over into the archive.
func (d *Dispatcher) archive() func(context.Context) {
	var a broker.Archiver
	return func(ctx context.Context) {
		for more := true; more && ctx.Err() == nil; {
			var err error
			if a == nil {
				a, err = d.b.Archiver(ctx, d.cfg.ArchiveAfter)
			}
			if err == nil {
				more, err = d.archiveRound(ctx, a)
			}
			if err != nil {
				more = false
				if ctx.Err() == nil {
					d.log.Warn("batches were not archived; they stay where they are until the next try", "error", err)
				}
			}
		}
	}
}

// archiveRound archives some batches, unless a live worker is too old to know what an archived batch is.
func (d *Dispatcher) archiveRound(ctx context.Context, a broker.Archiver) (more bool, err error) {
	for _, w := range d.workers.workers() {
		if w.WireVersion < version.Archives {
			d.log.Warn("nothing is archived while an older worker is there", "worker", w.ID, "version", w.Version)
			return false, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, archiveTimeout)
	defer cancel()
	r, err := a.Round(ctx)
	if r.Batches > 0 {
		d.log.Info("archived batches", "batches", r.Batches, "objects", r.Objects, "bytes", r.Bytes)
	}
	return r.More, err
}
