package dispatcher

import (
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// TestDecide: what a delivery asks for follows from the log, and from the message that was delivered.
func TestDecide(t *testing.T) {
	const lifetime = time.Hour
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	submission := broker.Submission{Seq: 5}
	wake := func(parked uint64) *broker.Submission { return &broker.Submission{Seq: 9, Parked: parked} }
	planned := batch.State{SubmittedAt: now, Plan: &events.Planned{SubmissionSeq: 5}, Handle: 5, BatchSeq: 6}
	with := func(change func(*batch.State)) batch.State {
		s := planned
		change(&s)
		return s
	}
	old := now.Add(-2 * lifetime)
	refused := batch.State{SubmittedAt: now, Refused: &events.Refused{Status: 429}}
	answered := refused
	answered.ReplySeq = 3
	woken := with(func(s *batch.State) { s.Handle = 9 })
	parked := with(func(s *batch.State) { s.Parked, s.BatchSeq = true, 7 })
	for name, tt := range map[string]struct {
		s      batch.State
		sub    *broker.Submission
		want   action
		status int
	}{
		"new":                {batch.State{SubmittedAt: now}, &submission, actPlan, 0},
		"new, and a day old": {batch.State{SubmittedAt: old}, &submission, actRefuse, 410},
		"planned, and a day old": {with(func(s *batch.State) { s.SubmittedAt = old }), &submission, actAdopt,
			0},
		"refused, and answered":     {answered, &submission, actLeave, 0},
		"refused, and not answered": {refused, &submission, actRefuse, 429},
		"complete": {with(func(s *batch.State) { s.Completed = true }), &submission, actLeave,
			0},
		"a wake for one without a plan":   {batch.State{SubmittedAt: now}, wake(7), actDone, 0},
		"its owner fell silent":           {planned, &submission, actAdopt, 0},
		"kept by a wake since":            {woken, &submission, actDone, 0},
		"kept by this wake":               {woken, wake(7), actAdopt, 0},
		"parked, by its own message":      {parked, &submission, actWake, 0},
		"parked, by the wake for that":    {parked, wake(7), actAdopt, 0},
		"parked, by a wake from before":   {parked, wake(6), actDone, 0},
		"a wake that came late":           {planned, wake(4), actDone, 0},
		"another submission under its id": {planned, &broker.Submission{Seq: 8}, actRefuse, 400},
	} {
		if got, why := decide(&tt.s, tt.sub, now, lifetime); got != tt.want || why.Status != tt.status {
			t.Errorf("%s: %s with status %d, want %s with %d", name, got, why.Status, tt.want, tt.status)
		}
	}
}

// TestAdoption: a batch that was parked gets the time that was left, and none beyond its life; one that is kept by
// another message now says by which.
func TestAdoption(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := batch.State{Handle: 5, Takeovers: 1, SubmittedAt: now.Add(-time.Hour)}
	if by := adoption(&s, &broker.Submission{Seq: 5}, "d", now, 24*time.Hour); by != (events.Adopted{Owner: "d",
		Takeover: 2}) {
		t.Errorf("after a silence: %+v", by)
	}
	s.Parked, s.Remaining = true, 10*time.Minute
	for lifetime, want := range map[time.Duration]time.Time{
		24 * time.Hour:             now.Add(10 * time.Minute),
		time.Hour + 5*time.Minute:  now.Add(5 * time.Minute),
		time.Hour + 20*time.Minute: now.Add(10 * time.Minute),
	} {
		if by := adoption(&s, &broker.Submission{Seq: 9}, "d", now, lifetime); by != (events.Adopted{Owner: "d",
			Takeover: 2, Handle: 9, Deadline: want}) {
			t.Errorf("after a wake, in a life of %s: %+v", lifetime, by)
		}
	}
}

// TestPauses: a batch that cannot go on is tried again about a minute long, and a wake soon at first.
func TestPauses(t *testing.T) {
	total := time.Duration(0)
	for n := range uint64(DefaultMaxDeliveries) {
		if backoff(n+1) < backoff(n) || wakePause(n+1) < wakePause(n) {
			t.Errorf("the pauses behind delivery %d are shorter than before", n+1)
		}
		if n > 0 {
			total += backoff(n)
		}
	}
	if total < 45*time.Second || total > 90*time.Second {
		t.Errorf("a batch is given up after %s", total)
	}
	if wakePause(1) > time.Second || wakePause(1_000) > time.Minute || backoff(1_000) > time.Minute {
		t.Errorf("pauses: %s, %s, %s", wakePause(1), wakePause(1_000), backoff(1_000))
	}
}

// TestOverdue: a batch that was run is given up when its deadline has passed for a while.
func TestOverdue(t *testing.T) {
	for deadline, want := range map[time.Time]bool{
		{}: false, time.Now().Add(-2 * overdueBy): true, time.Now(): false,
	} {
		if overdue(deadline, time.Now()) != want {
			t.Errorf("a batch with the deadline %s is overdue: %v", deadline, !want)
		}
	}
}
