package admission

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
)

// rateGrants bound two tools and a dependency, an agent and a team.
var rateGrants = Grants{
	Agents: []Grant{{"slow", Quota{CallsPerSecond: 1}}},
	Teams:  []Grant{{"web-*", Quota{CallsPerSecond: 6}}},
	Tools: []NamedRate{{"fetch", Rate{Calls: 2, Wait: time.Hour}}, {"search", Rate{PerSecond: 3, Wait: time.Hour}},
		{"mail*", Rate{PerMinute: 5, Calls: 4, Wait: time.Hour}}},
	Dependencies: []NamedRate{{"api.*", Rate{Calls: 3, PerSecond: 4, Wait: time.Hour}}},
}

// rateYard is some dispatchers, between whom reports are under way.
type rateYard struct {
	t     *testing.T
	seed  uint64
	now   time.Time
	rates []*Rates
	// stream has the reports in their order, heard how many each dispatcher has heard, and sent its last own report
	// that is under way; 0 for none.
	stream  []reported
	heard   []int
	sent    []uint64
	number  uint64
	runs    []map[uint64]bool
	keys    map[uint64]RateKey
	begun   map[Scope][]begin
	order   []uint64 // of beginning
	refused int
	n       uint64
}

func newRateYard(t *testing.T, seed uint64, dispatchers int, g Grants) *rateYard {
	y := &rateYard{t: t, seed: seed, now: time.Unix(1_000_000, 0), keys: map[uint64]RateKey{},
		begun: map[Scope][]begin{}}
	for range dispatchers {
		r := NewRates(g)
		r.Know(true)
		y.rates, y.runs = append(y.rates, r), append(y.runs, map[uint64]bool{})
		y.heard, y.sent = append(y.heard, 0), append(y.sent, 0)
	}
	return y
}

func (y *rateYard) ask(d int, k RateKey) uint64 {
	y.n++
	y.keys[y.n] = k
	y.rates[d].Ask(y.n, k, 1, y.now)
	return y.n
}

// report has a dispatcher tell the others, unless it is waiting for its last report.
func (y *rateYard) report(d int) {
	if y.sent[d] != 0 {
		return
	}
	y.number++
	into := map[Scope]Usage{}
	y.rates[d].Report(y.number, y.now, into)
	y.stream, y.sent[d] = append(y.stream, reported{d, y.number, into}), y.number
}

func (y *rateYard) hear(d int) bool {
	if y.heard[d] == len(y.stream) {
		return false
	}
	r := y.stream[y.heard[d]]
	if y.heard[d]++; r.by == d {
		y.sent[d] = 0
		y.rates[d].Settle(r.number, y.now)
	} else {
		y.rates[d].Heard(fmt.Sprint(r.by), r.usage, y.now)
	}
	y.take(d)
	return true
}

func (y *rateYard) take(d int) {
	y.t.Helper()
	granted, refused := y.rates[d].Take()
	for _, f := range refused {
		if _, end := y.rates[d].deadline(y.rates[d].calls[f.ID]); f.Waited < DefaultRateWait &&
			!y.now.Add(f.RetryAfter).After(end) {
			y.t.Fatalf("seed %d: refused %+v", y.seed, f)
		}
		y.rates[d].Leave(f.ID, y.now)
		y.refused++
	}
	for _, g := range granted {
		y.runs[d][g.ID] = true
		y.order = append(y.order, g.ID)
		for _, s := range y.rates[d].grants.rates(y.keys[g.ID]) {
			y.begun[s.scope] = append(y.begun[s.scope], begin{y.now, 1})
		}
	}
	y.check()
}

func (y *rateYard) end(d int) {
	for id := range y.runs[d] {
		y.rates[d].Leave(id, y.now)
		delete(y.runs[d], id)
		return
	}
}

// round has every dispatcher advance, report and hear everything.
func (y *rateYard) round() {
	for d := range y.rates {
		y.rates[d].Advance(y.now)
		for y.hear(d) {
		}
		y.report(d)
	}
	for d := range y.rates {
		for y.hear(d) {
		}
	}
}

