package dispatcher

import (
	"context"
	"fmt"
	"time"

	"github.com/toolyard/toolyard/internal/archive"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/version"
)

const (
	// archiveEvery is how often a dispatcher looks for batches that may be archived, at least.
	archiveEvery = 10 * time.Second
	// archiveTimeout bounds one round. What it has begun is continued by the next one, of any dispatcher.
	archiveTimeout = 5 * time.Minute
)

// archive returns what moves batches that are over into the archive. It says once why it cannot.
func (d *Dispatcher) archive() func(context.Context) {
	var a broker.Archiver
	said := ""
	return func(ctx context.Context) {
		for more := true; more && ctx.Err() == nil; {
			err := d.olderWorker()
			if err == nil && a == nil {
				a, err = d.archiver(ctx)
			}
			if err == nil {
				more, err = d.archiveRound(ctx, a)
			}
			switch {
			case err == nil:
				said = ""
			case ctx.Err() == nil && err.Error() != said:
				said = err.Error()
				d.log.Warn("batches are not archived; they stay where they are until the next try", "error", err)
			}
			more = more && err == nil
		}
	}
}

func (d *Dispatcher) archiver(ctx context.Context) (broker.Archiver, error) {
	var signer *archive.Signer
	if d.cfg.SigningKey != nil {
		var err error
		if signer, err = archive.NewSigner(d.cfg.SigningKey, d.cfg.ID); err != nil {
			return nil, err
		}
	}
	return d.b.Archiver(ctx, d.cfg.ArchiveAfter, signer)
}

// olderWorker returns an error if a live worker is too old to know what an archived batch is.
func (d *Dispatcher) olderWorker() error {
	for _, w := range d.workers.workers() {
		if w.WireVersion < version.Archives {
			return fmt.Errorf("worker %s is of version %s (wire version %d), which cannot read archived batches", w.ID,
				w.Version, w.WireVersion)
		}
	}
	return nil
}

func (d *Dispatcher) archiveRound(ctx context.Context, a broker.Archiver) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, archiveTimeout)
	defer cancel()
	r, err := a.Round(ctx)
	if r.Batches > 0 {
		d.log.Info("archived batches", "batches", r.Batches, "objects", r.Objects, "bytes", r.Bytes)
	}
	if len(r.Unreadable) > 0 {
		d.log.Warn("batches that cannot be read are not archived; they stay in the streams until they expire",
			"batches", len(r.Unreadable), "first", r.Unreadable[0])
	}
	return r.More, err
}
