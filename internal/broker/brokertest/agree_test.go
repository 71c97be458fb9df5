package brokertest_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/broker/brokertest"
	"github.com/toolyard/toolyard/internal/broker/membroker"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// Random operations have the same results on nats-server and on membroker: a clerk does one after the other on both,
// and compares what it hears.

const (
	agreeSeeds      = 30
	agreeOperations = 150
	// longWait is an ack wait that is not over during a run.
	longWait = time.Hour
	// settledWithin bounds how long nats-server may take to tell its consumers of what was published.
	settledWithin = 200 * time.Millisecond
)

// timed adds what depends on the clock of the real server: a busy machine makes it answer otherwise. The cases of the
// suite have each of it.
var timed = flag.Bool("timed", false, "let the random operations pull with an expiry, and let messages expire")

// side is one of the two servers.
type side struct {
	nc *nats.Conn
	js jetstream.JetStream
	// held are the ack subjects of what was delivered.
	held []string
}

// clerk does operations on both sides. A run has consumers, or a stream with limits, rollups and purges: what
// nats-server makes of a consumer's pending messages and positions when those go depends on how it keeps them, and
// nothing of ours relies on it.
type clerk struct {
	consuming  bool
	t          *testing.T
	rng        *rand.Rand
	real, mem  *side
	name       string
	operations int
	consumers  []string // those that were made
	log        []string
}

// fail ends the run.
func (c *clerk) fail(what, real, mem string) {
	c.t.Helper()
	c.t.Fatalf("after\n%s\n%s: the real server (-) and membroker (+) differ:\n%s",
		strings.Join(c.log[max(0, len(c.log)-12):], "\n"), what, cmp.Diff(real, mem))
}

// both does an operation on both sides, and compares.
func (c *clerk) both(what string, do func(*side) string) string {
	c.t.Helper()
	real, mem := do(c.real), do(c.mem)
	if real != mem {
		c.fail(what, real, mem)
	}
	c.log = append(c.log, what+": "+mem)
	return mem
}

// settle waits until nats-server has told its consumers what membroker's know. How many messages a consumer has left is
// a count that nats-server keeps beside the stream, and which can be wrong for good: it is not insisted on.
func (c *clerk) settle() {
	for _, name := range c.consumers {
		look := func(s *side) string { return c.api(s, "CONSUMER.INFO."+c.name+"."+name, "") }
		want := look(c.mem)
		for end := time.Now().Add(settledWithin); ; time.Sleep(time.Millisecond) {
			got := look(c.real)
			if got == want {
				break
			}
			if time.Now().After(end) {
				if uncounted(got) != uncounted(want) {
					c.fail("consumer "+name, got, want)
				}
				break
			}
		}
	}
}

var counts = regexp.MustCompile(`"num_pending":[0-9]+`)

func uncounted(info string) string { return counts.ReplaceAllString(info, "") }

// ask makes a request and returns its answer.
func (c *clerk) ask(s *side, subject string, hdr nats.Header, data string) *nats.Msg {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), time.Minute) // also behind the test's end
	defer cancel()
	m, err := s.nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: subject, Header: hdr, Data: []byte(data)})
	if errors.Is(err, nats.ErrNoResponders) {
		return &nats.Msg{Data: []byte("nobody")}
	}
	if err != nil {
		c.t.Fatalf("%s: %v, after\n%s", subject, err, strings.Join(c.log, "\n"))
	}
	return m
}

// api makes a request of the API and returns what is the same each time in its answer.
func (c *clerk) api(s *side, what, data string) string {
	m := c.ask(s, "$JS.API."+what, nil, data)
	var v any
	if json.Unmarshal(m.Data, &v) != nil {
		return string(m.Data)
	}
	out := must.JSON(c.t, stable(v))
	return string(out)
}

// unstable are fields with times in them, or where a server lives.
var unstable = []string{
	"ts", "created", "time", "first_ts", "last_ts", "last_active", "cluster", "metadata", "api_level",
}

