package http

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/testenv"
)

const signInPath = "/v1/console/session"

// TestABrowsersSession: a token in a cookie counts with the page's key alone, and each of them is nothing without the
// other.
func TestABrowsersSession(t *testing.T) {
	p := startFor(t, "secret-a alice\nsecret-o * name=olga\n")
	sign := func(token string) (key string, cookie *http.Cookie) {
		r := p.do(http.MethodPost, signInPath, fmt.Sprintf(`{"token": %q}`, token))
		if r.status != http.StatusOK {
			t.Fatalf("signing in: %s", r)
		}
		cookies := (&http.Response{Header: r.header}).Cookies()
		if len(cookies) != 1 {
			t.Fatalf("signing in sets %d cookies", len(cookies))
		}
		c := cookies[0]
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || !c.Expires.IsZero() ||
			c.MaxAge != 0 {
			t.Errorf("the cookie is %s", c)
		}
		if strings.Contains(c.Value, token) || strings.Contains(string(r.body), token) {
			t.Error("the answer shows the token")
		}
		return decode[api.SignedIn](p, string(r.body)).Key, c
	}
	alice, cookie := sign("secret-a")
	olga, other := sign("secret-o")
	both := func(c *http.Cookie, key string) []string {
		return []string{"Cookie", c.Name + "=" + c.Value, "Toolyard-Session", key}
	}
	if me := want[api.Me](p, http.StatusOK, http.MethodGet, "/v1/me", "",
		both(cookie, alice)...); me.Agent != "alice" || me.Operator || !me.Asks || me.Name != "alice" {
		t.Errorf("alice is %+v", me)
	}
	if me := want[api.Me](p, http.StatusOK, http.MethodGet, "/v1/me", "", both(other, olga)...); !me.Operator ||
		me.Name != "olga" {
		t.Errorf("olga is %+v", me)
	}
	for what, headers := range map[string][]string{
		"the cookie alone": {"Cookie", cookie.Name + "=" + cookie.Value}, "the key alone": {"Toolyard-Session", alice},
		"another's key": both(cookie, olga), "no key": both(cookie, "x"), "nothing": nil,
		"the cookie of another name": {"Cookie", "toolyard-1=" + cookie.Value, "Toolyard-Session", alice},
	} {
		for _, path := range []string{"/v1/me", batches, "/v1/workers"} {
			if r := p.do(http.MethodGet, path, "", headers...); r.status != http.StatusUnauthorized {
				t.Errorf("%s: GET %s: %s", what, path, r)
			}
		}
	}
	for _, token := range []string{"", "secret-x", "*"} {
		if r := p.do(http.MethodPost, signInPath, fmt.Sprintf(`{"token": %q}`, token)); r.status !=
			http.StatusUnauthorized || r.header.Get("Set-Cookie") != "" {
			t.Errorf("signing in with %q: %s", token, r)
		}
	}
	long := strings.Repeat("x", api.MaxSessionToken+1)
	if r := p.do(http.MethodPost, signInPath, fmt.Sprintf(`{"token": %q}`, long)); r.status != http.StatusBadRequest {
		t.Errorf("a token that no cookie holds: %s", r)
	}
	r := p.do(http.MethodDelete, signInPath, "", both(cookie, alice)...)
	if gone := (&http.Response{Header: r.header}).Cookies(); r.status != http.StatusNoContent || len(gone) != 1 ||
		gone[0].Name != cookie.Name || gone[0].MaxAge >= 0 {
		t.Errorf("signing out: %s, %v", r, gone)
	}
}

// TestASecureSession: where browsers come over TLS, the cookie goes nowhere else.
func TestASecureSession(t *testing.T) {
	tokens := tokensOf(t, "secret-a alice\n")
	p := start(t, func(c *api.Config) { c.Tokens, c.PublicURL = tokens, "https://tools.example.com" })
	r := p.do(http.MethodPost, signInPath, `{"token": "secret-a"}`)
	cookies := (&http.Response{Header: r.header}).Cookies()
	if len(cookies) != 1 || !cookies[0].Secure || !strings.HasPrefix(cookies[0].Name, "__Host-") {
		t.Errorf("the cookie is %v", cookies)
	}
}

