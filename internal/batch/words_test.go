package batch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
)

// situation is a call of which the log knows something when it ends.
type situation struct {
	name string
	// plan is the batch, as planFor takes it, and call the one that ends.
	plan string
	opts []string
	call int
	// happens brings it about.
	happens func(p *player)
	// ran says that the call may have been started.
	ran bool
}

// situations are those in which a call can end without a result of its tool's own.
var situations = []situation{
	{"its group has not started", "wr", nil, 1, func(p *player) { p.grant(0) }, false},
	{"its item was not handed out", strings.Repeat("r", MaxItemCalls+1), []string{"max=1"}, MaxItemCalls,
		func(p *player) { p.grant(0) }, false},
	{"a read, handed out", "r", nil, 0, func(p *player) { p.grant(0) }, true},
	{"a read, handed out by the former owner", "r", nil, 0, func(p *player) {
		p.grant(0)
		p.do([]string{"adopt"})
	}, true},
	{"a write, handed out", "w", nil, 0, func(p *player) { p.grant(0) }, false},
	{"a write, handed out by the former owner", "w", nil, 0, func(p *player) {
		p.grant(0)
		p.do([]string{"adopt"})
	}, false},
	{"a write, claimed by a worker that is lost", "w", nil, 0, func(p *player) {
		p.grant(0)
		p.do([]string{"claim", "0", "w1"})
	}, true},
	{"a repeatable write whose worker was lost, handed out again", "i", nil, 0, func(p *player) {
		p.grant(0)
		p.do([]string{"claim", "0", "w1"})
		p.do([]string{"observe", "dropped=0"})
		p.do([]string{"after", "1s"})
	}, true},
	{"a repeatable write whose first attempt failed", "i", nil, 0, func(p *player) {
		p.grant(0)
		p.do([]string{"claim", "0", "w1"})
		p.do([]string{"retry", "0"})
	}, true},
	{"a write whose first attempt was not started", "w", nil, 0, func(p *player) {
		p.grant(0)
		p.step(Stored{p.store(Record{Chain: ChainItem, Body: events.AttemptFailed{Attempt: 1, NotStarted: true}})})
	}, false},
	{"a write that waits for a person", "w", nil, 0, func(p *player) {
		p.grant(0)
		p.do([]string{"wait", "0"})
	}, false},
	{"a repeatable write that waits for a person after an attempt", "i", nil, 0, func(p *player) {
		p.grant(0)
		p.do([]string{"claim", "0", "w1"})
		p.do([]string{"retry", "0"})
		p.do([]string{"after", "1s"})
		p.do([]string{"wait", "0"})
	}, true},
}

// grant grants a group's ticket.
func (p *player) grant(group int) { p.do([]string{"grant", fmt.Sprint(group)}) }

// TestWhatIsSaidOfEffects: whatever ends a call, and wherever it stands, the model reads that it did not run exactly
// when that is known.
func TestWhatIsSaidOfEffects(t *testing.T) {
	endings := map[string]func(p *player){
		"canceled": func(p *player) { p.do([]string{"cancel"}) },
		"late":     func(p *player) { p.do([]string{"after", "11m"}) },
		"no worker": func(p *player) {
			for range 3 {
				p.do([]string{"observe", "absent=default/READ_ONLY", "absent=default/WRITE_EXCLUSIVE"})
				p.do([]string{"after", "20s"})
			}
		},
		"interrupted": func(p *player) { p.do([]string{"interrupt"}) },
		"rejected": func(p *player) {
			if p.m.State().Calls[0].Status == Waiting {
				p.wake()
				p.do([]string{"decide", "0", "deny"})
			}
		},
		"expired": func(p *player) {
			if p.m.State().Calls[0].Status == Waiting {
				p.wake()
				p.do([]string{"after", "2h"})
			}
		},
	}
	said := 0
	for name, end := range endings {
		for _, sit := range situations {
			p := newPlayer(t)
			p.do(append([]string{"plan", sit.plan}, sit.opts...))
			sit.happens(p)
			if p.m.State().Parked && name != "rejected" && name != "expired" {
				p.wake()
			}
			end(p)
			// Nobody answers, and whoever has claimed it is lost.
			if p.m.State().Calls[sit.call].Status == Claimed {
				p.do([]string{"observe", fmt.Sprint("dropped=", sit.call)})
			}
			p.do([]string{"after", "5s"})
			r := p.m.State().Calls[sit.call].Result
			if r == nil {
				continue // this does not end it there
			}
			said++
			if never := strings.Contains(r.Error, "did not run"); never == sit.ran {
				t.Errorf("%s, %s: %q", sit.name, name, r.Error)
			}
			if j := p.m.State().Plan.Calls[sit.call].Judgement; strings.Contains(r.Error,
				"taken effect") != (sit.ran && !j.ReadOnly) {
				t.Errorf("%s, %s: %q", sit.name, name, r.Error)
			}
			if (r.Attempts > 0) != sit.ran {
				t.Errorf("%s, %s: %d attempts", sit.name, name, r.Attempts)
			}
		}
	}
	if said < 36 {
		t.Errorf("only %d endings were looked at", said)
	}
	// The rest have one situation each.
	p := newPlayer(t)
	p.do([]string{"plan", "rr", "partition=ordered_halt"})
	p.grant(0)
	p.do([]string{"finish", "0", "execution_failed"})
	if r := p.m.State().Calls[1].Result; r.Code != toolyard.Skipped || !strings.HasPrefix(r.Error, "Not executed") ||
		strings.Contains(r.Error, "did not run") {
		t.Errorf("skipped: %q", r.Error)
	}
}

// wake takes a parked batch up.
func (p *player) wake() { p.do([]string{"wake"}) }
