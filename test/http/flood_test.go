package http

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"log/slog"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// guarded starts a system with these tokens.
func guarded(t testing.TB, file string) *pool {
	t.Helper()
	tokens := tokensOf(t, file)
	return start(t, func(c *api.Config) {
		c.Tokens, c.Loopback = tokens, false
		if _, ok := t.(*testing.B); ok {
			c.Log = slog.New(slog.DiscardHandler)
		}
	})
}

// flood opens streams of a path, and returns when all have begun; a client that is dropped comes again. ended is closed
// when all streams have come to their end. stop ends those that are left, and returns how many events each client has
// seen.
func (p *pool) flood(n int, token string, path func(i int) string) (ended <-chan struct{}, stop func() []int) {
	p.Helper()
	ctx, cancel := context.WithCancel(p.Context())
	seen := make([]int, n)
	var wg, begun sync.WaitGroup
	begun.Add(n)
	for i := range n {
		first := sync.OnceFunc(begun.Done)
		wg.Go(func() {
			defer first()
			for last := ""; ctx.Err() == nil; {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path(i), nil)
				if err != nil {
					p.Error(err)
					return
				}
				r.Header.Set("Authorization", "Bearer "+token)
				r.Header.Set("Accept", "text/event-stream")
				if last != "" {
					r.Header.Set("Last-Event-ID", last)
				}
				res, err := http.DefaultClient.Do(r)
				if err != nil {
					return
				}
				if res.StatusCode != http.StatusOK {
					p.Errorf("stream %d: %s", i, res.Status)
				}
				first()
				dropped := false
				lines := bufio.NewScanner(res.Body)
				lines.Buffer(nil, 32<<20)
				for lines.Scan() {
					if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
						last = id
					}
					if strings.HasPrefix(lines.Text(), "data: ") {
						seen[i]++
					}
					dropped = dropped || lines.Text() == "event: behind"
				}
				_ = res.Body.Close()
				if !dropped {
					return
				}
			}
		})
	}
	begun.Wait()
	all := make(chan struct{})
	go func() {
		defer close(all)
		wg.Wait()
	}()
	return all, func() []int {
		cancel()
		<-all
		return seen
	}
}

// TestAFloodOfStreamsIsReadOnce: 256 event streams of one token have no more subscriptions than one, and cost no more
// requests for each event: they hold nobody else up at NATS.
func TestAFloodOfStreamsIsReadOnce(t *testing.T) {
	p := guarded(t, "secret-a alice\nsecret-b bob\n")
	alice := []string{"Authorization", "Bearer secret-a"}
	const open, streams = 4, api.MaxAgentStreams - 4
	for i := range open {
		want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches+
			"?open=true", fmt.Sprintf(`{"id": "w%d"}`, i), alice...)
	}
	before := p.nc.NumSubscriptions()
	ended, stop := p.flood(streams, "secret-a", func(i int) string {
		return fmt.Sprintf("%s/w%d/%s", batches, i%open, []string{"events?progress=true", "results"}[i/open%2])
	})
	// then nothing is asked for but whether something was missed
	testenv.Until(p, "all streams have caught up", func() bool {
		sent := p.nc.Stats().OutMsgs
		time.Sleep(500 * time.Millisecond)
		return p.nc.Stats().OutMsgs-sent < 10
	})
	if n := p.nc.NumSubscriptions() - before; n > 4 { // events, replies, progress, and where requests are answered
		t.Errorf("%d streams have %d subscriptions", streams, n)
	}
	sent := p.nc.Stats().OutMsgs
	const calls = 10
	for i := range calls {
		for b := range open {
			want[api.Appended](p, http.StatusAccepted, http.MethodPost, fmt.Sprintf("%s/w%d/calls", batches, b),
				fmt.Sprintf(`{"calls": [{"id": "c%d", "tool": "echo"}]}`, i), alice...)
		}
	}
	for b := range open {
		want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, fmt.Sprintf("%s/w%d/close", batches, b), "",
			alice...)
		if v := want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, fmt.Sprintf("%s/w%d?wait=60", batches, b),
			"", alice...); len(v.Results) != calls {
			t.Errorf("batch %d ends as %+v", b, v)
		}
	}
	spent := p.nc.Stats().OutMsgs - sent
	select { // a batch is complete before the last of it has come to whoever follows it
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("a minute after their batches were complete, not all streams have ended")
	}
	for i, n := range stop() {
		if n < calls {
			t.Errorf("stream %d has %d events", i, n)
		}
	}
	t.Logf("%d requests", spent)
	if most := uint64(60 * open * calls); spent > most {
		t.Errorf("%d calls before %d streams cost %d requests; want %d at most", open*calls, streams, spent, most)
	}
}

