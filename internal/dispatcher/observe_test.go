package dispatcher

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/admission"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/presence"
)

// answers is a store that answers what a test gives it, and nothing else.
type answers struct {
	Broker
	holds func() (has, answered bool, err error)
	newer func() ([]batch.Record, error)
}

func (answers) Settings() broker.Settings { return broker.Settings{}.WithDefaults() }

func (a answers) Holds(context.Context, string, toolyard.BatchKey, ...int) (has, answered bool, err error) {
	return a.holds()
}

func (a answers) Newer(context.Context, *batch.State, batch.Chain, int) ([]batch.Record, error) {
	return a.newer()
}

// ReadEntry fails: no silence is proven.
func (answers) ReadEntry(context.Context, string) (presence.Reading, error) {
	return presence.Reading{}, errors.New("the registry is away")
}

// Quiet is that of a link that has nothing to say.
func (answers) Quiet(log *slog.Logger) *slog.Logger { return log }

// claimedBy is a runner whose batch has one call, claimed by a worker.
func claimedBy(t *testing.T, b Broker, worker string) *runner {
	t.Helper()
	s := batch.State{}
	for _, rec := range []batch.Record{
		{Chain: batch.ChainSubmission, Seq: 1, Body: events.Submitted{Batch: toolyard.Batch{Agent: "a", ID: "b"}}},
		{Chain: batch.ChainBatch, Seq: 2, Body: events.Planned{Calls: []events.PlannedCall{{ID: "c"}},
			Groups: []events.Group{{Calls: []int{0}}}}},
		{Chain: batch.ChainItem, Seq: 3, Body: events.Claimed{Worker: worker, Attempt: 1}},
	} {
		if err := s.Apply(rec); err != nil {
			t.Fatal(err)
		}
	}
	d := New(b, Config{ID: "d", Log: slog.New(slog.DiscardHandler)})
	return d.newRunner(&kept{key: s.Key, log: d.log, sub: &broker.Submission{}}, nil, &owned{state: s})
}

// TestAskHolder: a claim is dropped only when its holder says that it has not the call, and nothing more stands in the
// log, or when the holder is proven to be silent.
func TestAskHolder(t *testing.T) {
	lost := errors.New("lost")
	finished := []batch.Record{{Chain: batch.ChainItem, Seq: 4, Body: events.Finished{}}}
	for name, tt := range map[string]struct {
		has, answered bool
		err, newerErr error
		newer         []batch.Record
		dropped       bool
		inputs        int
		wantErr       error
	}{
		"it has the call":                        {has: true, answered: true},
		"it has not":                             {answered: true, dropped: true},
		"it has not, for it has finished":        {answered: true, newer: finished, inputs: 1},
		"it has not, and the log is not there":   {answered: true, newerErr: lost, wantErr: lost},
		"it cannot be asked":                     {err: lost},
		"it does not answer, and nothing proves": {},
	} {
		t.Run(name, func(t *testing.T) {
			r := claimedBy(t, answers{
				holds: func() (bool, bool, error) { return tt.has, tt.answered, tt.err },
				newer: func() ([]batch.Record, error) { return tt.newer, tt.newerErr },
			}, "w")
			inputs, dropped, err := r.askHolder(t.Context(), 0, map[string]bool{})
			if dropped != tt.dropped || len(inputs) != tt.inputs || !errors.Is(err, tt.wantErr) {
				t.Errorf("dropped %v, inputs %v, error %v", dropped, inputs, err)
			}
		})
	}
}

// TestASilentHolderIsAskedOnce in a round: the others of its claims do not wait for another question.
func TestASilentHolderIsAskedOnce(t *testing.T) {
	asked := 0
	r := claimedBy(t, answers{holds: func() (bool, bool, error) { asked++; return false, false, nil }}, "w")
	silent := map[string]bool{}
	for range 3 {
		if _, dropped, err := r.askHolder(t.Context(), 0, silent); dropped || err != nil {
			t.Fatalf("dropped %v, error %v", dropped, err)
		}
	}
	if asked != 1 {
		t.Errorf("it was asked %d times", asked)
	}
}