// TestTimeline: each event of a log can be looked at, and what is sent again is what has changed.
func TestTimeline(t *testing.T) {
	p := start(t, nil)
	body := `{"id": "b", "session": "s", "calls": [{"id": "c0", "tool": "echo", "input": {"text": "a  b\u202e"}}, {"tool": "wait"}]}`
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, body)
	at := func(query string) api.Timeline {
		return want[api.Timeline](p, http.StatusOK, http.MethodGet, batches+"/b/timeline"+query, "")
	}
	var now api.Timeline
	testenv.Until(p, "the second call runs", func() bool {
		now = at("")
		return len(now.Rows) == 2 && now.Rows[1].Status == "claimed"
	})
	if now.At != now.Events || now.Rows[0].Status != "finished" || len(now.Batch.Groups) != 2 ||
		now.Batch.Status != toolyard.StatusRunning {
		t.Errorf("the second call runs: %+v", now)
	}
	p.gate <- struct{}{}
	var end api.Timeline
	testenv.Until(p, "the batch is complete", func() bool {
		end = at(fmt.Sprintf("?since=%d", now.Events))
		return end.Batch.Status == toolyard.StatusCompleted
	})
	if len(end.Rows) != 1 || end.Rows[0].Index != 1 || end.Rows[0].Status != "finished" || end.Batch.Finished != 2 {
		t.Errorf("after event %d: %+v", now.Events, end)
	}
	for n := 1; n <= end.Events; n++ {
		past := at(fmt.Sprintf("?at=%d", n))
		if past.At != n || past.Events != end.Events || past.Around[len(past.Around)-1].Event != n {
			t.Errorf("at event %d: %+v", n, past)
		}
		if n == 1 && (past.Rows[0].Status != "unplanned" || past.Batch.Finished != 0) {
			t.Errorf("at the submission: %+v", past)
		}
	}
	if back := at("?at=1"); back.Batch.Finished != 0 { // a fold goes forward only
		t.Errorf("back at the submission: %+v", back)
	}
	call := want[api.CallLook](p, http.StatusOK, http.MethodGet, batches+"/b/calls/0", "")
	if call.CallID != "c0" || call.Result == nil || call.Result.Output != "a  b\u202e" ||
		!slices.ContainsFunc(call.Lines, func(s string) bool { return strings.Contains(s, "U+202E") }) {
		t.Errorf("the first call: %+v", call)
	}
	if early := want[api.CallLook](p, http.StatusOK, http.MethodGet, batches+"/b/calls/0?at=1",
		""); early.Result != nil {
		t.Errorf("the first call at the submission: %+v", early)
	}
	for path, status := range map[string]int{"/b/calls/2": 404, "/x/timeline": 404, "/b/timeline?at=x": 400} {
		if r := p.do(http.MethodGet, batches+path, ""); r.status != status {
			t.Errorf("GET %s: %s", path, r)
		}
	}
}

// TestSearch: batches are found by the tools and the codes in their logs too, page by page.
func TestSearch(t *testing.T) {
	p := start(t, nil)
	for i := range 6 {
		tool := []string{"echo", "long", "nothing"}[i%3]
		body := fmt.Sprintf(`{"id": "b%d", "agent": "agent-%d", "calls": [{"tool": %q}]}`, i, i%2, tool)
		want[toolyard.BatchView](p, http.StatusOK, http.MethodPost, batches+"?wait=60", body)
	}
	find := func(query string) (ids []string) {
		for next := ""; ; {
			page := want[api.Found](p, http.StatusOK, http.MethodGet, "/v1/search?limit=2"+query+next, "")
			for _, b := range page.Batches {
				ids = append(ids, string(b.ID))
			}
			if page.Next == 0 {
				return ids
			}
			next = fmt.Sprintf("&after=%d", page.Next)
		}
	}
	testenv.Until(p, "all batches are listed as over", func() bool { return len(find("&status=completed")) == 6 })
	for query, ids := range map[string]string{
		"": "b5 b4 b3 b2 b1 b0", "&tool=echo": "b3 b0", "&tool=long&agent=agent-0": "b4", "&code=unknown_tool": "b5 b2",
		"&code=error": "b5 b2", "&text=B4": "b4", "&text=gent-1": "b5 b3 b1", "&tool=no": "",
		"&until=2001-01-01T00:00:00Z": "", "&since=2001-01-01T00:00:00Z&status=canceled": "",
	} {
		for range 2 { // the second time from what is remembered
			if got := strings.Join(find(query), " "); got != ids {
				t.Errorf("%s finds %q, want %q", query, got, ids)
			}
		}
	}
}

