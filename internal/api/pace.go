package api

import (
	"sync"
	"time"
)

// pace bounds a flow for each key: so much a second, and so much at once after a pause.
type pace struct {
	mu   sync.Mutex
	each map[string]time.Time // when all that was let through so far is paid for
}

func newPace() *pace { return &pace{each: map[string]time.Time{}} }

// spend lets an amount through and returns how long to wait before it goes.
func (p *pace) spend(now time.Time, key string, amount, perSecond, burst float64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	paid := p.paid(now, key).Add(seconds(amount / perSecond))
	p.each[key] = paid
	return max(0, paid.Sub(now)-seconds(burst/perSecond))
}

// try lets an amount through if it can go now. Else it says when it could.
func (p *pace) try(now time.Time, key string, amount, perSecond, burst float64) (wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	paid := p.paid(now, key).Add(seconds(amount / perSecond))
	if wait = paid.Sub(now) - seconds(burst/perSecond); wait > 0 {
		return wait
	}
	p.each[key] = paid
	return 0
}

func (p *pace) paid(now time.Time, key string) time.Time {
	if len(p.each) >= maxPaced { // those who have paid for everything are as those who never came
		for k, at := range p.each {
			if !at.After(now) {
				delete(p.each, k)
			}
		}
	}
	if at := p.each[key]; at.After(now) {
		return at
	}
	return now
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