func stable(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if slices.Contains(unstable, k) {
				delete(v, k)
			} else {
				v[k] = stable(x)
			}
			if hdrs, ok := x.(string); ok && k == "hdrs" { // the client writes them in any order
				block, err := base64.StdEncoding.DecodeString(hdrs)
				lines := strings.Split(string(block), "\r\n")
				slices.Sort(lines)
				v[k] = fmt.Sprint(lines, err)
			}
		}
	case []any:
		for i := range v {
			v[i] = stable(v[i])
		}
	}
	return v
}

func (c *clerk) subject() string {
	return fmt.Sprintf("%s.%d.%d", c.name, c.rng.IntN(2), c.rng.IntN(3))
}

func (c *clerk) filter() string {
	return []string{
		c.name + ".>", c.name + ".0.*", c.name + ".1.*", c.name + ".*.1", c.subject(),
	}[c.rng.IntN(5)]
}

func (c *clerk) seq() int { return c.rng.IntN(1 + c.operations/2) }

// publish publishes with some of the headers that a stream looks at.
func (c *clerk) publish() {
	hdr := nats.Header{}
	some := func(oneIn int, name, value string) {
		if c.rng.IntN(oneIn) == 0 {
			hdr.Set(name, value)
		}
	}
	some(5, "Nats-Msg-Id", fmt.Sprint("id", c.rng.IntN(20)))
	some(5, "Nats-Expected-Last-Subject-Sequence", fmt.Sprint(c.rng.IntN(3)*c.seq()/2))
	if len(hdr["Nats-Expected-Last-Subject-Sequence"]) > 0 {
		some(5, "Nats-Expected-Last-Subject-Sequence-Subject", c.filter())
	}
	if !c.consuming {
		some(10, "Nats-Rollup", []string{"sub", "all", "odd"}[c.rng.IntN(3)])
	}
	some(20, "Nats-Expected-Last-Sequence", fmt.Sprint(c.seq()))
	some(20, "Nats-Expected-Last-Msg-Id", fmt.Sprint("id", c.rng.IntN(20)))
	some(30, "Nats-Expected-Stream", "other")
	some(20, "Nats-TTL", c.ttl())
	subject, data := c.subject(), strings.Repeat("x", c.rng.IntN(40))
	c.both(fmt.Sprintf("publish %s %v %q", subject, hdr, data), func(s *side) string {
		return string(c.ask(s, subject, hdr, data).Data)
	})
}

func (c *clerk) ttl() string {
	if *timed && c.rng.IntN(4) == 0 {
		return "10ms"
	}
	return []string{"1h", "never", "x"}[c.rng.IntN(3)]
}

func (c *clerk) pull() {
	if !*timed || len(c.consumers) == 0 {
		return
	}
	name := c.consumers[c.rng.IntN(len(c.consumers))]
	// It waits a little, or nats-server would believe its count of what is left.
	request := fmt.Sprintf(`{"batch":%d,"no_wait":true,"expires":20000000}`, 1+c.rng.IntN(4))
	if c.rng.IntN(4) == 0 {
		request = fmt.Sprintf(`{"batch":3,"no_wait":true,"expires":20000000,"max_bytes":%d}`, 50+c.rng.IntN(300))
	}
	most := 3
	if _, err := fmt.Sscanf(request, `{"batch":%d`, &most); err != nil {
		c.t.Fatal(err)
	}
	c.both("pull "+name+" "+request, func(s *side) string {
		sub, err := s.nc.SubscribeSync(s.nc.NewInbox())
		must.OK(c.t, err)
		next := "$JS.API.CONSUMER.MSG.NEXT." + c.name + "." + name
		must.OK(c.t, s.nc.PublishRequest(next, sub.Subject, []byte(request)))
		var got []string
		for len(got) < most { // it ends with a status, or when all have come
			m, err := sub.NextMsg(settledWithin) // it ends without a word when exactly so many bytes have come
			if err != nil {
				break
			}
			if m.Reply == "" {
				got = append(got, fmt.Sprintf("%s %s %s", m.Header.Get("Status"), m.Header.Get("Description"),
					m.Header.Get("Nats-Pending-Messages")))
				break
			}
			s.held = append(s.held, m.Reply)
			got = append(got, fmt.Sprintf("%s %q %s", m.Subject, m.Data, timeless(m.Reply)))
		}
		must.OK(c.t, sub.Unsubscribe())
		return strings.Join(got, ", ")
	})
}