// TestWhatATokenMayDo: a token acts in the names, the workspaces and with the tools that its line has, says that a
// person can be asked only where that says so, and asks no more often; whichever way a batch is handed in.
func TestWhatATokenMayDo(t *testing.T) {
	p := guarded(t, "secret-a alice agents=bob workspaces=web,default tools=echo,wr*\nsecret-i ida "+
		"interactive=yes\nsecret-r rob rate=2\nsecret-s sam streams=1\nsecret-o *\n")
	alice := []string{"Authorization", "Bearer secret-a"}
	for field, body := range map[string]string{
		"workspace":     `{"workspace": "private", "calls": [{"tool": "echo"}]}`,
		"calls[1].tool": `{"calls": [{"tool": "echo"}, {"tool": "long"}]}`,
		"interactive":   `{"interactive": true, "calls": [{"tool": "echo"}]}`,
		"agent":         `{"agent": "ida", "calls": [{"tool": "echo"}]}`,
	} {
		if r := p.do(http.MethodPost, batches, body, alice...); r.status != http.StatusForbidden ||
			decode[api.Problem](p, string(r.body)).Field != field {
			t.Errorf("%s: %s", body, r)
		}
	}
	v := want[toolyard.BatchView](p, http.StatusOK, http.MethodPost, batches+
		"?wait=60", `{"id": "x", "agent": "bob", "workspace": "web", "calls": [{"tool": "echo"}]}`, alice...)
	if v.Agent != "bob" || len(v.Results) != 1 {
		t.Errorf("in bob's name: %+v", v)
	}
	want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+"/x?agent=bob", "", alice...)
	if r := p.do(http.MethodGet, batches+"/x", "", alice...); r.status != http.StatusNotFound {
		t.Errorf("her own x: %s", r)
	}
	// Calls that come later are held to the same.
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches+"?open=true", `{"id": "o"}`, alice...)
	if r := p.do(http.MethodPost, batches+"/o/calls", `{"calls": [{"id": "1", "tool": "long"}]}`,
		alice...); r.status != http.StatusForbidden {
		t.Errorf("an appended call: %s", r)
	}
	want[api.Appended](p, http.StatusAccepted, http.MethodPost, batches+
		"/o/calls", `{"calls": [{"id": "1", "tool": "write"}]}`, alice...)
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches+
		"?open=true", `{"id": "private", "agent": "alice", "workspace": "private"}`, "Authorization", "Bearer secret-o")
	if r := p.do(http.MethodPost, batches+"/private/calls", `{"calls": [{"id": "1", "tool": "echo"}]}`,
		alice...); r.status != http.StatusForbidden {
		t.Errorf("a call in another workspace: %s", r)
	}
	for _, query := range []string{"?workspace=private", "?interactive=true"} {
		if r := p.do(http.MethodPost, "/v1/stream/anthropic"+
			query, "data: {}\n\n", append(alice, "Content-Type",
			"text/event-stream")...); r.status != http.StatusForbidden {
			t.Errorf("a stream with %s: %s", query, r)
		}
	}
	stream := begins(0, "toolu_1", "long") + part(0, "{}") + ends(0) + `data: {"type":"message_stop"}` + "\n\n"
	if r := p.do(http.MethodPost, "/v1/stream/anthropic?id=fed", stream,
		append(alice, "Content-Type", "text/event-stream")...); !strings.Contains(string(r.body), "event: problem") ||
		!strings.Contains(string(r.body), "may not use the tool") {
		t.Errorf("a call in a stream: %s", r)
	}
	if v := want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+
		"/fed?wait=60", "", alice...); len(v.Results) != 0 {
		t.Errorf("it ran: %+v", v)
	}
	if r := p.do(http.MethodGet, "/v1/tools?format=anthropic", "", alice...); !strings.Contains(string(r.body),
		`"echo"`) || !strings.Contains(string(r.body), `"write"`) || strings.Contains(string(r.body), `"long"`) {
		t.Errorf("her tools: %s", r)
	}
	if r := p.do(http.MethodGet, "/v1/tools?format=anthropic&workspace=private", "",
		alice...); r.status != http.StatusForbidden {
		t.Errorf("the tools of another workspace: %s", r)
	}
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches,
		`{"interactive": true, "calls": [{"tool": "echo"}]}`, "Authorization", "Bearer secret-i")
	limited := 0
	for range 6 {
		if r := p.do(http.MethodGet, batches, "", "Authorization",
			"Bearer secret-r"); r.status == http.StatusTooManyRequests && r.header.Get("Retry-After") == "1" {
			limited++
		}
	}
	if limited == 0 {
		t.Error("six requests at once of a token that may make two a second")
	}
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches+
		"?open=true", `{"id": "s"}`, "Authorization", "Bearer secret-s")
	p.stream(batches+"/s/events", "Authorization", "Bearer secret-s")
	if r := p.do(http.MethodGet, batches+"/s/results", "", "Authorization",
		"Bearer secret-s"); r.status != http.StatusTooManyRequests {
		t.Errorf("a second stream: %s", r)
	}
}

