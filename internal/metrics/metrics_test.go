package metrics

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/ticket"
)

// whole are metrics of a process that has everything and has done everything once.
func whole() *Metrics {
	m := New(func() bool { return true })
	d := m.Dispatcher(func() Load {
		return Load{Running: 1, Idle: 2, Waiting: 3, Workers: 4, Slots: 5, Busy: 6, Breakers: 7, Stalls: 8,
			StoreFill: 50, Wanted: map[toolyard.Pool]map[toolyard.Class]int{"p": {toolyard.ReadOnly: 12}}}
	})
	w := m.Worker(func() WorkerLoad {
		return WorkerLoad{Registered: true, Slots: map[toolyard.Class]int{toolyard.ReadOnly: 16},
			Busy: map[toolyard.Class]int{toolyard.ReadOnly: 2}, Breakers: 1, Stalls: 9, CacheBytes: 77}
	})
	res := &toolyard.Result{Class: toolyard.ReadOnly, Code: toolyard.OutcomeUnknown, Attempts: 2, DurationMS: 10}
	d.Completed("completed")
	d.Refused(503)
	d.Result(res)
	d.TicketGranted(ticket.Exclusive, time.Second)
	d.Stock(Stock{Streams: map[string]float64{"TY_CALL": 0.5}, DeadLetters: 4, Queues: []Queue{
		{Pool: "p", Class: toolyard.ReadOnly, Waiting: 3, Taken: 2, Oldest: time.Now().Add(-time.Hour)},
		{Pool: "q", Class: toolyard.Unsafe}}, Shards: []Shard{
		{Shard: 0, Dispatchers: 2, Workers: map[toolyard.Pool]int{"p": 3}},
		{Shard: 1, Workers: map[toolyard.Pool]int{"p": 0}}}})
	w.Ran(res)
	w.Ran(&toolyard.Result{Class: toolyard.ReadOnly, Cache: toolyard.CacheShared})
	w.LeaseLost()
	w.SandboxStarted(nil)
	return m
}

// TestNames: Prometheus's linter has nothing to say about our metrics, and All lists each of them as it is.
func TestNames(t *testing.T) {
	families, err := whole().registry.Gather()
	must.OK(t, err)
	found := map[string]int{}
	ours := families[:0]
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "toolyard_") {
			found[f.GetName()], ours = len(ours), append(ours, f)
		}
	}
	problems, err := promlint.NewWithMetricFamilies(ours).Lint()
	must.OK(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	listed := map[string]bool{}
	for _, m := range All() {
		i, ok := found[m.Name]
		listed[m.Name] = true
		if !ok {
			t.Errorf("%s is listed, and no process has it", m.Name)
			continue
		}
		f, labels := ours[i], []string(nil)
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		want := slices.Sorted(slices.Values(m.Labels))
		if kind := Kind(strings.ToLower(f.GetType().String())); kind != m.Kind || f.GetHelp() != m.Help ||
			!slices.Equal(labels, want) || m.Help == "" {
			t.Errorf("%s: is a %s with labels %q, and is listed as %+v", m.Name, kind, labels, m)
		}
	}
	for name := range found {
		if !listed[name] {
			t.Errorf("%s is not listed", name)
		}
	}
	if len(listed) < 25 {
		t.Errorf("%d metrics are listed", len(listed))
	}
}

// TestValues: a scrape has what was counted and what stands there now.
func TestValues(t *testing.T) {
	var b bytes.Buffer
	must.OK(t, whole().Write(&b))
	for _, line := range []string{
		`toolyard_nats_connected 1`,
		`toolyard_calls_total{class="READ_ONLY",code="outcome_unknown"} 1`,
		`toolyard_call_attempts_total 2`,
		`toolyard_slots 5`, `toolyard_slots_busy 6`, `toolyard_breakers_open 7`, `toolyard_calls_stalled_total 8`,
		`toolyard_store_fill_ratio 0.5`, `toolyard_wanted_slots{class="READ_ONLY",pool="p"} 12`,
		`toolyard_stream_fill_ratio{stream="TY_CALL"} 0.5`, `toolyard_dead_letters_total 4`,
		`toolyard_queue_calls{class="READ_ONLY",pool="p"} 3`,
		`toolyard_queue_taken_calls{class="READ_ONLY",pool="p"} 2`,
		`toolyard_queue_oldest_seconds{class="UNSAFE",pool="q"} 0`,
		`toolyard_shard_dispatchers{shard="0"} 2`, `toolyard_shard_dispatchers{shard="1"} 0`,
		`toolyard_shard_workers{pool="p",shard="0"} 3`, `toolyard_shard_workers{pool="p",shard="1"} 0`,
		`toolyard_ticket_wait_seconds_sum{mode="exclusive"} 1`,
		`toolyard_worker_slots{class="READ_ONLY"} 16`, `toolyard_worker_slots_busy{class="READ_ONLY"} 2`,
		`toolyard_worker_runs_total{class="READ_ONLY",code="outcome_unknown"} 1`,
		`toolyard_worker_lease_losses_total 1`, `toolyard_worker_sandbox_starts_total{outcome="ran"} 1`,
		`toolyard_worker_registered 1`, `toolyard_worker_cache_bytes 77`,
		`toolyard_worker_cache_uses_total{use="shared"} 1`, `toolyard_worker_cache_uses_total{use="hit"} 0`,
	} {
		if !strings.Contains(b.String(), "\n"+line+"\n") {
			t.Errorf("there is no %s", line)
		}
	}
	if line := `toolyard_calls_total{class="UNSAFE",code="internal_error"} 0`; !strings.Contains(b.String(), line) {
		t.Errorf("what has not happened is not counted as 0: there is no %s", line)
	}
	_, rest, _ := strings.Cut(b.String(), `toolyard_queue_oldest_seconds{class="READ_ONLY",pool="p"} `)
	if !strings.HasPrefix(rest, "36") {
		t.Errorf("a call that was queued an hour ago is %.8s seconds old", rest)
	}
}

