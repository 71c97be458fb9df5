package dispatcher

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/admission"
)

// aRate bounds the calls that aRated is the key of.
var (
	aRate  = admission.Grants{Tools: []admission.NamedRate{{Name: "fetch", Rate: admission.Rate{Calls: 1}}}}
	aRated = admission.RateKey{Agent: "a", Tool: "fetch"}
)

// TestRatesThatGoBetweenTwoLooks: a runner sees that a call is under a rate, the rates are read again, and then the
// call asks for its turn. No rate is left, so it begins at once.
func TestRatesThatGoBetweenTwoLooks(t *testing.T) {
	g := newRateGate(aRate, make(chan struct{}, 1))
	in := &rateInbox{news: make(chan struct{}, 1)}
	if !g.bounds(aRated) {
		t.Fatal("the call is under no rate")
	}
	g.regrant(admission.Grants{})
	id := g.ask(in, aRated, 1)
	select {
	case <-in.news:
	default:
		t.Error("the runner is told nothing")
	}
	granted, refused := in.take()
	if len(granted) != 1 || granted[0].ID != id || granted[0].Held != "" || len(refused) != 0 {
		t.Errorf("granted %+v, refused %+v", granted, refused)
	}
	// While the other dispatchers are not known, what waits stays in the gate: this call must not be there.
	if reserved, again := g.rates.Advance(time.Now()); reserved || !again.IsZero() || g.rates.Load() != 0 {
		t.Errorf("%d calls wait", g.rates.Load())
	}
	g.leave(id)
	if granted, refused := g.rates.Take(); len(granted)+len(refused) != 0 {
		t.Errorf("granted %+v, refused %+v to a call that has left", granted, refused)
	}
}

// TestRatesThatChangeWhileCallsAsk has the rates go and come while calls ask: nothing panics.
func TestRatesThatChangeWhileCallsAsk(t *testing.T) {
	g := newRateGate(aRate, make(chan struct{}, 1))
	in := &rateInbox{news: make(chan struct{}, 1)}
	var wg sync.WaitGroup
	asked := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-asked:
				return
			default:
				g.regrant(admission.Grants{})
				g.regrant(aRate)
			}
		}
	})
	wg.Go(func() {
		defer close(asked)
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("a batch panics: %v", p)
			}
		}()
		for range 200_000 {
			if g.bounds(aRated) {
				g.leave(g.ask(in, aRated, 1))
			}
		}
	})
	wg.Wait()
}

// TestTheFirstRatesCountWhatOthersRun: another dispatcher has read the first rates before, and runs a call under one.
// This one has heard its report while it had no rates itself, and begins no second call when it reads them.
func TestTheFirstRatesCountWhatOthersRun(t *testing.T) {
	l := newAdmissionQueue(&Config{QuotasChange: true}, slog.New(slog.DiscardHandler))
	l.know(true)
	other := newRateGate(aRate, make(chan struct{}, 1))
	report := map[admission.Scope]admission.Usage{}
	other.hold(aRated, 1)
	other.update(func(r *admission.Rates, now time.Time) { r.Report(1, now, report) })
	l.heard("the other", report)
	l.regrant(aRate)
	l.know(true)
	in := &rateInbox{news: make(chan struct{}, 1)}
	l.rates.ask(in, aRated, 1)
	if reserved, _ := l.rates.rates.Advance(time.Now()); reserved {
		t.Error("a second call begins under a rate of one in flight")
	}
	l.heard("the other", nil)
	if reserved, _ := l.rates.rates.Advance(time.Now()); !reserved {
		t.Error("the call does not begin when the other is gone")
	}
}
