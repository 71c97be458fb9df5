package dispatcher

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/toolyard/toolyard/internal/admission"
	"github.com/toolyard/toolyard/internal/broker"
)

// reportEvery is how often a dispatcher tells the others what is used of quotas here, when that has changed. What is to
// start is told at once.
const reportEvery = 100 * time.Millisecond

// shareUsage has parts of the dispatcher tell the others what is used of quotas here, and hear it of them. Without
// quotas there is nothing to tell.
func (d *Dispatcher) shareUsage(part func(string, func(context.Context) error)) {
	if !d.cfg.quotas() {
		return
	}
	s := &sharing{again: make(chan struct{}, 1)}
	part("begin calls under rates", d.admission.rates.run)
	part("hear of quotas", func(ctx context.Context) error { return d.hearUsage(ctx, s) })
	part("tell of quotas", func(ctx context.Context) error { return d.tellUsage(ctx, s) })
}

// quotas reports whether there are quotas, or may be.
func (c *Config) quotas() bool { return c.QuotasChange || c.Quotas.Any() }

// sharing is what is known of the reports.
type sharing struct {
	mu sync.Mutex
	// heard says that this dispatcher knows of the others, and told that they know of it.
	heard, told bool
	// last is the revision of the report that was heard last. Of reports that are replaced before they are heard only
	// the newer one comes, perhaps behind one of this dispatcher's own: gaps counts how often. sent is the number of
	// the report that was sent last, and gapsThen how many gaps there were before it was.
	last, gaps     uint64
	sent, gapsThen uint64
	// again signals that a report has come back of no use.
	again chan struct{}
}

// set notes whether others are heard, or told, and tells admission. It reports whether that is news.
func (s *sharing) set(which *bool, is bool, know func(bool)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := *which != is
	*which = is
	know(s.heard && s.told)
	return news
}

// send notes that a report is sent.
func (s *sharing) send(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent, s.gapsThen = number, s.gaps
}

// hear notes that a report was heard. Of an own one, it reports whether all that others had reported before it was
// heard too.
func (s *sharing) hear(c *broker.UsageChange, own bool) (whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Revision != s.last+1 {
		s.gaps++
	}
	s.last = c.Revision
	if !own || c.Report == nil || c.Report.Number != s.sent {
		return false
	}
	if s.gaps != s.gapsThen {
		signal(s.again)
		return false
	}
	return true
}

// hearUsage follows the reports of all dispatchers until ctx ends.
func (d *Dispatcher) hearUsage(ctx context.Context, s *sharing) error {
	return d.b.WatchUsage(ctx, func(c broker.UsageChange, err error) {
		own := c.Dispatcher == d.cfg.ID
		switch {
		case err != nil: // what it reported last is the best that is known
			s.hear(&c, false)
			d.log.Warn("a dispatcher's report of quotas cannot be read", "of", c.Dispatcher, "error", err)
		case c.State != "":
			s.set(&s.heard, c.State == broker.WatchCaughtUp, d.admission.know)
		case s.hear(&c, own):
			d.admission.settle(c.Report.Number)
		case own:
		case c.Report == nil:
			d.admission.heard(c.Dispatcher, nil)
		default:
			d.admission.heard(c.Dispatcher, c.Report.Usage)
		}
	})
}

// tellUsage reports what is used of quotas here: when a batch is to start, when something has changed, and before the
// last report expires. While that fails nothing of an agent with a quota starts: the others would not know.
func (d *Dispatcher) tellUsage(ctx context.Context, s *sharing) error {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	defer d.endUsage(ctx)
	ttl := d.b.Settings().WorkerTTL
	var told map[admission.Scope]admission.Usage
	var at time.Time
	for {
		must := true
		select {
		case <-ctx.Done():
			return nil
		case <-d.admission.reserved:
		case <-s.again:
		case <-tick.C:
			must = time.Since(at) >= broker.Heartbeat(ttl)
			d.admission.free() // of what may begin in a minute, more may by now
		}
		now, number, asks := d.admission.report()
		if !must && !asks && maps.Equal(now, told) {
			continue
		}
		sent := time.Now()
		s.send(number)
		telling, cancel := context.WithTimeout(ctx, broker.Heartbeat(ttl))
		err := d.b.ReportUsage(telling, d.cfg.ID, broker.UsageReport{Number: number, Usage: now})
		cancel()
		if err == nil {
			told, at = now, sent
		} else if ctx.Err() == nil {
			d.log.Debug("a report of quotas was not stored", "error", err)
		}
		ok := time.Since(at) < broker.Lease(ttl)
		if s.set(&s.told, ok, d.admission.know) && !ok {
			d.log.Warn("what is used of quotas is not stored; nothing of an agent with a quota starts", "error", err)
		}
	}
}

// endUsage removes the report of a dispatcher that ends.
func (d *Dispatcher) endUsage(ctx context.Context) {
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := d.b.EndUsage(ending, d.cfg.ID); err != nil {
		d.log.Debug("a report of quotas was not removed; it expires", "error", err)
	}
}
