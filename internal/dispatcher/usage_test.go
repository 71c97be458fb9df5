package dispatcher

import (
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/admission"
	"github.com/toolyard/toolyard/internal/broker"
)

// planned is how many of some batches have been planned and are not over, and how many are over.
func (y *yard) planned(all []toolyard.BatchKey) (running, over int) {
	y.Helper()
	for _, k := range all {
		switch s := y.fold(k); {
		case s.Completed:
			over++
		case s.Plan != nil:
			running++
		}
	}
	return running, over
}

// TestQuotasOfAllDispatchers: three dispatchers run no more batches of an agent and of a team than the quotas say,
// whoever gets them, and all run in the end. An agent without a quota does not wait.
func TestQuotasOfAllDispatchers(t *testing.T) {
	inYard(t, func(y *yard) {
		for _, party := range []string{"d1", "d2", "d3"} {
			y.dispatcher(party, func(c *Config) {
				c.Quotas = admission.Grants{
					Agents: []admission.Grant{{Agents: "web-*", Quota: admission.Quota{Batches: 4}}},
					Teams:  []admission.Grant{{Agents: "web-*", Quota: admission.Quota{Batches: 5}}},
				}
			})
		}
		y.settle()
		var one, two, free []toolyard.BatchKey
		for range 10 {
			one, two, free = append(one, y.of("web-1", "read")), append(two, y.of("web-2", "read")),
				append(free, y.of("free", "read"))
		}
		for range 20 { // at any time, and not only in the end
			time.Sleep(50 * time.Millisecond)
			first, _ := y.planned(one)
			second, _ := y.planned(two)
			if first > 4 || second > 4 || first+second > 5 {
				y.Fatalf("%d and %d batches of a team run", first, second)
			}
		}
		first, _ := y.planned(one)
		second, _ := y.planned(two)
		if others, _ := y.planned(free); first+second != 5 || others != 10 {
			y.Errorf("%d and %d batches of a team run, and %d of an agent without a quota; want 5 together, and 10", first,
				second, others)
		}
		y.work()
		for _, all := range [][]toolyard.BatchKey{one, two, free} {
			for _, k := range all {
				if got := y.codes(k); got != "ok" {
					y.Errorf("%s: %s", k, got)
				}
			}
		}
	})
}

// TestCallsOfAQuota: a batch has no more calls in flight than its agent may have, and another waits until there is
// room.
func TestCallsOfAQuota(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", func(c *Config) {
			c.Quotas.Agents = []admission.Grant{{Agents: "*", Quota: admission.Quota{Calls: 3}}}
		})
		wide := y.submit("read", "read", "read", "read", "read", "read")
		y.settle()
		narrow := y.submit("read")
		y.settle()
		if s := y.fold(wide); s.Plan == nil || s.Plan.MaxConcurrency != 3 {
			y.Errorf("the batch is planned as %+v", s.Plan)
		}
		if s := y.fold(narrow); s.Plan != nil {
			y.Error("another batch runs beside one that has all calls")
		}
		y.work()
		if a, b := y.codes(wide), y.codes(narrow); a != "ok ok ok ok ok ok" || b != "ok" {
			y.Errorf("the results are %s; %s", a, b)
		}
	})
}

// TestCallsAMinute: when as many calls have begun as may in a minute, the next batch waits for the minute's end.
func TestCallsAMinute(t *testing.T) {
	inYard(t, func(y *yard) {
		for _, party := range []string{"d1", "d2"} {
			y.dispatcher(party, func(c *Config) {
				c.Quotas.Teams = []admission.Grant{{Agents: "default", Quota: admission.Quota{CallsPerMinute: 4}}}
			})
		}
		y.work()
		y.settle()
		began := time.Now()
		var all []toolyard.BatchKey
		for range 4 {
			all = append(all, y.submit("read", "read"))
		}
		time.Sleep(30 * time.Second)
		if _, over := y.planned(all); over != 2 {
			y.Errorf("%d batches of two calls are over; four calls may begin in a minute", over)
		}
		for _, k := range all {
			if got := y.codes(k); got != "ok ok" {
				y.Errorf("%s: %s", k, got)
			}
		}
		if took := time.Since(began); took < 55*time.Second || took > 70*time.Second {
			y.Errorf("it took %s", took)
		}
	})
}