// TestSearchInLongLogs: batches are found by their tools and codes however many calls they have. A request stops before
// a log with which it would read too many calls, and the next one goes on there.
func TestSearchInLongLogs(t *testing.T) {
	p := start(t, nil)
	const most = 50_000 // calls in the logs that a request reads
	sizes := []int{10, 9_999, 10_000, 10_000, 10_000, 10_000, 1_001}
	for i, n := range sizes {
		body := fmt.Sprintf(`{"id": "b%d", "calls": [%s{"tool": "nothing%d"}]}`, i, strings.Repeat(`{"tool": "no"},`, n-1), i)
		want[toolyard.BatchView](p, http.StatusOK, http.MethodPost, batches+"?wait=300", body)
	}
	first := want[api.Found](p, http.StatusOK, http.MethodGet, "/v1/search?tool=no", "")
	calls := 0
	for _, b := range first.Batches {
		if calls += b.Calls; b.Failed != b.Calls || b.Opaque || len(b.Tools) != 2 {
			t.Errorf("batch %s: %+v", b.ID, b)
		}
	}
	if calls > most || calls+sizes[1] <= most || first.Next == 0 {
		t.Errorf("the first page has %d batches of %d calls, and goes on at %d", len(first.Batches), calls, first.Next)
	}
	rest := want[api.Found](p, http.StatusOK, http.MethodGet, fmt.Sprint("/v1/search?tool=no&after=", first.Next), "")
	if len(first.Batches)+len(rest.Batches) != len(sizes) || rest.Next != 0 {
		t.Errorf("the rest is %+v", rest)
	}
	one := want[api.Found](p, http.StatusOK, http.MethodGet, "/v1/search?code=unknown_tool&tool=nothing3", "")
	if len(one.Batches) != 1 || one.Batches[0].ID != "b3" || one.Next != first.Next {
		t.Errorf("by a tool of one batch: %+v", one)
	}
}

// TestAnApprovalInLines: who decides sees every character of the input.
func TestAnApprovalInLines(t *testing.T) {
	p := start(t, nil)
	body := `{"id": "b", "interactive": true, "calls": [{"tool": "write", "input": {"text": "a\u200bb"}}]}`
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, body)
	var id string
	testenv.Until(p, "a call waits", func() bool {
		list := want[api.Approvals](p, http.StatusOK, http.MethodGet, "/v1/approvals", "").Approvals
		if len(list) == 1 {
			id = list[0].ID
		}
		return id != ""
	})
	look := want[api.ApprovalLook](p, http.StatusOK, http.MethodGet, "/v1/approvals/"+id, "")
	if look.Tool != "write" || look.Part != "" ||
		!slices.ContainsFunc(look.Lines, func(s string) bool { return strings.Contains(s, "U+200B") }) {
		t.Errorf("the approval is %+v", look)
	}
	for query, n := range map[string]int{"": 1, "?agent=default": 1, "?agent=other": 0} {
		if got := want[api.WaitingCalls](p, http.StatusOK, http.MethodGet, "/v1/waiting"+query, ""); got.Calls != n {
			t.Errorf("of %q %d calls are counted, want %d", query, got.Calls, n)
		}
	}
	if r := p.do(http.MethodGet, "/v1/approvals/default.b.1", ""); r.status != http.StatusNotFound {
		t.Errorf("another call: %s", r)
	}
}

