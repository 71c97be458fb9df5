package admission

import (
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestAClockThatIsSet: what has begun counts for a second or a minute, and no longer and no shorter when somebody sets
// the machine's clock meanwhile.
func TestAClockThatIsSet(t *testing.T) {
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			start := time.Now()
			at := func(after time.Duration) time.Time { return must.Step(t, start.Add(after), by) }

			r := NewRates(Grants{Tools: []NamedRate{{"fetch", Rate{PerMinute: 1, Wait: time.Hour}}}})
			r.Know(true)
			begins := func(id uint64, now time.Time) bool {
				r.Advance(now)
				r.Report(id, now, map[Scope]Usage{})
				r.Settle(id, now)
				granted, _ := r.Take()
				return len(granted) == 1
			}
			k := RateKey{Agent: "a", Tool: "fetch"}
			r.Ask(1, k, 1, start)
			if !begins(1, start) {
				t.Fatal("the first call does not begin")
			}
			r.Ask(2, k, 1, at(time.Second))
			if begins(2, at(time.Second)) {
				t.Error("two calls begin in a minute that has room for one")
			}
			if _, again := r.Advance(at(2 * time.Second)); again.Sub(start) > 2*time.Minute {
				t.Errorf("the call is looked at again after %v", again.Sub(start))
			}
			if !begins(3, at(2*time.Minute)) {
				t.Error("two minutes later the second call does not begin")
			}

			quotas := NewQuotas(Grants{Agents: []Grant{{"a", Quota{CallsPerMinute: 1}}}})
			quotas.Know(true)
			quotas.Begin("a", 1, start)
			b := &Batch{Begins: 1}
			b.Key.Agent = "a"
			if quotas.mayReserve(b, at(time.Second)) {
				t.Error("two batches begin in a minute that has room for the call of one")
			}
			if !quotas.mayReserve(b, at(2*time.Minute)) {
				t.Error("two minutes later the second batch does not begin")
			}
		})
	}
}

// TestAMinuteIsNotShort: a call counts against a quota for a whole minute, wherever in its slot it began.
func TestAMinuteIsNotShort(t *testing.T) {
	start := time.Now()
	for _, after := range []time.Duration{0, time.Millisecond, 500 * time.Millisecond, 999 * time.Millisecond} {
		quotas := NewQuotas(Grants{Agents: []Grant{{"a", Quota{CallsPerMinute: 1}}}})
		quotas.Know(true)
		b := &Batch{Begins: 1}
		b.Key.Agent = "a"
		quotas.mayReserve(b, start) // time is counted from here
		began := start.Add(after)
		quotas.Begin("a", 1, began)
		for past, want := range map[time.Duration]bool{
			59*time.Second + 2*time.Millisecond: false, time.Minute - time.Millisecond: false, 62 * time.Second: true,
		} {
			q := *quotas
			q.used = map[Scope]*scopeUse{}
			for s, u := range quotas.used {
				copied := *u
				q.used[s] = &copied
			}
			if got := q.mayReserve(b, began.Add(past)); got != want {
				t.Errorf("a call that began after %s: another one may begin %s later: %t", after, past, got)
			}
		}
	}
}