// check compares all that runs and has begun with the rates.
func (y *rateYard) check() {
	y.t.Helper()
	runs, rates := map[Scope]int{}, map[Scope]Rate{}
	for d, ids := range y.runs {
		for id := range ids {
			for _, s := range y.rates[d].grants.rates(y.keys[id]) {
				runs[s.scope]++
				rates[s.scope] = s.rate
			}
		}
	}
	for s, rate := range rates {
		second, minute := 0, 0
		for _, b := range y.begun[s] {
			if y.now.Sub(b.at) < time.Second {
				second++
			}
			if y.now.Sub(b.at) < time.Minute {
				minute++
			}
		}
		if rate.Calls > 0 && runs[s] > rate.Calls || rate.PerSecond > 0 && second > rate.PerSecond ||
			rate.PerMinute > 0 && minute > rate.PerMinute {
			y.t.Fatalf("seed %d: of %s %d calls are in flight, %d began in a second and %d in a minute: %s", y.seed, s,
				runs[s], second, minute, rate)
		}
	}
}

var rateKeys = []RateKey{{"web-1", "fetch", "api.one"}, {"web-2", "fetch", ""}, {"slow", "search", "api.one"},
	{"web-1", "search", "api.two"}, {"ci", "mail-x", ""}, {"web-3", "mail-x", "other"}, {"free", "read", "api.two"}}

// TestRatesHold plays dispatchers whose reports are under way for any time: what is in flight and begins in all of them
// is never past a rate, everything begins in the end, and nothing is left when all is over.
func TestRatesHold(t *testing.T) {
	putBack, begun, refused := 0, 0, 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		y := newRateYard(t, seed, 1+int(seed%3), rateGrants)
		for range 400 {
			d := r.IntN(len(y.rates))
			switch n := r.IntN(16); {
			case n < 4:
				y.ask(d, rateKeys[r.IntN(len(rateKeys))])
			case n < 7:
				y.rates[d].Advance(y.now)
			case n < 9:
				y.end(d)
			case n < 11:
				y.report(d)
			case n < 15:
				before := len(y.rates[d].waiting)
				y.hear(d)
				if len(y.rates[d].waiting) > before {
					putBack++
				}
			default:
				y.now = y.now.Add(time.Duration(r.IntN(900)) * time.Millisecond)
			}
			y.take(d)
		}
		for turns := 0; len(y.order)+y.refused < int(y.n); turns++ {
			if turns > 3_000 {
				t.Fatalf("seed %d: %d of %d calls begin", seed, len(y.order), y.n)
			}
			y.now = y.now.Add(time.Second)
			y.round()
			for d := range y.rates {
				for len(y.runs[d]) > 0 {
					y.end(d)
				}
			}
		}
		for d := range y.rates {
			for len(y.runs[d]) > 0 {
				y.end(d)
			}
		}
		begun, refused = begun+len(y.order), refused+y.refused
		y.now = y.now.Add(2 * time.Minute)
		for d, r := range y.rates {
			into := map[Scope]Usage{}
			if r.Report(1, y.now, into); len(into) != 0 || len(r.used) != 0 || len(r.calls) != 0 || r.Load() != 0 {
				t.Fatalf("seed %d: dispatcher %d still has %v of %d rates and %d calls", seed, d, into, len(r.used),
					len(r.calls))
			}
		}
	}
	if putBack < 20 || refused > begun/4 {
		t.Errorf("%d calls begin, %d are refused, and %d times another dispatcher was faster: the test sees too little",
			begun, refused, putBack)
	}
}

// TestTurnsOfARate: an agent with one call waits for one call of each other agent at most, however many calls those
// have and in which dispatcher, and whether calls are bounded in flight or by the second.
func TestTurnsOfARate(t *testing.T) {
	for name, rate := range map[string]Rate{"in flight": {Calls: 1}, "a second": {PerSecond: 1}} {
		for seed := range uint64(15) {
			rate.Wait = time.Hour
			y := newRateYard(t, seed, 1+int(seed%3), Grants{Tools: []NamedRate{{"fetch", rate}}})
			at := int(seed) % len(y.rates)
			for range 100 {
				y.ask(0, RateKey{"flood", "fetch", ""})
				y.ask(len(y.rates)-1, RateKey{"flood too", "fetch", ""})
			}
			var mine []int // how many others began before each call of the quiet agent
			for range 10 {
				for range 2 + seed%5 {
					y.step()
				}
				before := len(y.order)
				id := y.ask(at, RateKey{"quiet", "fetch", ""})
				for turns := 0; !slices.Contains(y.order, id); turns++ {
					if turns > 200 {
						t.Fatalf("%s, seed %d: a call of the quiet agent does not begin", name, seed)
					}
					y.step()
				}
				mine = append(mine, len(y.order)-before-1)
			}
			// One may be reserved already, and each other agent has a turn; between dispatchers a turn is a round.
			if most := slices.Max(mine); most > 2+2*len(y.rates) {
				t.Errorf("%s, seed %d: before calls of the quiet agent %v of others began", name, seed, mine)
			}
		}
	}
}