// TestRerunAndCompare: a batch runs again, calls that may act again only when that is allowed, and what is different
// is told.
func TestRerunAndCompare(t *testing.T) {
	p := startFor(t, "secret-a alice\nsecret-b bob\n")
	alice, bob := []string{"Authorization", "Bearer secret-a"}, []string{"Authorization", "Bearer secret-b"}
	done := func(id, body string) {
		t.Helper()
		want[toolyard.BatchView](p, http.StatusOK, http.MethodPost, batches+"?wait=60",
			fmt.Sprintf(`{"id": %q, "calls": [%s]}`, id, body), alice...)
	}
	done("reads", `{"id": "c0", "tool": "echo", "input": {"text": "one\ntwo"}}, {"tool": "echo", "input": {"text": "x"}}`)
	done("other",
		`{"id": "c0", "tool": "echo", "input": {"text": "one\nzwei"}}, {"tool": "echo", "input": {"text": "x"}}`)
	done("writes", `{"tool": "echo", "input": {"text": "x"}}, {"tool": "write", "input": {"text": "x"}}`)

	again := want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches+"/reads/rerun", "", alice...)
	if again.ID == "reads" || again.Agent != "alice" {
		t.Errorf("it runs again as %s/%s", again.Agent, again.ID)
	}
	compared := func(of, with string) api.Comparison {
		t.Helper()
		path := batches + "/" + of + "/compare?other=" + with
		return want[api.Comparison](p, http.StatusOK, http.MethodGet, path, "", alice...)
	}
	var same api.Comparison
	testenv.Until(p, "the rerun is complete", func() bool {
		same = compared("reads", string(again.ID))
		return same.Status == toolyard.StatusCompleted
	})
	if len(same.Differences) != 0 || same.Calls != 2 || same.Compared != 2 || same.Other != again.ID {
		t.Errorf("a rerun of reads: %+v", same)
	}
	d := compared("reads", "other").Differences
	if len(d) != 1 || d[0].Index != 0 || d[0].CallID != "c0" || d[0].What != "output" || d[0].Line != 2 ||
		d[0].Before != "two" || d[0].After != "zwei" {
		t.Errorf("another output: %+v", d)
	}

	for what, c := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
		says               string
	}{
		"a write unasked":   {http.MethodPost, "/writes/rerun", "", alice, 409, "[1] write (WRITE_EXCLUSIVE)"},
		"an unknown field":  {http.MethodPost, "/reads/rerun", `{"writes": true}`, alice, 400, "allow_writes"},
		"a used id":         {http.MethodPost, "/reads/rerun", `{"id": "writes"}`, alice, 409, "writes"},
		"no such batch":     {http.MethodPost, "/none/rerun", "", alice, 404, ""},
		"another's batch":   {http.MethodPost, "/reads/rerun", "", bob, 404, ""},
		"another's results": {http.MethodGet, "/reads/compare?other=other", "", bob, 404, ""},
		"with nothing":      {http.MethodGet, "/reads/compare", "", alice, 400, "other"},
		"with no such one":  {http.MethodGet, "/reads/compare?other=none", "", alice, 404, ""},
	} {
		if r := p.do(c.method, batches+c.path, c.body, c.headers...); r.status != c.status ||
			!strings.Contains(string(r.body), c.says) {
			t.Errorf("%s: %s, want %d with %q", what, r, c.status, c.says)
		}
	}
	body := `{"id": "writes-2", "allow_writes": true}`
	for range 2 { // the same request again is the same batch
		if b := want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches+"/writes/rerun", body,
			alice...); b.ID != "writes-2" {
			t.Errorf("it runs again as %s", b.ID)
		}
	}
	testenv.Until(p, "the write ran again", func() bool {
		c := compared("writes", "writes-2")
		return c.Status == toolyard.StatusCompleted && len(c.Differences) == 0
	})
}