// TestAStreamOfARevokedToken: streams and waits of a token that is taken out of its file end, and it opens no others.
func TestAStreamOfARevokedToken(t *testing.T) {
	path := must.File(t, "tokens", "secret-a alice\nsecret-b bob\n")
	tokens, err := api.ReadTokens(path)
	must.OK(t, err)
	p := start(t, func(c *api.Config) { c.Tokens, c.Loopback = tokens, false })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go tokens.Follow(ctx, path, slog.New(slog.DiscardHandler))
	alice := []string{"Authorization", "Bearer secret-a"}
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches+"?open=true", `{"id": "b"}`, alice...)
	events, _ := p.stream(batches+"/b/events", alice...)
	results, _ := p.stream(batches+"/b/results", alice...)
	happened, _ := p.stream("/v1/events", alice...)
	waited := make(chan reply, 1)
	go func() { waited <- p.do(http.MethodGet, batches+"/b?wait=600", "", alice...) }()
	must.OK(t, os.WriteFile(path, []byte("secret-b bob\n"), 0o600))
	all(events)
	all(results)
	all(happened)
	<-waited
	if r := p.do(http.MethodGet, batches+"/b", "", alice...); r.status != http.StatusUnauthorized {
		t.Errorf("a token that was taken away: %s", r)
	}
	if r := p.do(http.MethodGet, batches, "", "Authorization", "Bearer secret-b"); r.status != http.StatusOK {
		t.Errorf("another token: %s", r)
	}
}

// BenchmarkBesideAFlood times a call of one agent while another one's batches run: before, and beside 256 event streams
// of that one's token. It reports the medians over some rounds of the p99 of both, and their ratio.
func BenchmarkBesideAFlood(b *testing.B) {
	for name, path := range map[string]string{"events": "/%s/events", "results": "/%s/results", "all": "?/v1/events"} {
		b.Run(name, func(b *testing.B) {
			p := guarded(b, "secret-a alice\nsecret-b bob\n")
			c := overHTTP(b, p, client.HTTPOptions{Token: "secret-a"})
			const open, rounds = 8, 5
			for i := range open {
				if _, err := c.Open(b.Context(), toolyard.Batch{ID: toolyard.BatchID("w" + strconv.Itoa(i)),
					Workspace: toolyard.Workspace("w" + strconv.Itoa(i))}); err != nil {
					b.Fatal(err)
				}
			}
			run, halt := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			wg.Go(func() { // what the streams tell: some calls a second
				for n := 0; run.Err() == nil; n++ {
					p.do(http.MethodPost, fmt.Sprintf("%s/w%d/calls", batches, n%open),
						fmt.Sprintf(`{"calls": [{"id": "c%d", "tool": "echo", "input": {"text": "%s"}}]}`, n,
							strings.Repeat("x", 500)), "Authorization", "Bearer secret-a")
					select {
					case <-run.Done():
					case <-time.After(100 * time.Millisecond):
					}
				}
			})
			measure := func() (p50, p99 time.Duration) {
				var took []time.Duration
				for range max(300, b.N) {
					began := time.Now()
					want[toolyard.BatchView](p, http.StatusOK, http.MethodPost, batches+
						"?wait=60", `{"calls": [{"tool": "echo", "input": {"text": "x"}}]}`, "Authorization",
						"Bearer secret-b")
					took = append(took, time.Since(began))
				}
				slices.Sort(took)
				return took[len(took)/2], took[len(took)*99/100]
			}
			measure() // warm
			var alone50, alone, beside50, beside []time.Duration
			for range rounds { // one after the other, so that what else the machine does is in both
				p50, p99 := measure()
				alone50, alone = append(alone50, p50), append(alone, p99)
				_, stop := p.flood(api.MaxAgentStreams, "secret-a", func(i int) string {
					if whole, ok := strings.CutPrefix(path, "?"); ok {
						return whole
					}
					return batches + fmt.Sprintf(path, "w"+strconv.Itoa(i%open))
				})
				p50, p99 = measure()
				beside50, beside = append(beside50, p50), append(beside, p99)
				stop()
			}
			halt()
			wg.Wait()
			middle := func(of []time.Duration) float64 {
				slices.Sort(of)
				return float64(of[len(of)/2].Microseconds()) / 1000
			}
			for unit, of := range map[string][]time.Duration{"alone-p50-ms": alone50, "alone-p99-ms": alone,
				"flood-p50-ms": beside50, "flood-p99-ms": beside} {
				b.ReportMetric(middle(of), unit)
			}
			b.ReportMetric(middle(beside)/middle(alone), "p99-ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}
