package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/admission"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// The limits of admission.
const (
	// SilentPercent is how full the streams of events and replies may be before new batches are not even refused: a
	// refusal is stored there. They are given back for silentPause.
	SilentPercent = 95
	silentPause   = 5 * time.Second
	// tellEvery is how often clients are told that their batches wait.
	tellEvery = time.Second
	// maxRejecting is how many batches are rejected at a time; the next submission is taken when there are fewer.
	maxRejecting = 16
	// longestLook is how long it is looked whether a batch is under way, or what a large one asks for: other batches
	// wait until that is known.
	longestLook = 2 * time.Second
)

// receive takes a delivery in: its batch runs, waits or is rejected.
func (d *Dispatcher) receive(ctx context.Context, work *sync.WaitGroup, sub *broker.Submission) {
	if d.admission.takeRedelivery(sub) {
		return
	}
	if d.newer.seenRecently(sub.Key, time.Now()) {
		d.giveBack(sub)
		return
	}
	underWay, full := d.underWay(ctx, sub), d.whyFull()
	if !underWay && full != "" {
		d.reject(ctx, work, sub, storeFull(full))
	} else {
		b, child := d.outline(ctx, sub, underWay)
		// A running batch waits for its children. If they waited for its place, both would wait for ever.
		if away, why := d.admission.add(sub, b, underWay, child); why != admission.Admitted {
			d.reject(ctx, work, away, d.tooMany(away.Key, why, b.Bytes))
		}
	}
	d.startNext(ctx, work)
	d.admission.dropPayload(sub)
}

// outline is what admission must know of a batch, and whether a running call has made it. What cannot be read is found
// out by whoever plans it, who also refuses a batch that only says so.
func (d *Dispatcher) outline(ctx context.Context, sub *broker.Submission, underWay bool) (b admission.Batch,
	child bool) {
	o := d.look(ctx, sub)
	most := cmp.Or(o.MaxConcurrency, d.planner.Load().MaxConcurrency)
	b = admission.Batch{Key: sub.Key, Priority: o.Priority, Calls: most, Begins: o.Calls, Bytes: o.Bytes}
	if !o.Open && o.Calls > 0 {
		b.Calls = min(most, o.Calls)
	}
	if underWay { // they have begun before
		b.Begins = 0
	}
	return b, o.Child
}

// look reads the outline of a batch. That of a large one stands in an object, and the store of objects may be away.
func (d *Dispatcher) look(ctx context.Context, sub *broker.Submission) broker.Outline {
	longest := longestLook
	if time.Since(d.objectsAway) < lookAgain {
		longest = 0 // what stands in the message is read all the same
	}
	looking, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	began := time.Now()
	o := sub.Outline(looking, d.cfg.quotas())
	if longest > 0 && time.Since(began) >= longest && ctx.Err() == nil {
		d.objectsAway = time.Now()
		d.log.Warn("a large batch cannot be looked at; it waits like any other", "batch", sub.Key)
	}
	return o
}

// underWay reports whether a batch was planned before, so that others may wait for what it holds. It returns true
// where that cannot be told soon: the logs of one shard may be away, and the batches of others wait behind this one.
func (d *Dispatcher) underWay(ctx context.Context, sub *broker.Submission) bool {
	if sub.Parked != 0 {
		return true
	}
	if sub.Deliveries == 1 {
		return false
	}
	if d.unsure.has(sub.Shard) {
		return true
	}
	looking, cancel := context.WithTimeout(ctx, longestLook)
	defer cancel()
	planned, err := d.b.Planned(looking, sub.Key)
	if err != nil && ctx.Err() == nil {
		d.unsure.add(sub.Shard)
		d.log.Warn("it cannot be told whether a batch is under way; it goes first", "batch", sub.Key, "error", err)
	}
	return planned || err != nil
}

// startFreed starts batches in place of those that have become idle, until ctx ends.
func (d *Dispatcher) startFreed(ctx context.Context, work *sync.WaitGroup) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.admission.freed:
			d.startNext(ctx, work)
		}
	}
}

// startNext starts as many batches as may run. Each starts others when it ends.
func (d *Dispatcher) startNext(ctx context.Context, work *sync.WaitGroup) {
	for ctx.Err() == nil {
		k, ok := d.admission.start()
		if !ok {
			return
		}
		d.crew.Run(work, func() {
			d.serve(ctx, k)
			d.admission.remove(k.key)
			d.startNext(ctx, work)
		})
	}
}