// TestOneCallAtATime: an agent that makes its next call when the last one has begun does not come before all others
// each time.
func TestOneCallAtATime(t *testing.T) {
	y := newRateYard(t, 0, 1, Grants{Tools: []NamedRate{{"fetch", Rate{PerSecond: 1, Wait: time.Hour}}}})
	for range 40 {
		y.ask(0, RateKey{"many", "fetch", ""})
	}
	last := y.ask(0, RateKey{"one", "fetch", ""})
	for range 200 {
		y.step()
		if slices.Contains(y.order, last) && !y.runs[0][last] {
			last = y.ask(0, RateKey{"one", "fetch", ""})
		}
	}
	of := map[toolyard.Agent]int{}
	for _, id := range y.order {
		of[y.keys[id].Agent]++
	}
	if of["one"] < 6 || of["many"] < 6 {
		t.Errorf("in twenty seconds begin %v", of)
	}
}

// step lets a tenth of a second pass, in which everybody hears of everything and calls that run end.
func (y *rateYard) step() {
	y.round()
	for d := range y.rates {
		y.end(d)
	}
	y.now = y.now.Add(100 * time.Millisecond)
}

// TestRatesRefuse: a call that would wait for too long is refused at once where that can be known, and otherwise when
// it has waited.
func TestRatesRefuse(t *testing.T) {
	y := newRateYard(t, 0, 1, Grants{Tools: []NamedRate{{"fetch", Rate{PerSecond: 2, Wait: 3 * time.Second}},
		{"build", Rate{Calls: 1, Wait: 5 * time.Second}}}})
	r := y.rates[0]
	for range 8 {
		y.ask(0, RateKey{"a", "fetch", ""})
	}
	if _, refused := r.Take(); len(refused) != 0 {
		t.Errorf("refused %+v, and the last of eight begins after three seconds", refused)
	}
	y.ask(0, RateKey{"a", "fetch", ""})
	other := y.ask(0, RateKey{"b", "fetch", ""}) // it has its own turn
	_, refused := r.Take()
	if len(refused) != 1 || refused[0].ID != other-1 || refused[0].RetryAfter != 4*time.Second ||
		refused[0].Held.Text() != "tool fetch" || !strings.Contains(refused[0].Why(), "2 a second") {
		t.Errorf("refused %+v", refused)
	}
	y = newRateYard(t, 0, 1, r.grants)
	r = y.rates[0]
	y.ask(0, RateKey{"a", "build", ""})
	waits := y.ask(0, RateKey{"a", "build", ""})
	for range 60 {
		y.now = y.now.Add(100 * time.Millisecond)
		r.Advance(y.now)
		y.report(0)
		if y.heard[0] < len(y.stream) {
			y.sent[0] = 0
			r.Settle(y.stream[y.heard[0]].number, y.now)
			y.heard[0]++
		}
		if _, refused := r.Take(); len(refused) > 0 {
			if refused[0].ID != waits || refused[0].Waited < 5*time.Second || refused[0].RetryAfter < time.Second {
				t.Errorf("refused %+v", refused)
			}
			return
		}
	}
	t.Error("a call waits for ever")
}