// timeless is an ack subject without the time and the count in it.
func timeless(reply string) string {
	return strings.Join(strings.Split(reply, ".")[:7], ".")
}

func (c *clerk) ack() {
	if len(c.mem.held) == 0 {
		return
	}
	i := c.rng.IntN(len(c.mem.held))
	word := []string{"", "+ACK", "+WPI", "+TERM", "-NAK"}[c.rng.IntN(5)]
	c.both(fmt.Sprintf("ack %s %s", timeless(c.mem.held[i]), word), func(s *side) string {
		ctx, cancel := context.WithTimeout(c.t.Context(), 200*time.Millisecond)
		defer cancel()
		m, err := s.nc.RequestWithContext(ctx, s.held[i], []byte(word))
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return "nobody"
		case err != nil: // only an ack of what was never delivered is not answered
			return err.Error()
		}
		return string(m.Data)
	})
}

func (c *clerk) makeConsumer() {
	if !c.consuming {
		return
	}
	name := fmt.Sprint("c", c.rng.IntN(4))
	cfg := map[string]any{"durable_name": name, "ack_policy": "explicit", "ack_wait": longWait, "deliver_policy": "all",
		"replay_policy": "instant"}
	if c.rng.IntN(3) > 0 {
		cfg["filter_subject"] = c.filter()
	} else if c.rng.IntN(2) == 0 {
		cfg["filter_subjects"] = []string{c.filter(), c.filter()}
	}
	switch c.rng.IntN(12) {
	case 0:
		cfg["deliver_policy"] = "last"
	case 1:
		cfg["deliver_policy"] = "new"
	case 2:
		cfg["deliver_policy"], cfg["opt_start_seq"] = "by_start_sequence", c.seq()
	case 3:
		cfg["max_ack_pending"] = 2
	case 4:
		cfg["max_deliver"] = 2
	case 5:
		cfg["ack_policy"] = "none"
	case 6:
		cfg["deliver_policy"] = "last_per_subject"
	}
	data, err := json.Marshal(map[string]any{
		"stream_name": c.name, "config": cfg, "action": []string{"", "create"}[c.rng.IntN(2)],
	})
	must.OK(c.t, err)
	got := c.both("make consumer "+string(data), func(s *side) string {
		return c.api(s, "CONSUMER.CREATE."+c.name+"."+name, string(data))
	})
	if !strings.HasPrefix(got, `{"error"`) && !slices.Contains(c.consumers, name) {
		c.consumers = append(c.consumers, name)
	}
}

// about makes a request about the stream on both sides.
func (c *clerk) about(what, request string) {
	c.both(what+" "+request, func(s *side) string { return c.api(s, what+"."+c.name, request) })
}