// TestAForgedResult: a worker may write any numbers. Those below zero crash nobody, and no counter falls.
func TestAForgedResult(t *testing.T) {
	m := New(func() bool { return true })
	d := m.Dispatcher(func() Load { return Load{} })
	res := toolyard.Result{Class: toolyard.ReadOnly, Attempts: 1, DurationMS: 1000, ExecuteMS: 1000, QueueMS: 1000}
	d.Result(&res)
	d.Result(&toolyard.Result{Class: toolyard.ReadOnly, Attempts: -1, DurationMS: -5, ExecuteMS: -5, QueueMS: -5})
	res.DurationMS, res.ExecuteMS, res.QueueMS = -5000, -5000, -5000
	d.Result(&res)
	var b bytes.Buffer
	must.OK(t, m.Write(&b))
	for _, line := range []string{
		`toolyard_calls_total{class="READ_ONLY",code="ok"} 3`,
		`toolyard_call_attempts_total 2`,
		`toolyard_call_seconds_sum{class="READ_ONLY"} 1`,
		`toolyard_call_execute_seconds_sum{class="READ_ONLY"} 1`,
		`toolyard_call_queue_seconds_sum{class="READ_ONLY"} 1`,
	} {
		if !strings.Contains(b.String(), "\n"+line+"\n") {
			t.Errorf("there is no %s", line)
		}
	}
}

// TestACallThatNoWorkerFinished: a call whose worker was lost, or that was canceled while it ran, has no time in the
// pipeline. None is counted: many calls of no time would make the others look fast.
func TestACallThatNoWorkerFinished(t *testing.T) {
	t.Parallel()
	m := New(func() bool { return true })
	d := m.Dispatcher(func() Load { return Load{} })
	d.Result(&toolyard.Result{Class: toolyard.Unsafe, Attempts: 1, DurationMS: 3000, ExecuteMS: 2000, QueueMS: 1000,
		Worker: "w"})
	for range 9 {
		d.Result(&toolyard.Result{Class: toolyard.Unsafe, IsError: true, Code: toolyard.OutcomeUnknown, Attempts: 1,
			QueueMS: 1000, Worker: "w"})
	}
	var b bytes.Buffer
	must.OK(t, m.Write(&b))
	for _, line := range []string{
		`toolyard_calls_total{class="UNSAFE",code="outcome_unknown"} 9`, `toolyard_call_attempts_total 10`,
		`toolyard_call_seconds_count{class="UNSAFE"} 1`, `toolyard_call_seconds_sum{class="UNSAFE"} 3`,
		`toolyard_call_execute_seconds_count{class="UNSAFE"} 1`,
		`toolyard_call_queue_seconds_count{class="UNSAFE"} 10`,
	} {
		if !strings.Contains(b.String(), "\n"+line+"\n") {
			t.Errorf("there is no %s", line)
		}
	}
}

// TestNothingIsKnownOfTheStore: what could not be read is absent, not old.
func TestNothingIsKnownOfTheStore(t *testing.T) {
	m := New(func() bool { return false })
	d := m.Dispatcher(func() Load { return Load{} })
	d.Stock(Stock{Streams: map[string]float64{"TY_CALL": 1}})
	d.Stock(Stock{})
	var b bytes.Buffer
	if err := m.Write(&b); err != nil || strings.Contains(b.String(), "TY_CALL") ||
		strings.Contains(b.String(), "\ntoolyard_dead_letters_total") ||
		!strings.Contains(b.String(), "\ntoolyard_nats_connected 0\n") {
		t.Errorf("%v\n%s", err, b.String())
	}
}