// TestWorkersThatMayHaveReads: those that say no are left out; those that say nothing are asked again.
func TestWorkersThatMayHaveReads(t *testing.T) {
	for name, tt := range map[string]struct {
		has, answered bool
		err           error
		may           bool
	}{
		"yes":                {has: true, answered: true, may: true},
		"no":                 {answered: true},
		"no answer":          {may: true},
		"it cannot be asked": {err: errors.New("lost"), may: true},
	} {
		r := claimedBy(t, answers{holds: func() (bool, bool, error) { return tt.has, tt.answered, tt.err }}, "w")
		r.d.workers.heardFrom("w") // a moment ago: its silence proves nothing
		if got := r.stillRunning(t.Context(), []string{"w"}, []int{0}); (len(got) == 1) != tt.may {
			t.Errorf("%s: %v may run it", name, got)
		}
	}
}

// TestAnOwnerTrustsItsFeedForASecond: what the feed did not tell is read from the log, a call a second after it was
// heard of last.
func TestAnOwnerTrustsItsFeedForASecond(t *testing.T) {
	reads := 0
	r := claimedBy(t, answers{
		holds: func() (bool, bool, error) { return true, true, nil },
		newer: func() ([]batch.Record, error) { reads++; return nil, nil },
	}, "w")
	r.lastHeard[0] = time.Now()
	for _, step := range []struct {
		silence time.Duration
		reads   int
	}{{0, 0}, {2 * rereadAfter, 4}, {0, 0}} { // of the call, and of the chains of batch, control and input
		reads = 0
		r.lastHeard[0], r.lastNews = r.lastHeard[0].Add(-step.silence), r.lastNews.Add(-step.silence)
		inputs, err := r.beat(t.Context())
		if err != nil || reads != step.reads {
			t.Errorf("after %s without news %d reads, want %d: %v", step.silence, reads, step.reads, err)
		}
		if _, ok := inputs[len(inputs)-1].(batch.Observed); !ok {
			t.Errorf("the last input is %T", inputs[len(inputs)-1])
		}
	}
}

// losing is a feed that may have lost copies.
type losing struct {
	broker.Feed
	lost bool
}

func (f *losing) Lost() bool { return f.lost }

// TestAnIdleBatchRests: nothing is due at its beats, until it has heard nothing for long, or its feed has lost copies.
// Then its chains are read at that beat.
func TestAnIdleBatchRests(t *testing.T) {
	for name, tt := range map[string]struct {
		idle, lost, owes bool
		silence          time.Duration
		rests            bool
	}{
		"idle":              {idle: true, rests: true},
		"idle for a moment": {idle: true, silence: 2 * rereadAfter, rests: true},
		"idle for long":     {idle: true, silence: rereadIdle},
		"idle with a loss":  {idle: true, lost: true},
		"idle with a debt":  {idle: true, owes: true},
		"not idle":          {},
	} {
		t.Run(name, func(t *testing.T) {
			reads := 0
			r := claimedBy(t, answers{newer: func() ([]batch.Record, error) { reads++; return nil, nil },
				holds: func() (bool, bool, error) { return true, true, nil }}, "w")
			r.feed = &losing{lost: tt.lost}
			r.idle.Store(tt.idle)
			if tt.owes {
				r.budget = budget{owed: []admission.Owed{{}}, told: true, used: admission.Amount{Calls: 7}}
			}
			r.lastHeard[0], r.lastNews = time.Now(), time.Now().Add(-tt.silence)
			if rests := r.rests(); rests != tt.rests {
				t.Fatalf("it rests: %t, want %t", rests, tt.rests)
			}
			if tt.rests {
				return
			}
			want := 0
			if tt.idle && !tt.owes {
				want = 2 // of control and input
			}
			if _, err := r.beat(t.Context()); err != nil || reads != want {
				t.Errorf("%d reads, want %d, %v", reads, want, err)
			}
		})
	}
}