// TestRatesThatChange: what waits is under the new rates, and what runs counts against them.
func TestRatesThatChange(t *testing.T) {
	y := newRateYard(t, 0, 1, Grants{Tools: []NamedRate{{"fetch", Rate{Calls: 1, Wait: time.Hour}}}})
	for range 4 {
		y.ask(0, RateKey{"a", "fetch", ""})
	}
	y.round()
	y.round()
	if len(y.order) != 1 {
		t.Fatalf("%d calls run", len(y.order))
	}
	y.rates[0].Regrant(Grants{Tools: []NamedRate{{"fe*", Rate{Calls: 3, Wait: time.Hour}}}}, y.now)
	y.round()
	y.round()
	if len(y.order) != 3 {
		t.Errorf("%d calls run, of 3 that may", len(y.order))
	}
	y.rates[0].Regrant(Grants{}, y.now)
	y.take(0)
	if len(y.order) != 4 {
		t.Errorf("%d calls run without a rate", len(y.order))
	}
	for len(y.runs[0]) > 0 {
		y.end(0)
	}
	if u := y.rates[0].used; len(y.rates[0].calls) != 0 || y.rates[0].Load() != 0 {
		t.Errorf("%v is still used", u)
	}
}

// TestRatesAreReadAgain: what has begun still counts when the rates are read again, also when its calls are over. That
// is so of what other dispatchers have begun, and of a rate that was gone for a while.
func TestRatesAreReadAgain(t *testing.T) {
	g := Grants{Tools: []NamedRate{{"mail", Rate{PerMinute: 2, Wait: time.Hour}}}}
	y := newRateYard(t, 0, 2, g)
	ask := func(d int) {
		for range 2 {
			y.ask(d, RateKey{"a", "mail", ""})
		}
		for range 4 {
			y.round()
		}
		for len(y.runs[d]) > 0 {
			y.end(d)
		}
	}
	ask(0)
	if len(y.order) != 2 {
		t.Fatalf("%d calls have begun, of 2 that may", len(y.order))
	}
	y.now = y.now.Add(time.Second)
	for d := range y.rates {
		y.rates[d].Regrant(Grants{}, y.now)
		y.rates[d].Regrant(g, y.now)
	}
	ask(0)
	ask(1)
	if len(y.order) != 2 {
		t.Errorf("%d calls have begun within two seconds, and 2 may in a minute", len(y.order))
	}
	for range 2 {
		y.now = y.now.Add(61 * time.Second)
		for d := range y.rates {
			y.rates[d].Regrant(g, y.now)
		}
		ask(0)
	}
	if len(y.order) != 6 {
		t.Errorf("%d calls have begun in three minutes, of 6 that may", len(y.order))
	}
}

// TestADispatcherThatIsGone gives its part of a rate back.
func TestADispatcherThatIsGone(t *testing.T) {
	y := newRateYard(t, 0, 2, Grants{Tools: []NamedRate{{"fetch", Rate{Calls: 2, Wait: time.Hour}}}})
	for range 2 {
		y.ask(0, RateKey{"a", "fetch", ""})
	}
	y.round()
	y.round()
	y.ask(1, RateKey{"b", "fetch", ""})
	y.round()
	y.round()
	if len(y.runs[0]) != 2 || len(y.runs[1]) != 0 {
		t.Fatalf("%v and %v run", y.runs[0], y.runs[1])
	}
	y.runs[0] = map[uint64]bool{}
	y.rates[1].Heard("0", nil, y.now)
	y.rates[1].Advance(y.now)
	y.report(1)
	for y.hear(1) {
	}
	if len(y.runs[1]) != 1 {
		t.Error("the call of another dispatcher does not begin")
	}
}

