package dispatcher

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/version"
)

// restWatch is the broker of a dispatcher whose batches rest. It counts how often one begins to, and how often the log
// is read to go on.
type restWatch struct {
	*natsbroker.Broker
	deaf bool // copies do not come while a batch rests

	mu           sync.Mutex
	rests, wakes int
}

// unheard is a feed whose copies are lost.
type unheard struct{ broker.Feed }

func (unheard) Copies() <-chan *broker.LiveMsg { return nil }

func (b *restWatch) FollowEvents(k toolyard.BatchKey, room int) (broker.Feed, error) {
	f, err := b.Broker.FollowEvents(k, room)
	if room != restRoom {
		return f, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rests++; b.deaf && err == nil {
		f = unheard{f}
	}
	return f, err
}

func (b *restWatch) Resume(ctx context.Context, k toolyard.BatchKey) (batch.State, error) {
	b.mu.Lock()
	b.wakes++
	b.mu.Unlock()
	return b.Broker.Resume(ctx, k)
}

func (b *restWatch) counts() (rests, wakes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rests, b.wakes
}

// rest starts a dispatcher with an open batch that has run a call and rests.
func (y *yard) rest(deaf bool, with ...func(*Config)) (*restWatch, *bubble.Part, toolyard.BatchKey) {
	y.Helper()
	y.work()
	cfg := Config{ID: "d", Base: y.entries(), Log: y.Log(), Planner: planner(), OpenIdle: time.Hour}
	for _, set := range with {
		set(&cfg)
	}
	b := &restWatch{Broker: y.Broker("d"), deaf: deaf}
	part := y.Start(New(b, cfg))
	k := y.submitBatch(toolyard.Batch{Session: "s", Open: true, Options: toolyard.Options{TimeoutMS: 7_200_000},
		Calls: []toolyard.Call{{Tool: "write"}}})
	y.Eventually("the call has its result", func() bool { return y.fold(k).Replied == 1 })
	y.Eventually("the batch rests", func() bool { rests, _ := b.counts(); return rests == 1 })
	return b, part, k
}

// TestABatchThatRestsGoesOn: what is appended runs under the same owner, again and again, and at once.
func TestABatchThatRestsGoesOn(t *testing.T) {
	inYard(t, func(y *yard) {
		b, _, k := y.rest(false)
		for turn := range 3 {
			y.input(k, events.Appended{Calls: []toolyard.Call{{ID: fmt.Sprint("c", turn), Tool: "write"}}})
			began := time.Now()
			y.Eventually("the call has its result", func() bool { return y.fold(k).Replied == turn+2 })
			if took := time.Since(began); took > time.Second {
				y.Errorf("the answer took %s", took)
			}
			y.Eventually("the batch rests again", func() bool { rests, _ := b.counts(); return rests == turn+2 })
		}
		if _, wakes := b.counts(); wakes != 3 {
			y.Errorf("its log was read %d times to go on", wakes)
		}
		y.input(k, events.Closed{By: "agent"})
		if got := y.codes(k); got != "ok ok ok ok" || y.fold(k).Takeovers != 0 {
			y.Errorf("the results are %s, after %d takeovers", got, y.fold(k).Takeovers)
		}
	})
}

// TestWhatEndsABatchThatRests: a cancel and an interrupt at once, and the time when its agent is silent for too long.
func TestWhatEndsABatchThatRests(t *testing.T) {
	const openIdle = 10 * time.Minute
	for name, tt := range map[string]struct {
		end    func(y *yard, k toolyard.BatchKey) error
		within time.Duration
	}{
		"a cancel": {func(y *yard, k toolyard.BatchKey) error {
			return y.b.Cancel(y.Context(), k, "enough")
		}, time.Second},
		"an interrupt": {func(y *yard, k toolyard.BatchKey) error {
			_, err := y.b.Interrupt(y.Context(), k.Agent, "s", "stop")
			return err
		}, time.Second},
		"silence": {func(*yard, toolyard.BatchKey) error { return nil }, openIdle},
	} {
		t.Run(name, func(t *testing.T) {
			inYard(t, func(y *yard) {
				_, _, k := y.rest(false, func(c *Config) { c.OpenIdle = openIdle })
				time.Sleep(time.Minute)
				began := time.Now()
				must.OK(y.T, tt.end(y, k))
				for !y.fold(k).Completed && time.Since(began) < time.Hour {
					time.Sleep(tt.within / 50)
				}
				if took := time.Since(began); took > tt.within || y.fold(k).Takeovers != 0 {
					y.Errorf("it ended after %s and %d takeovers", took, y.fold(k).Takeovers)
				}
			})
		})
	}
}

// TestALostCopyWhileABatchRests: what no copy tells of is read from the log.
func TestALostCopyWhileABatchRests(t *testing.T) {
	inYard(t, func(y *yard) {
		_, _, k := y.rest(true)
		y.input(k, events.Appended{Calls: []toolyard.Call{{ID: "again", Tool: "read"}}})
		began := time.Now()
		y.Eventually("the call has its result", func() bool { return y.fold(k).Replied == 2 })
		if took := time.Since(began); took < time.Second || took > rereadIdle+2*time.Second {
			y.Errorf("the answer took %s", took)
		}
	})
}

// TestABatchThatRestsIsKept: another dispatcher does not get it, until its owner ends.
func TestABatchThatRestsIsKept(t *testing.T) {
	inYard(t, func(y *yard) {
		b, part, k := y.rest(false)
		y.dispatcher("other")
		time.Sleep(100 * y.b.Settings().BatchAckWait)
		if rests, wakes := b.counts(); rests != 1 || wakes != 0 || y.fold(k).Takeovers != 0 {
			y.Errorf("it rested %d times and went on %d times, with %d takeovers", rests, wakes, y.fold(k).Takeovers)
		}
		part.End()
		y.input(k, events.Appended{Calls: []toolyard.Call{{ID: "again", Tool: "read"}}})
		y.Eventually("the call has its result", func() bool { return y.fold(k).Replied == 2 })
		if s := y.fold(k); s.Takeovers != 1 || s.Owner != "other" {
			y.Errorf("its owner is %s after %d takeovers", s.Owner, s.Takeovers)
		}
	})
}

// TestATakeoverWhileABatchRests: its former owner learns of it when it goes on, and writes nothing: it may adopt the
// batch like everybody, when the submission is delivered again.
func TestATakeoverWhileABatchRests(t *testing.T) {
	for name, deaf := range map[string]bool{"it hears of it": false, "it does not": true} {
		t.Run(name, func(t *testing.T) {
			inYard(t, func(y *yard) {
				_, _, k := y.rest(deaf)
				rec, err := y.b.Append(y.Context(), k, batch.ChainBatch, "", 0, y.fold(k).BatchSeq,
					events.Adopted{Owner: "another", Takeover: 1})
				must.OK(y.T, err)
				y.input(k, events.Appended{Calls: []toolyard.Call{{ID: "again", Tool: "write"}}})
				y.Eventually("the call has its result", func() bool { return y.fold(k).Replied == 2 })
				known := batch.State{Key: k, BatchSeq: rec.Seq}
				next, err := y.b.Newer(y.Context(), &known, batch.ChainBatch, 0)
				if err != nil || len(next) == 0 {
					y.Fatal(next, err)
				}
				if by, ok := next[0].Body.(events.Adopted); !ok || by.Takeover != 2 {
					y.Errorf("the first event behind the takeover is %+v", next[0].Body)
				}
			})
		})
	}
}

// TestANewerEventWhileABatchRests: its owner writes nothing behind an event that only a newer version knows, and leaves
// the batch to a dispatcher of that version. Where the event is the next owner's there is nothing to leave.
func TestANewerEventWhileABatchRests(t *testing.T) {
	const late = rereadIdle + 2*time.Second // without a copy
	for name, tt := range map[string]struct {
		chain        batch.Chain
		deaf         bool
		from, within time.Duration // when its log is read again: what was left is not looked at for a while
	}{
		"of the next owner":           {batch.ChainBatch, false, 0, retryNewerAfter / 2},
		"of an agent":                 {batch.ChainInput, false, retryNewerAfter, retryNewerAfter + 2*time.Second},
		"of an agent, without a copy": {batch.ChainInput, true, retryNewerAfter, retryNewerAfter + late},
		"of a person":                 {batch.ChainControl, false, retryNewerAfter, retryNewerAfter + 2*time.Second},
		"of a person, without a copy": {batch.ChainControl, true, retryNewerAfter, retryNewerAfter + late},
	} {
		t.Run(name, func(t *testing.T) {
			inYard(t, func(y *yard) {
				b, _, k := y.rest(tt.deaf)
				last := uint64(0)
				if tt.chain == batch.ChainBatch {
					last = y.fold(k).BatchSeq
				}
				js, err := jetstream.New(y.Conn("later"))
				must.OK(y.T, err)
				m := nats.NewMsg("ty.event." + broker.KeyTokens(k) + "." + broker.NoPool + "." + string(tt.chain))
				for name, v := range map[string]string{
					"ce-specversion": "1.0", "ce-id": "later", "ce-source": "/later",
					"ce-type": "dev.toolyard.batch.noted.v1", "ce-subject": k.String(),
					"ce-time": "2026-11-22T00:00:00Z", "ce-tyversion": strconv.Itoa(version.Wire + 1),
				} {
					m.Header.Set(name, v)
				}
				m.Data = []byte(`{}`)
				_, err = js.PublishMsg(y.Context(), m, jetstream.WithExpectLastSequencePerSubject(last))
				must.OK(y.T, err)
				began := time.Now()
				y.Eventually("its log is read again", func() bool { _, wakes := b.counts(); return wakes > 1 })
				if took := time.Since(began); took < tt.from || took > tt.within {
					y.Errorf("its log was read again after %s", took)
				}
				log, err := y.b.Log(y.Context(), k)
				must.OK(y.T, err)
				if end := log[len(log)-1]; end.Meta.ID != "later" {
					y.Errorf("behind the newer event stands %s", end.Body.EventType())
				}
			})
		})
	}
}
