package dispatcher

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
)

// deadly is the log of a dispatcher that ends when it adopts a batch.
type deadly struct {
	slog.Handler
	batch toolyard.BatchID
	of    bool // the batch's own log
	end   func()
}

func (d deadly) WithAttrs(attrs []slog.Attr) slog.Handler {
	d.Handler = d.Handler.WithAttrs(attrs)
	for _, a := range attrs {
		d.of = d.of || a.Key == "batch" && a.Value.String() == string(d.batch)
	}
	return d
}

func (d deadly) Handle(ctx context.Context, r slog.Record) error {
	if d.of && r.Message == "adopting a batch" {
		d.end()
	}
	return d.Handler.Handle(ctx, r)
}

// mostEnds is more dispatchers than a batch may end.
const mostEnds = 20

// endedBy starts one dispatcher after the other, each of which ends when it adopts a batch, until over says that it is
// enough. It returns how many have ended.
func (y *yard) endedBy(k toolyard.BatchKey, over func() bool) (ends int) {
	y.Helper()
	for ; ends < mostEnds; ends++ {
		party, ended := fmt.Sprintf("d%d", ends+1), make(chan struct{}, mostEnds)
		part := y.dispatcher(party, func(cfg *Config) {
			cfg.Log = slog.New(deadly{Handler: cfg.Log.Handler(), batch: k.ID, end: func() {
				y.Server.Cut(party)
				ended <- struct{}{}
			}})
		})
		for next := false; !next; {
			select {
			case <-ended:
				part.End()
				next = true
			case <-time.After(time.Second):
				if over() {
					return ends
				}
			}
		}
	}
	y.Fatalf("a batch has ended %d dispatchers", ends)
	return 0
}

// answered are the results that a batch has replied, also one that was given up.
func (y *yard) answered(k toolyard.BatchKey) (out []toolyard.Result) {
	y.Helper()
	replies, err := y.b.RepliesFrom(y.Context(), k, 0, 10)
	if err != nil {
		y.Fatal(err)
	}
	for _, r := range replies {
		out = append(out, r.Body.(events.Reply).Results...)
	}
	return out
}

// TestABatchThatEndsItsDispatchers: a batch ends each dispatcher that takes it up. It is given up after some of them,
// and the batches that these dispatchers had beside it go on.
func TestABatchThatEndsItsDispatchers(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d0")
		deadly := y.submit("write")
		var others []toolyard.BatchKey
		for range 5 {
			others = append(others, y.submit("read"))
		}
		all := append(others, deadly)
		y.Eventually("they are planned", func() bool { planned, _ := y.planned(all); return planned == len(all) })
		y.Server.Cut("d0")

		ends := y.endedBy(deadly, func() bool { return len(y.answered(deadly)) > 0 })
		if want := UsualDeliveries - 1 + MaxDeaths; ends != want {
			t.Errorf("it has ended %d dispatchers, want %d", ends, want)
		}
		if got := y.answered(deadly)[0]; got.Code != toolyard.InternalError || !strings.Contains(got.Detail,
			errDeadly.Error()) {
			t.Errorf("it ended as %+v", got)
		}
		y.work()
		y.Eventually("the others are complete", func() bool { return y.over(others...) == len(others) })
		for _, k := range others {
			if got := y.codes(k); got != "ok" {
				t.Errorf("a batch beside it ended as %q", got)
			}
		}
	})
}

// TestABatchWhoseDispatchersStop: a batch that is open for long has many dispatchers, each of which ends while nothing
// is wrong with it. It goes on, also where the count cannot be kept.
func TestABatchWhoseDispatchersStop(t *testing.T) {
	for name, full := range map[string]bool{"the count is kept": false, "the store of counts is full": true} {
		t.Run(name, func(t *testing.T) {
			inYard(t, func(y *yard) {
				y.Server.Fill("KV_ty_session", full)
				y.dispatcher("d0")
				k := y.submit("read")
				y.Eventually("it is planned", func() bool { return y.fold(k).Plan != nil })
				y.Server.Cut("d0")
				for n := range UsualDeliveries + 1*MaxDeaths {
					party := fmt.Sprintf("d%d", n+1)
					y.dispatcher(party)
					y.Eventually("it is adopted", func() bool { return y.fold(k).Owner == party })
					time.Sleep(time.Second) // longer than its trial
					y.Server.Cut(party)
				}
				y.dispatcher("last")
				y.work()
				y.Eventually("it is complete", func() bool { return y.over(k) == 1 })
				if got := y.codes(k); got != "ok" {
					t.Errorf("it ended as %q", got)
				}
			})
		})
	}
}

// TestManySuspects: batches that are open for long are taken up soon by the next dispatcher, however often they were
// delivered before.
func TestManySuspects(t *testing.T) {
	inYard(t, func(y *yard) {
		var all []toolyard.BatchKey
		for range suspectsAtOnce + 10 {
			all = append(all, y.submitBatch(toolyard.Batch{Open: true}))
		}
		for n := range UsualDeliveries + 2 {
			party := fmt.Sprintf("d%d", n)
			y.dispatcher(party, func(cfg *Config) { cfg.MaxAgentBatches = len(all) })
			began := time.Now()
			y.Eventually("all have this owner", func() bool {
				return !slices.ContainsFunc(all, func(k toolyard.BatchKey) bool { return y.fold(k).Owner != party })
			})
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("dispatcher %d has them after %s", n, took)
			}
			y.Server.Cut(party)
		}
	})
}
