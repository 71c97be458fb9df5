package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/report"
	"github.com/toolyard/toolyard/internal/testenv"
)

const reportPath = "/v1/report"

// TestReport: a report is of the batches that the token may see, in the period that is asked for.
func TestReport(t *testing.T) {
	p := guarded(t, "secret-a alice\nsecret-b bob\nsecret-o *\n")
	alice, bob := []string{"Authorization", "Bearer secret-a"}, []string{"Authorization", "Bearer secret-b"}
	olga := []string{"Authorization", "Bearer secret-o"}
	for i := range 3 {
		body := fmt.Sprintf(`{"id": "b%d", "calls": [{"tool": "echo"}, {"tool": "nothing"}]}`, i)
		want[toolyard.BatchView](p, http.StatusOK, http.MethodPost, batches+"?wait=60", body, alice...)
	}
	want[toolyard.BatchView](p, http.StatusOK, http.MethodPost, batches+"?wait=60", `{"calls": [{"tool": "long"}]}`,
		bob...)
	get := func(query string, headers []string) report.Report {
		return want[report.Report](p, http.StatusOK, http.MethodGet, reportPath+query, "", headers...)
	}
	for _, c := range []struct {
		query          string
		who            []string
		batches, calls int
	}{
		{"", alice, 3, 6}, {"", bob, 1, 1}, {"", olga, 4, 7}, {"?agent=alice", olga, 3, 6}, {"?agent=bob", bob, 1, 1},
		{"?agent=nobody", olga, 0, 0}, {"?until=1h", olga, 0, 0}, {"?since=1h", olga, 4, 7},
		{"?since=2001-01-01T00:00:00Z&until=2001-01-02T00:00:00Z", olga, 0, 0},
	} {
		r := get(c.query, c.who)
		if r.Batches.Total != c.batches || r.Calls.Total != c.calls || r.Cut || r.Oldest.IsZero() != (c.batches == 0) {
			t.Errorf("%q of %v: %+v", c.query, c.who, r)
		}
		if c.query == "" && time.Since(r.Since).Round(time.Hour) != api.ReportPeriod {
			t.Errorf("by itself a report is of what came since %v", r.Since)
		}
	}
	if r := get("?until=1h", olga); r.Until.Sub(r.Since) != api.ReportPeriod {
		t.Errorf("a period without a beginning is from %v to %v", r.Since, r.Until)
	}
	r := get("", alice)
	if len(r.Tools) != 2 || r.Tools[0].Calls != 3 || len(r.Codes) != 1 || r.Codes[0].Code != toolyard.UnknownTool ||
		r.Codes[0].Calls != 3 || r.Waits.Queue.Count != 3 {
		t.Errorf("alice's report is %+v", r)
	}
	for _, u := range r.NeverCalled {
		if u.Tool == "echo" || u.Batches != 3 || u.Tokens == 0 {
			t.Errorf("never called: %+v", u)
		}
	}
	if len(r.NeverCalled) == 0 {
		t.Error("alice called all tools")
	}

	if r := p.do(http.MethodGet, reportPath+"?agent=alice", "", bob...); r.status != http.StatusNotFound {
		t.Errorf("another's report: %s", r)
	}
	if r := p.do(http.MethodGet, reportPath, ""); r.status != http.StatusUnauthorized {
		t.Errorf("nobody's report: %s", r)
	}
	for query, field := range map[string]string{
		"?since=yesterday": "since", "?until=-3h": "until", "?since=1h&until=2h": "since",
		"?since=1h&since=2h": "since", "?agent=a%01b": "agent", "?days=3": "days",
	} {
		r := p.do(http.MethodGet, reportPath+query, "", olga...)
		problem := decode[api.Problem](p, string(r.body))
		if r.status != http.StatusBadRequest || problem.Field != field {
			t.Errorf("%s: %s", query, r)
		}
	}
}

// heldHistory is a store whose list of the newest submissions waits until the test says so, and has few.
type heldHistory struct {
	follow.Store
	few   int
	asked chan int
	gate  chan struct{}
	given atomic.Int32 // lists that nobody waited for any longer
}

func (h *heldHistory) Newest(ctx context.Context, a toolyard.Agent, since, until time.Time, most int) ([]broker.Kept,
	bool, error) {
	select {
	case h.asked <- most:
	case <-ctx.Done():
	}
	select {
	case <-h.gate:
		return h.Store.Newest(ctx, a, since, until, h.few)
	case <-ctx.Done():
		h.given.Add(1)
		return nil, false, context.Cause(ctx)
	}
}

// TestReportsAreBounded: a report has the newest batches and says if others are left out, few are made at a time, and
// one whose client has gone ends.
func TestReportsAreBounded(t *testing.T) {
	tokens := tokensOf(t, "secret-a alice\nsecret-o *\n")
	h := &heldHistory{few: 2, asked: make(chan int), gate: make(chan struct{})}
	p := start(t, func(c *api.Config) {
		c.Tokens, c.Loopback, h.Store = tokens, false, c.Reader.Store
		c.Reader = follow.New(h, follow.Options{Shared: true})
	})
	alice, olga := []string{"Authorization", "Bearer secret-a"}, []string{"Authorization", "Bearer secret-o"}
	for i := range 3 {
		body := fmt.Sprintf(`{"id": "b%d", "calls": [{"tool": "echo"}]}`, i)
		want[toolyard.BatchView](p, http.StatusOK, http.MethodPost, batches+"?wait=60", body, alice...)
	}
	answers := make(chan reply)
	// ask asks until there is room, and returns when the report has begun.
	ask := func(headers []string) (leave context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			var got reply
			for got.status == 0 || got.status == http.StatusTooManyRequests {
				r := p.request(http.MethodGet, reportPath, "", headers...).WithContext(ctx)
				answer, err := http.DefaultClient.Do(r)
				if errors.Is(err, context.Canceled) {
					break
				}
				if err == nil {
					got.status = answer.StatusCode
					got.body, err = io.ReadAll(answer.Body)
					err = errors.Join(err, answer.Body.Close())
				}
				if err != nil {
					t.Error(err)
					break
				}
			}
			answers <- got
		}()
		select {
		case most := <-h.asked:
			if most != api.MaxReportBatches {
				t.Errorf("a report is of %d batches", most)
			}
		case <-time.After(patience):
			t.Fatal("no report begins")
		}
		return cancel
	}
	full := func(who string, headers []string) {
		t.Helper()
		r := p.do(http.MethodGet, reportPath, "", headers...)
		if r.status != http.StatusTooManyRequests || r.header.Get("Retry-After") == "" ||
			!strings.Contains(string(r.body), "under way") {
			t.Errorf("%s: %s", who, r)
		}
	}
	leave := ask(alice)
	full("a second report of an agent", alice)
	second := ask(olga)
	defer second()
	full("a third report", olga)

	leave()
	if got := <-answers; got.status != 0 {
		t.Errorf("who has gone is answered %s", got)
	}
	testenv.Until(p, "the report of who has gone ends", func() bool { return h.given.Load() == 1 })
	third := ask(alice)
	defer third()
	close(h.gate)
	for range 2 {
		got := <-answers
		if got.status != http.StatusOK {
			t.Fatalf("a report ends with %s", got)
		}
		if r := decode[report.Report](p, string(got.body)); r.Batches.Total != 2 || !r.Cut || r.Oldest.IsZero() {
			t.Errorf("the newest of three batches are %+v", r)
		}
	}
}
