package console

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

var keptBatches = flag.Int("kept", 0, "measure how long the pages of batches take when so many are kept, each 5 kB")

const (
	// onAPage is how many batches the page shows.
	onAPage = 50
	// ofAnAgent is about how many of them an agent has.
	ofAnAgent = 100
	// someKept is how many are kept where nothing is measured.
	someKept = 3_000
	// loads is how often each page is loaded where it is measured.
	loads = 11
	// beingStored bounds the messages that wait for their acknowledgement.
	beingStored = 4_096
)

// TestTheListOfManyBatches shows the pages of batches where many are kept. With -kept it also prints how long the
// browser takes from the navigation to the first batch, and of that the search, there and where few are kept:
// docs/performance.md has what -kept 1000000 printed.
func TestTheListOfManyBatches(t *testing.T) {
	if *keptBatches == 0 {
		loadsOf(t, someKept, 1)
		return
	}
	few, many := loadsOf(t, 2*ofAnAgent, loads), loadsOf(t, *keptBatches, loads)
	for n, p := range keptPages(*keptBatches) {
		t.Logf("%-13s %s with %d batches, %s with %d", p.name, many[n], *keptBatches, few[n], 2*ofAnAgent)
	}
}

// load is how long a page took to show its first batch, and of that the search, in milliseconds.
type load struct{ page, search float64 }

// pageLoads are the loads of a page.
type pageLoads []load

func (p pageLoads) String() string {
	median := func(of func(load) float64) float64 {
		var all []float64
		for _, l := range p {
			all = append(all, of(l))
		}
		return slices.Sorted(slices.Values(all))[len(all)/2]
	}
	return fmt.Sprintf("%4.0f ms, search %3.0f ms (first %4.0f, %3.0f)", median(func(l load) float64 { return l.page }),
		median(func(l load) float64 { return l.search }), p[0].page, p[0].search)
}

// keptPage is a page of the console with as many batches as a page has, and the number of the first.
type keptPage struct {
	name, query string
	first       int
}

func keptPages(n int) []keptPage {
	return []keptPage{
		{"the newest", "", n},
		{"further down", fmt.Sprintf("?after=%d", n/2+1), n / 2},
		{"of an agent", "?agent=agent-0", n - n%agentsOf(n)},
		{"with an error", "?code=error", n},
	}
}

// agentsOf is how many agents have handed in n batches: batch i is of agent i modulo this.
func agentsOf(n int) int { return max(n/ofAnAgent, 1) }

// loadsOf keeps n batches, and loads each page.
func loadsOf(t *testing.T, n, loads int) (took []pageLoads) {
	server := testenv.Server(t)
	t.Run(fmt.Sprintf("one of %d batches", n), func(t *testing.T) {
		serving(t, server).submit(agent, "template", "night",
			call{"tool": "read_file", "input": call{"file_path": "notes.txt"}},
			call{"tool": "read_file", "input": call{"file_path": "nothing.txt"}})
	})
	if t.Failed() {
		t.FailNow()
	}
	keep(t, server, n)
	t.Run(fmt.Sprintf("%d batches", n), func(t *testing.T) {
		s := serving(t, server)
		b := open(t, s.url)
		signIn(s, b)
		if _, err := chromedp.Call(b.ctx, page.AddScriptToEvaluateOnNewDocument,
			page.AddScriptToEvaluateOnNewDocumentParams{Source: `new MutationObserver(() => {
				if (!window.shownAt && document.querySelector("tbody tr")) window.shownAt = performance.now();
			}).observe(document, {childList: true, subtree: true})`}); err != nil {
			t.Fatal(err)
		}
		for _, p := range keptPages(n) {
			var of pageLoads
			for range loads {
				b.run(chromedp.Navigate("about:blank"))
				b.visit("#/batches" + p.query)
				b.until(p.name, `window.shownAt`)
				b.until(p.name, `document.querySelector("tbody tr").innerText.includes("invalid_arguments")`)
				of = append(of, load{value[float64](b, `window.shownAt`), value[float64](b,
					`performance.getEntriesByType("resource").find(e => e.name.includes("/v1/search")).duration`)})
				rows := b.words("tbody tr")
				first := fmt.Sprintf("kept-%d ", p.first)
				if len(rows) != onAPage || !strings.Contains(rows[0], first) {
					t.Fatalf("%s: %d batches, not %d; the first is not %q: %q", p.name, len(rows), onAPage,
						first, rows[0])
				}
			}
			took = append(took, of)
		}
	})
	return took
}