func (c *clerk) step() {
	c.operations++
	switch c.rng.IntN(20) {
	case 0, 1, 2, 3, 4, 5:
		c.publish()
	case 6, 7, 8:
		c.pull()
	case 9, 10, 11:
		c.ack()
	case 12:
		c.makeConsumer()
	case 13:
		if len(c.consumers) > 0 && c.rng.IntN(3) == 0 {
			i := c.rng.IntN(len(c.consumers))
			name := c.consumers[i]
			c.both("delete consumer "+name, func(s *side) string {
				return c.api(s, "CONSUMER.DELETE."+c.name+"."+
					name, "")
			})
			c.consumers = slices.Delete(c.consumers, i, i+1)
		}
	case 14:
		c.about("STREAM.MSG.DELETE", fmt.Sprintf(`{"seq":%d}`, c.seq()))
	case 15:
		if c.consuming {
			return
		}
		req := map[string]any{"filter": c.filter()}
		switch c.rng.IntN(4) {
		case 0:
			req["seq"] = c.seq()
		case 1:
			req["keep"] = c.rng.IntN(3)
		}
		data := must.JSON(c.t, req)
		c.about("STREAM.PURGE", string(data))
	case 16:
		c.about("STREAM.MSG.GET", []string{
			fmt.Sprintf(`{"seq":%d}`, c.seq()), fmt.Sprintf(`{"last_by_subj":%q}`, c.filter()),
			fmt.Sprintf(`{"seq":%d,"next_by_subj":%q}`, c.seq(), c.filter()), `{}`,
		}[c.rng.IntN(4)])
	case 17:
		req := fmt.Sprintf(`{"seq":%d,"next_by_subj":%q}`, c.seq(), c.filter())
		c.both("direct "+req, func(s *side) string {
			m := c.ask(s, "$JS.API.DIRECT.GET."+c.name, nil, req)
			m.Header.Del("Nats-Time-Stamp")
			return fmt.Sprintf("%v %q", m.Header, m.Data)
		})
	case 18, 19:
		c.about("STREAM.INFO", fmt.Sprintf(`{"subjects_filter":%q}`, c.filter()))
	}
	c.settle()
}

func (c *clerk) run() {
	cfg := jetstream.StreamConfig{Name: c.name, Subjects: []string{c.name + ".>"}, AllowDirect: true}
	if c.rng.IntN(2) == 0 {
		cfg.Retention = jetstream.WorkQueuePolicy
	}
	if c.rng.IntN(2) == 0 {
		cfg.Discard = jetstream.DiscardNew
	}
	if c.consuming = c.rng.IntN(2) == 0; !c.consuming {
		cfg.AllowRollup, cfg.AllowMsgTTL = c.rng.IntN(2) == 0, c.rng.IntN(2) == 0
		cfg.MaxMsgs = int64([]int{-1, 10}[c.rng.IntN(2)])
		cfg.MaxMsgsPerSubject = int64([]int{-1, 1, 3}[c.rng.IntN(3)])
		if c.rng.IntN(3) == 0 {
			cfg.MaxBytes = 1000
		}
	}
	c.both("make the stream", func(s *side) string {
		var err error
		if s.js, err = jetstream.New(s.nc); err != nil {
			c.t.Fatal(err)
		}
		st, err := s.js.CreateStream(c.t.Context(), cfg)
		must.OK(c.t, err)
		c.t.Cleanup(func() { c.api(s, "STREAM.DELETE."+c.name, "") })
		made := st.CachedInfo().Config
		made.Metadata = nil
		return fmt.Sprintf("%+v", made)
	})
	for range agreeOperations {
		c.step()
	}
}

func TestRandomOperationsAgree(t *testing.T) {
	s, err := natsd.Start(t.Context(), natsd.Options{
		StoreDir: testenv.StoreDir(t), Listen: "127.0.0.1:0", Open: true, Logger: slog.New(slog.DiscardHandler),
	})
	must.OK(t, err)
	t.Cleanup(s.Shutdown)
	brokertest.Keep(t, connect(t, s.ClientURL()))
	for seed := range uint64(agreeSeeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := membroker.New(membroker.Options{MaxPayload: natsd.DefaultMaxPayloadBytes})
			t.Cleanup(m.Close)
			c := &clerk{
				t: t, rng: rand.New(rand.NewPCG(seed, 1)), name: fmt.Sprint("AGREE", seed),
				real: &side{nc: connect(t, s.ClientURL())},
				mem:  &side{nc: connect(t, "", nats.InProcessServer(m.Dial("one")))},
			}
			c.run()
		})
	}
}
