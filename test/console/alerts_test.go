package console

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// alert is a rule of deploy/observe/alerts.yaml: what its expression ends with, and how long it must hold.
type alert struct {
	name, op string
	limit    float64
	severity string
	wait     time.Duration
}

// alerts reads the names and the limits of the rules. test/observe reads the file as Prometheus does.
func alerts(t *testing.T) []alert {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "deploy", "observe", "alerts.yaml"))
	must.OK(t, err)
	var out []alert
	for _, m := range regexp.MustCompile(`- alert: (\w+)\n +expr: (.*)\n(?: +for: (.*)\n)? +`+
		`labels: {severity: (\w+)}\n`).FindAllStringSubmatch(string(data), -1) {
		a := alert{name: m[1], severity: m[4]}
		if m[3] != "" {
			if a.wait, err = time.ParseDuration(m[3]); err != nil {
				t.Fatal(err)
			}
		}
		if end := regexp.MustCompile(`(==|>=|>) ([0-9.]+)(?: and .*)?$`).FindStringSubmatch(m[2]); end != nil {
			if a.limit, err = strconv.ParseFloat(end[2], 64); err != nil {
				t.Fatal(err)
			}
			a.op = end[1]
		}
		out = append(out, a)
	}
	return out
}

// row is how the page shows it, but for the cells that depend on the numbers.
func (a *alert) row() string {
	wait := "at once"
	switch {
	case a.wait >= 2*time.Minute:
		wait = fmt.Sprintf("%.0f min", a.wait.Minutes())
	case a.wait > 0:
		wait = fmt.Sprintf("%.1f s", a.wait.Seconds())
	}
	return fmt.Sprintf("%s %s %s docs/runbook.md, %s", a.name, a.severity, wait, a.name)
}

// holds says whether the condition holds for a value.
func (a *alert) holds(v float64) bool {
	switch a.op {
	case "==":
		return v == a.limit
	case ">=":
		return v >= a.limit
	}
	return v > a.limit
}

// numbers has for each alert how a dispatcher says that the value that the alert looks at is v.
var numbers = map[string]func(v float64) string{
	"ToolyardNoDispatcher": nil, // see below
	"ToolyardNotConnected": gauge(`toolyard_nats_connected`),
	"ToolyardNoWorkers":    gauge(`toolyard_workers`),
	"ToolyardShardWithoutDispatcher": gauge("toolyard_shard_dispatchers{shard=\"0\"} 5\n" +
		`toolyard_shard_dispatchers{shard="1"}`),
	"ToolyardShardWithoutWorker":  gauge(`toolyard_shard_workers{pool="default",shard="1"}`),
	"ToolyardWorkerNotRegistered": gauge(`toolyard_worker_registered`),
	"ToolyardQueueOld":            gauge(`toolyard_queue_oldest_seconds{pool="default",class="UNSAFE"}`),
	"ToolyardSlotsBusy": func(v float64) string {
		return fmt.Sprintf("toolyard_slots 1000\ntoolyard_slots_busy %v\n", 1000*v)
	},
	"ToolyardBatchesWaiting": gauge(`toolyard_batches_waiting`),
	"ToolyardBatchesRefused": gauge("toolyard_batches_refused_total{status=\"400\"} 9\n" +
		`toolyard_batches_refused_total{status="429"}`),
	"ToolyardStoreFilling": gauge(`toolyard_store_fill_ratio`),
	"ToolyardStreamFull": gauge("toolyard_stream_fill_ratio{stream=\"TY_DEAD\"} 1\n" +
		`toolyard_stream_fill_ratio{stream="TY_EVENT"}`),
	"ToolyardOutcomeUnknown": gauge(`toolyard_calls_total{class="UNSAFE",code="outcome_unknown"}`),
	"ToolyardInternalErrors": gauge(`toolyard_calls_total{class="UNSAFE",code="internal_error"}`),
	"ToolyardDeadLetters":    gauge(`toolyard_dead_letters_total`),
	"ToolyardSetupRequired":  gauge(`toolyard_calls_total{class="UNSAFE",code="setup_required"}`),
	"ToolyardLeaseLosses":    gauge(`toolyard_worker_lease_losses_total`),
	"ToolyardBreakersOpen":   gauge(`toolyard_breakers_open`),
	"ToolyardCallsStalled":   gauge(`toolyard_calls_stalled_total`),
	"ToolyardSandboxFails":   gauge(`toolyard_worker_sandbox_starts_total{outcome="not_started"}`),
	"ToolyardTicketWaits": func(v float64) string { // all are in one bucket of a second, 0.95 of it below v
		bucket := `toolyard_ticket_wait_seconds_bucket{mode="exclusive",le="%v"} %v` + "\n"
		return fmt.Sprintf(bucket+bucket+bucket, v-0.95, 0, v+0.05, 100, "+Inf", 100)
	},
}