func TestRates(t *testing.T) {
	for text, want := range map[string]NamedRate{
		"fetch=calls:1":               {"fetch", Rate{Calls: 1}},
		"web_*=calls-per-second:5":    {"web_*", Rate{PerSecond: 5}},
		"api.example.com:443=calls:2": {"api.example.com:443", Rate{Calls: 2}},
		"*=calls-per-minute:6,wait-ms:1500,calls-per-second:2": {"*",
			Rate{PerMinute: 6, PerSecond: 2, Wait: 1500 * time.Millisecond}},
	} {
		if got, err := ParseRate(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                              "write NAME=KEY:N",
		"fetch=":                        "write NAME=KEY:N",
		"=calls:1":                      "is empty",
		"fetch=wait-ms:1":               "bounds nothing",
		"fetch=calls:0":                 `calls is "0"; use 1 to`,
		"fetch=calls:1,calls:":          "there twice",
		"fetch=batches:1":               `"batches" is none of the keys calls, calls-per-second, calls-per-minute, wait-ms`,
		"fetch=calls:1,wait-ms:9999999": `wait-ms is "9999999"; use 1 to 3600000`,
	} {
		if got, err := ParseRate(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want %s", text, got, err, want)
		}
	}
	got := rateGrants.RatesOf(RateKey{Agent: "web-1", Tool: "fetch", Dependency: "api.one"})
	want := []string{"tool fetch: 2 calls in flight", "dependency api.one: 3 calls in flight, 4 a second",
		"team web-*: 6 a second"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if r := NewRates(rateGrants); r.Bounds(RateKey{Agent: "free", Tool: "read"}) ||
		!r.Bounds(RateKey{Agent: toolyard.Agent("slow"), Tool: "read"}) {
		t.Error("what is bounded is not right")
	}
}

// FuzzRate: what is read can be written again, and bounds something.
func FuzzRate(f *testing.F) {
	f.Add("web_*=calls:2,calls-per-second:5,wait-ms:100")
	f.Add("a=calls-per-minute:1")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRate(text)
		if err != nil {
			return
		}
		again := r.Name + "="
		for key, n := range map[string]int{"calls": r.Calls, "calls-per-second": r.PerSecond,
			"calls-per-minute": r.PerMinute, "wait-ms": int(r.Wait.Milliseconds())} {
			if n > 0 {
				again += fmt.Sprintf("%s:%d,", key, n)
			}
		}
		if got, err := ParseRate(strings.TrimSuffix(again, ",")); err != nil || got != r {
			t.Errorf("%q is %+v, and again %+v, %v", text, r, got, err)
		}
	})
}

// TestAReportStaysShort: an agent whose calls go to very many hosts, each of which has a rate, does not make a report
// so long that NATS refuses it: nothing of anybody who has a quota would start.
func TestAReportStaysShort(t *testing.T) {
	const calls, accepted = 20_000, 1 << 20 // bytes of a message, as nats-server has it by default
	r := NewRates(Grants{Dependencies: []NamedRate{{"*", Rate{PerMinute: 100, Wait: time.Hour}}}})
	r.Know(true)
	now := time.Unix(1_000_000, 0)
	begun, refused := 0, 0
	for id := range uint64(calls) {
		host := fmt.Sprintf("%d.%s:443", id, strings.Repeat("&.", 120)) // what a URL may name as its host
		r.Ask(id, RateKey{Agent: "a", Tool: "fetch", Dependency: host}, 1, now)
		report := map[Scope]Usage{}
		r.Advance(now)
		if id%500 == 0 || id == calls-1 {
			r.Report(id+1, now, report)
			r.Settle(id+1, now)
			encoded, err := json.Marshal(report)
			if err != nil || len(encoded) > accepted*3/4 { // quotas stand in it too
				t.Fatalf("after %d calls the report has %d bytes: %v", id+1, len(encoded), err)
			}
		}
		granted, ended := r.Take()
		begun, refused = begun+len(granted), refused+len(ended)
		for _, f := range ended {
			if f.RetryAfter <= 0 || f.Why() == "" {
				t.Fatalf("call %d is refused as %+v", f.ID, f)
			}
		}
	}
	if begun == 0 || refused == 0 || begun+refused != calls {
		t.Errorf("%d calls began, and %d were refused", begun, refused)
	}
	// Others have room, also for the hosts of this agent; and it has some again when those calls are old.
	one := func(id uint64, agent toolyard.Agent, host string, now time.Time) {
		t.Helper()
		r.Ask(id, RateKey{Agent: agent, Tool: "fetch", Dependency: host}, 1, now)
		r.Advance(now)
		r.Report(id, now, map[Scope]Usage{})
		r.Settle(id, now)
		if granted, _ := r.Take(); len(granted) != 1 || granted[0].ID != id {
			t.Errorf("the call to %.20s does not begin: %+v", host, granted)
		}
	}
	one(calls+1, "b", "other.example.com:443", now)
	one(calls+2, "b", fmt.Sprintf("0.%s:443", strings.Repeat("&.", 120)), now)
	for id := range uint64(calls) {
		r.Leave(id, now)
	}
	later := now.Add(2 * time.Minute)
	r.Report(calls+3, later, map[Scope]Usage{})
	one(calls+4, "a", "new.example.com:443", later)
}