// TestWaitingBytes: past the bytes that may wait a batch is refused, and says why.
func TestWaitingBytes(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", func(c *Config) {
			c.Quotas.Agents = []admission.Grant{{Agents: "*", Quota: admission.Quota{Batches: 1, WaitingBytes: 1_000}}}
		})
		var all []toolyard.BatchKey
		for range 20 {
			all = append(all, y.submit("read"))
			y.settle()
		}
		last := all[len(all)-1]
		if got := y.status(last); got != statusTooMany {
			y.Fatalf("the last of many batches is answered with status %d", got)
		}
		if s := y.fold(last); !strings.Contains(s.Refused.Detail, "agent default wait, and the quota is 1000") {
			y.Errorf("it is refused with %+v", s.Refused)
		}
		y.work()
		if got := y.codes(all[1]); got != "ok" {
			y.Errorf("one that waited: %s", got)
		}
	})
}

// TestADispatcherThatDiesGivesItsPartBack: what it had runs elsewhere, and others start in its place.
func TestADispatcherThatDiesGivesItsPartBack(t *testing.T) {
	inYard(t, func(y *yard) {
		quota := func(c *Config) {
			c.Quotas.Agents = []admission.Grant{{Agents: "*", Quota: admission.Quota{Batches: 2}}}
		}
		first := y.dispatcher("d1", quota)
		y.settle()
		var all []toolyard.BatchKey
		for range 4 {
			all = append(all, y.submit("read"))
		}
		y.settle()
		if running, _ := y.planned(all); running != 2 {
			y.Errorf("%d batches run", running)
		}
		first.End()
		y.dispatcher("d2", quota)
		y.work()
		for _, k := range all {
			if got := y.codes(k); got != "ok" {
				y.Errorf("%s: %s", k, got)
			}
		}
	})
}

// TestInteractiveBeforeBulk: of many batches that wait, bulk ones are one in five while interactive ones wait, and
// their calls have a lane of their own.
func TestInteractiveBeforeBulk(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", func(c *Config) { c.MaxBatches = 1 })
		var all []toolyard.BatchKey
		add := func(a toolyard.Agent, p toolyard.Priority) {
			all = append(all, y.submitBatch(toolyard.Batch{Agent: a, Calls: []toolyard.Call{{Tool: "read"}},
				Options: toolyard.Options{Priority: p}}))
		}
		add("first", "")
		y.settle()
		for range 10 {
			add("bulk", toolyard.Bulk)
		}
		for range 20 {
			add("person", toolyard.Interactive)
		}
		y.settle()
		y.work()
		for _, k := range all {
			if got := y.codes(k); got != "ok" {
				y.Errorf("%s: %s", k, got)
			}
		}
		bulk := 0
		for n, a := range y.order()[1:26] {
			if a == "bulk" {
				bulk++
			}
			if n%admission.BulkEvery == admission.BulkEvery-1 && bulk != (n+1)/admission.BulkEvery {
				y.Errorf("of the first %d, %d are bulk batches", n+1, bulk)
			}
		}
		if lane := y.fold(all[1]).Plan.Lane; lane != 7 {
			y.Errorf("a bulk batch has lane %d", lane)
		}
	})
}

// TestReportsThatCameBack: an own report is of use when all that others had reported before it was heard: not when one
// of those is missing because it was replaced meanwhile.
func TestReportsThatCameBack(t *testing.T) {
	var s sharing
	s.again = make(chan struct{}, 1)
	other := func(revision uint64) {
		if s.hear(&broker.UsageChange{Revision: revision}, false) {
			t.Error("another's report is taken for an own one")
		}
	}
	own := func(number, revision uint64) bool {
		return s.hear(&broker.UsageChange{Revision: revision, Report: &broker.UsageReport{Number: number}}, true)
	}
	again := func() bool {
		select {
		case <-s.again:
			return true
		default:
			return false
		}
	}
	other(7) // the first that is heard: others may be missing
	s.send(1)
	if !own(1, 8) || again() {
		t.Error("a report with nothing missing before it is of no use")
	}
	s.send(2)
	other(10) // 9 was replaced, perhaps by one behind the own report
	if own(2, 11) || !again() {
		t.Error("a report is of use, and another's before it is missing")
	}
	s.send(3)
	other(12)
	if own(2, 13) || again() {
		t.Error("a report that was sent before the last one counts")
	}
	if !own(3, 14) {
		t.Error("the one that is sent then is of no use")
	}
}