func gauge(series string) func(v float64) string {
	return func(v float64) string { return fmt.Sprintf("%s %v\n", series, v) }
}

// fake has the page read these numbers in place of those of the dispatcher, which began at a time.
func (b *tab) fake(text string, began time.Time) {
	b.Helper()
	text += fmt.Sprintf("process_start_time_seconds %d\n", began.Unix())
	quoted, err := json.Marshal(text)
	must.OK(b, err)
	b.script(fmt.Sprintf(`window.asked = 0; window.numbers = %s; window.real ??= window.fetch;
		window.fetch = (path, init) => path !== "/metrics" ? window.real(path, init) :
			(window.asked++, Promise.resolve(new Response(window.numbers)))`, quoted))
	b.until("the page has read them", `window.asked > 1`) // the first answer is shown when the next is asked for
}

// names are the alerts that the page shows.
func (b *tab) alerts() []string {
	b.Helper()
	return slices.DeleteFunc(b.words(`[aria-label=Alerts] tbody td:first-child`), func(s string) bool { return s == "" })
}

// TestAlertsThatHold: the page System reads each rule of deploy/observe, and says that its condition holds when the
// numbers are past the limit that stands there, and not before.
func TestAlertsThatHold(t *testing.T) {
	all := alerts(t)
	if len(all) != len(numbers) {
		t.Errorf("there are %d rules, and numbers for %d", len(all), len(numbers))
	}
	s := start(t)
	b := open(t, s.url)
	b.visit("#/system")
	b.has("TY_EVENT")
	if !value[bool](b, `!!document.querySelector("section[aria-label=Alerts] .hint")`) ||
		strings.Contains(b.shows(), "Not read here") {
		t.Errorf("the page says of the rules:\n%s", b.shows())
	}
	at := func(how string, running bool, by float64) {
		t.Helper()
		text := ""
		var want, rows []string
		if running {
			text = "toolyard_batches_running 0\n"
		}
		for _, a := range all {
			put, ok := numbers[a.name]
			switch {
			case !ok:
				t.Errorf("%s has no numbers here", a.name)
			case put != nil:
				v := a.limit + by*max(1, a.limit)/100 // whole numbers of counters do not matter to the page
				if v < 0 {
					v = 0
				}
				text += put(v)
				if a.holds(v) && a.name != "ToolyardWorkerNotRegistered" {
					want, rows = append(want, a.name), append(rows, a.row())
				}
			case !running:
				want, rows = append(want, a.name), append(rows, a.row())
			}
		}
		b.fake(text, time.Now())
		if got := b.alerts(); !slices.Equal(got, want) {
			t.Errorf("%s: the alerts are\n%q, want\n%q", how, got, want)
		}
		if got := strings.Split(value[string](b, `[...document.querySelectorAll("[aria-label=Alerts] tbody tr")].map(
			r => [0, 1, 4, 5].map(n => r.cells[n].innerText).join(" ")).join("|")`), "|"); !slices.Equal(got, rows) {
			t.Errorf("%s: the rows are\n%q, want\n%q", how, got, rows)
		}
	}
	at("below the limits", true, -1)
	at("at the limits", true, 0)
	at("past the limits", false, 1)
	for _, want := range []string{"UNSAFE calls of pool default wait for a worker, the oldest for 61 s.",
		"TY_EVENT is 86.0 % full.", "docs/runbook.md, ToolyardQueueOld",
		"in the sandbox of this process."} {
		b.has(want)
	}
	b.accessible("alerts")

	// A worker that is connected and not registered.
	b.fake("toolyard_batches_running 0\ntoolyard_nats_connected 1\ntoolyard_worker_registered 0\n", time.Now())
	if got := b.alerts(); !slices.Equal(got, []string{"ToolyardWorkerNotRegistered"}) {
		t.Errorf("of a worker that is not registered the alerts are %q", got)
	}
	b.has("This process is connected to NATS")

	// What was counted long ago is no alert, and what is counted while one looks is.
	old := time.Now().Add(-24 * time.Hour)
	counted := func(unknown int) string {
		return "toolyard_batches_running 0\n" +
			numbers["ToolyardOutcomeUnknown"](float64(unknown))
	}
	b.fake(counted(7), old)
	b.has("None of the")
	b.has("Workers' own numbers have ToolyardWorkerNotRegistered, ToolyardLeaseLosses, ToolyardSandboxFails.")
	b.accessible("no alert")
	b.fake(counted(8), old)
	if got := b.alerts(); !slices.Equal(got, []string{"ToolyardOutcomeUnknown"}) {
		t.Errorf("after one more the alerts are %q", got)
	}
}