// serving starts a dispatcher with a worker on a NATS server.
func serving(t *testing.T, server *natsd.Server) *system {
	t.Helper()
	s, cmd := prepare(t, os.Getenv("PATH"), "--nats", server.ClientURL(), "--token-file", tokenFile(t))
	s.url = testenv.Start(t, cmd, "http")["http"]
	return s
}

// keep stores copies of the messages of batch "template", which is the first, until there are n batches. No dispatcher
// serves meanwhile. None is given the copies afterwards, as if one had answered each of them.
func keep(t *testing.T, server *natsd.Server, n int) {
	t.Helper()
	js := testenv.JetStream(t, testenv.Conn(t, server), jetstream.WithPublishAsyncMaxPending(beingStored))
	began := time.Now()
	for _, name := range []string{"TY_BATCH", "TY_EVENT", "TY_REPLY", "KV_ty_index"} {
		stream := testenv.Stream(t, js, name)
		of := stream.CachedInfo().State.LastSeq
		var templates []*jetstream.RawStreamMsg
		for seq := range of {
			m, err := stream.GetMsg(t.Context(), seq+1)
			must.OK(t, err)
			for h := range m.Header {
				if strings.HasPrefix(h, "Nats-") && !strings.HasPrefix(h, "Nats-Expected-") {
					m.Header.Del(h) // of the answer
				}
			}
			templates = append(templates, m)
		}
		for i := 2; i <= n; i++ {
			for _, m := range templates {
				c := copyOf(m, i, agentsOf(n))
				if before := c.Header.Get(jetstream.ExpectedLastSubjSeqHeader); before != "" && before != "0" {
					at, err := strconv.ParseUint(before, 10, 64)
					must.OK(t, err)
					c.Header.Set(jetstream.ExpectedLastSubjSeqHeader, fmt.Sprint(uint64(i-1)*of+at))
				}
				if _, err := js.PublishMsgAsync(c, jetstream.WithStallWait(patience)); err != nil {
					t.Fatal(err)
				}
			}
		}
		<-js.PublishAsyncComplete()
		stream = testenv.Stream(t, js, name)
		if got, want := stream.CachedInfo().State.Msgs, uint64(n)*of; got != want {
			t.Fatalf("%s has %d messages, not %d", name, got, want)
		}
		if name != "TY_BATCH" {
			continue
		}
		cfg := jetstream.ConsumerConfig{}
		for c := range stream.ListConsumers(t.Context()).Info() {
			cfg = c.Config
		}
		must.OK(t, stream.DeleteConsumer(t.Context(), cfg.Durable))
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, uint64(n)+1
		if _, err := stream.CreateConsumer(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d batches are stored after %s", n, time.Since(began).Round(time.Second))
}

// copyOf is a message of the template as batch i has it.
func copyOf(m *jetstream.RawStreamMsg, i, agents int) *nats.Msg {
	names := func(s string) string {
		s = strings.ReplaceAll(s, "template", fmt.Sprintf("kept-%d", i))
		return strings.ReplaceAll(s, "agent-1", fmt.Sprintf("agent-%d", i%agents))
	}
	c := nats.NewMsg(names(m.Subject))
	if key, ok := strings.CutPrefix(m.Subject, "$KV.ty_index."); ok {
		// internal/broker/natsbroker/indexkeys.go: the place of the batch is three tokens of the key
		tokens := strings.Split(names(key), ".")
		tokens[2], tokens[3], tokens[6] = base36(i>>14), base36(i>>10&15), base36(i&1023)
		c.Subject = "$KV.ty_index." + strings.Join(tokens, ".")
	}
	for h, values := range m.Header {
		for _, v := range values {
			c.Header.Add(h, names(v))
		}
	}
	c.Data = []byte(names(string(m.Data)))
	c.Data = bytes.Replace(c.Data, []byte(`"submission_seq":1,`), fmt.Appendf(nil, `"submission_seq":%d,`, i), 1)
	return c
}

func base36(n int) string { return strconv.FormatInt(int64(n), 36) }
