package dispatcher

import (
	"context"
	"fmt"
	"time"

	"github.com/toolyard/toolyard/internal/broker"
)

// A batch may end the process of its dispatcher: by using all memory, say. The next dispatcher takes it up, and all
// others that the first one had. So batches that were delivered several times are suspects: how many dispatchers have
// ended while they took one up is stored. When one has, the next one takes up no other suspect at that time. The other
// batches go on, and the one that ends its dispatcher each time is given up. See
// docs/adr/0080-a-batch-that-ends-its-dispatchers.md.

const (
	// UsualDeliveries is how often a batch is delivered before it is a suspect.
	UsualDeliveries = 3
	// MaxDeaths is how many dispatchers in a row may end while they take a suspect up before the next one gives it up.
	// The first may have ended because of another suspect, the others took up no other.
	MaxDeaths = 4
	// suspectsAtOnce is how many suspects are taken up at a time of which no dispatcher has ended.
	suspectsAtOnce = 64
	// settledAfter is how long a suspect has run when it is taken up: what ends a dispatcher is in its log, and is read
	// and acted on before.
	settledAfter = 100 * time.Millisecond
	// countWithin is how long the count may take to read and to store. A batch is taken up without it if the store is
	// not there, or is full.
	countWithin = 2 * time.Second
)

// errDeadly: dispatchers have ended whenever they took the batch up.
var errDeadly = fmt.Errorf("%d dispatchers in a row have ended when they took it up", MaxDeaths)

// trial is a suspect that is being taken up. There is none for other batches.
type trial struct {
	over *time.Timer // ends it
	end  func()
	done chan struct{} // closed by end
}

// begins has the trial end soon, for the batch runs.
func (t *trial) begins() {
	if t != nil && t.over.Stop() {
		t.over.Reset(settledAfter)
	}
}

// leave ends the trial, for the batch is no longer here.
func (t *trial) leave() {
	if t == nil {
		return
	}
	if t.over.Stop() {
		t.end()
	} else {
		<-t.done
	}
}

// takeUp waits until a suspect may be taken up. It counts that until the trial ends, which is a lease of the batch
// later at most. [errDeadly] says that the batch is to be given up, which is a trial too: it may end the dispatcher as
// well.
func (d *Dispatcher) takeUp(ctx context.Context, k *kept) (*trial, error) {
	if k.submission().Deliveries <= UsualDeliveries {
		return nil, nil
	}
	ctx, stop := k.keepAlive(ctx, d.b.Settings().BatchAckWait)
	defer stop()
	deaths := d.deaths(ctx, k)
	turns := int64(1)
	if deaths > 0 {
		turns = suspectsAtOnce
		k.log.Warn("dispatchers have ended when they took this batch up; no other such batch is taken up beside it",
			"deaths", deaths)
	}
	if d.suspects.Acquire(ctx, turns) != nil {
		return nil, context.Cause(ctx)
	}
	deadly := deaths >= MaxDeaths
	if !deadly {
		d.setDeaths(ctx, k, deaths+1)
	}
	t := &trial{done: make(chan struct{})}
	t.end = func() {
		if !deadly {
			d.setDeaths(context.WithoutCancel(ctx), k, 0)
		}
		d.suspects.Release(turns)
		close(t.done)
	}
	t.over = time.AfterFunc(broker.Lease(d.b.Settings().BatchAckWait), t.end)
	if deadly {
		return t, errDeadly
	}
	return t, nil
}

// deaths is how many dispatchers have ended with a batch; 0 if that cannot be read.
func (d *Dispatcher) deaths(ctx context.Context, k *kept) int {
	reading, cancel := context.WithTimeout(ctx, countWithin)
	defer cancel()
	n, err := d.b.Deaths(reading, k.key)
	if err != nil && ctx.Err() == nil {
		k.log.Info("how many dispatchers have ended with this batch is not known", "error", err)
	}
	return n
}

// setDeaths stores how many dispatchers have ended with a batch, if this one ends now.
func (d *Dispatcher) setDeaths(ctx context.Context, k *kept, n int) {
	storing, cancel := context.WithTimeout(ctx, countWithin)
	defer cancel()
	if err := d.b.SetDeaths(storing, k.key, n); err != nil {
		k.log.Info("how many dispatchers have ended with this batch was not stored", "deaths", n, "error", err)
	}
}
