package batch

import (
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
)

// ask has the tool of call 0 ask a person. Nothing else is to do, so the batch is parked.
func (p *player) ask() {
	p.do([]string{"claim", "0", "w1"})
	p.step(Stored{p.store(Record{Chain: ChainItem, Body: events.Waiting{Worker: "w1", InputSHA256: "hash",
		Attempt: p.m.State().Calls[0].Attempt, Form: &events.Form{}}})})
}

// wakeFor stores an event of a parked batch, and wakes it.
func (p *player) wakeFor(r Record) {
	p.store(r)
	p.wake()
}

// TestTimesOfACallThatItsOwnerEnds: where no worker gives a call its result, the times in it are true all the same. It
// waited in the queue until a worker took it, and for people as often as it was asked about. None is below zero when
// the clocks of two machines differ.
func TestTimesOfACallThatItsOwnerEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		happens         func(p *player)
		queue, approval time.Duration
	}{
		"its worker is lost while it runs": {func(p *player) {
			p.do([]string{"after", "2s"})
			p.do([]string{"claim", "0", "w1"})
			p.do([]string{"after", "5m"})
			p.do([]string{"observe", "dropped=0"})
		}, 2 * time.Second, 0},
		"nobody takes it": {func(p *player) {
			p.do([]string{"after", "11m"})
		}, 11 * time.Minute, 0},
		"it was claimed, by a clock that is late": {func(p *player) {
			p.do([]string{"after", "2s"})
			now := p.now
			p.now = now.Add(-time.Minute)
			claim := p.store(Record{Chain: ChainItem, Body: events.Claimed{Worker: "w1", Attempt: 1}})
			p.now = now
			p.step(Stored{claim})
			p.do([]string{"observe", "dropped=0"})
		}, 0, 0},
		"it was claimed, by a clock that is early": {func(p *player) {
			p.do([]string{"after", "2s"})
			now := p.now
			p.now = now.Add(time.Minute)
			claim := p.store(Record{Chain: ChainItem, Body: events.Claimed{Worker: "w1", Attempt: 1}})
			p.now = now
			p.step(Stored{claim})
			p.do([]string{"observe", "dropped=0"})
		}, 2 * time.Second, 0},
		"nobody answers the second question": {func(p *player) {
			p.ask()
			p.do([]string{"after", "7s"})
			p.wakeFor(Record{Chain: ChainItem, Body: events.Decided{Decision: events.Approve, Answers: true,
				By: "person", InputSHA256: "hash"}})
			p.grant(0)
			p.ask()
			p.do([]string{"after", "3s"})
			p.wakeFor(Record{Chain: ChainControl, Body: events.Canceled{By: "person"}})
		}, 0, 10 * time.Second},
		"it is asked about, by a clock that is early": {func(p *player) {
			now := p.now
			p.now = now.Add(time.Minute)
			p.ask()
			p.now = now
			p.wakeFor(Record{Chain: ChainControl, Body: events.Canceled{By: "person"}})
		}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlayer(t)
			p.do([]string{"plan", "w"})
			p.grant(0)
			c.happens(p)
			r := p.m.State().Calls[0].Result
			if r == nil {
				t.Fatalf("the call is not over: %+v", p.m.State().Calls[0])
			}
			ms := func(d time.Duration) float64 { return float64(d.Milliseconds()) }
			if r.QueueMS != ms(c.queue) || r.ApprovalWaitMS != ms(c.approval) || r.Code == toolyard.OK {
				t.Errorf("it ended as %s, waited %g ms in the queue and %g ms for people; want %s and %s", r.Code,
					r.QueueMS, r.ApprovalWaitMS, c.queue, c.approval)
			}
		})
	}
}