// keepWaiting keeps the waiting submissions alive until ctx ends; then it gives them back.
func (d *Dispatcher) keepWaiting(ctx context.Context) error {
	tick := time.NewTicker(broker.Heartbeat(d.b.Settings().BatchAckWait))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			for _, s := range d.admission.submissions() { // then another dispatcher gets them at once
				if err := s.Return(0); err != nil {
					d.log.Info("a submission that waits was not given back; it is delivered again when its wait is "+
						"over", "batch", s.Key, "error", err)
				}
			}
			return nil
		case <-tick.C:
		}
		for _, s := range d.admission.submissions() {
			if err := s.Hold(); err != nil {
				d.log.Warn("a submission that waits could not be kept; it is delivered again", "batch", s.Key,
					"error", err)
				break // the connection is closed, or being restored: so it is for the others
			}
		}
	}
}

// tellWaiting tells the clients of waiting batches that they wait, until ctx ends.
func (d *Dispatcher) tellWaiting(ctx context.Context) error {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		running, waiting, _ := d.admission.load()
		for _, s := range d.admission.submissions() {
			if err := d.b.TellWaiting(s.Key, broker.Waiting{Running: running, Waiting: waiting}); err != nil {
				d.log.Debug("nobody is told that batches wait", "error", err)
				break // so it is for the others
			}
		}
	}
}

const (
	statusTooMany     = 429
	statusUnavailable = 503
)

func storeFull(why string) events.Refused {
	return events.Refused{Type: "about:blank", Title: "Service Unavailable", Status: statusUnavailable,
		Detail: why + ". Nothing of the batch ran: try again later, under a new id"}
}

func (d *Dispatcher) tooMany(k toolyard.BatchKey, why admission.Reason, bytes int) events.Refused {
	return events.Refused{Type: "about:blank", Title: "Too Many Requests", Status: statusTooMany,
		Detail: d.crowdedBecause(k.Agent, why, bytes) + ". Nothing of the batch ran: try again when some are done, under " +
			"a new id"}
}

// Crowded returns why a new batch of an agent would be rejected now, or "".
func (d *Dispatcher) Crowded(agent toolyard.Agent) string {
	why := d.admission.wouldReject(agent)
	if why == admission.Admitted {
		return ""
	}
	return d.crowdedBecause(agent, why, 1)
}

// crowdedBecause puts a reason into words.
func (d *Dispatcher) crowdedBecause(agent toolyard.Agent, why admission.Reason, bytes int) string {
	if why == admission.QuotaFull {
		if text := d.admission.whyQuota(agent, bytes); text != "" { // there may be room by now
			return text
		}
		return fmt.Sprintf("more of agent %q or its team waits than their quota allows", agent)
	}
	if why == admission.ChildFull {
		return fmt.Sprintf("%d calls of scripts wait in a dispatcher, which is the limit (--max-waiting)",
			d.cfg.MaxWaiting)
	}
	if why == admission.QueueFull {
		return fmt.Sprintf("%d batches wait in a dispatcher, which is the limit (--max-waiting), and no agent has "+
			"more of them than %q", d.cfg.MaxWaiting, agent)
	}
	return fmt.Sprintf("agent %q has %d batches that wait in a dispatcher, which is the limit (--max-agent-waiting)",
		agent, d.cfg.MaxAgentWaiting)
}

// reject refuses a batch for want of room, in a goroutine of its own.
func (d *Dispatcher) reject(ctx context.Context, work *sync.WaitGroup, sub *broker.Submission, why events.Refused) {
	log := d.log.With("agent", sub.Key.Agent, "batch", sub.Key.ID)
	giveBack := func() {
		if err := sub.Return(silentPause); err != nil {
			log.Info("a submission was not given back; it is delivered again when its wait is over", "error", err)
		}
	}
	if now := d.storeNow(); now.fill.Refusals >= SilentPercent || now.disk.Stalled {
		giveBack()
		return
	}
	select {
	case d.rejecting <- struct{}{}:
	case <-ctx.Done():
		return
	}
	work.Go(func() {
		defer func() { <-d.rejecting }()
		refusing, cancel := context.WithTimeout(ctx, broker.Lease(d.b.Settings().BatchAckWait))
		defer cancel()
		switch err := sub.TurnAway(refusing, why); {
		case err == nil:
			d.cfg.Meter.Refused(why.Status)
			log.Info("rejected a batch", "status", why.Status, "detail", why.Detail)
		case errors.Is(err, broker.ErrConflict): // another dispatcher has planned it, or refused it and will answer
		case ctx.Err() == nil:
			log.Warn("a batch could not be refused; it is looked at again", "error", err)
			giveBack()
		}
	})
}
