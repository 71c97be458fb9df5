package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// owner is a process that owns a batch, and knows the account as it was when it last looked.
type owner struct {
	line           string
	used, reserved Amount
	// term is how often the batch was taken over, and before what its former owner knew.
	term   int
	before *owner
	// told says that the account has had a line of it.
	over, closed, told bool
}

// TestAccountsInAllOrders plays owners that take each other's batches over at any time, and whose changes of an account
// are repeated when an answer is lost: what is reserved never passes the budget, no former owner changes anything, what
// is used is what the batches have used in the end, and no line stays.
func TestAccountsInAllOrders(t *testing.T) {
	b := Budget{Amount: Amount{Calls: 40, Cost: 100}}
	refused := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 11))
		var a Account
		now := time.Unix(1_000_000, 0)
		var all []*owner
		for n := range 5 {
			all = append(all, &owner{line: fmt.Sprint("a/", n)})
		}
		stored := func(change func(Account) Account) { // a lost answer has the change made once more
			a = again(t, change(a))
			if r.IntN(4) == 0 {
				a = again(t, change(a))
			}
			used, reserved := a.Total()
			if sum := used.Plus(reserved); sum.Calls > b.Calls || sum.Cost > b.Cost {
				t.Fatalf("seed %d: %+v of %+v", seed, sum, b)
			}
		}
		holder := func(o *owner) Holder { return Holder{Line: o.line, Term: o.term} }
		passed := func(former *owner) {
			next, fit, _, err := a.Reserve(holder(former), b, former.used, former.reserved, []Amount{{Calls: 1}}, now)
			settled, again := a.Settle(holder(former), b, former.used, former.reserved, now)
			if !errors.Is(err, ErrPassed) || !errors.Is(again, ErrPassed) || fit != 0 ||
				!reflect.DeepEqual(next, a) || !reflect.DeepEqual(settled, a) {
				t.Fatalf("seed %d: a former owner of %s reserves %d calls: %v, %v", seed, former.line, fit, err, again)
			}
		}
		for range 200 {
			o := all[r.IntN(len(all))]
			if o.over {
				if !o.closed || r.IntN(2) == 0 { // also once more, by another owner
					stored(func(a Account) Account { return a.Close(o.line, o.used, now) })
					o.closed = o.closed || o.told
				} else if o.told && r.IntN(2) == 0 { // a former owner that was silent goes on
					passed(o)
				}
				continue
			}
			if o.before != nil && r.IntN(4) == 0 {
				passed(o.before)
			}
			switch n := r.IntN(8); {
			case n < 3:
				calls := make([]Amount, 1+r.IntN(4))
				for i := range calls {
					calls[i] = Amount{Calls: 1, Cost: int64(r.IntN(5))}
				}
				fit := 0
				o.told = true
				stored(func(a Account) Account {
					next, n, _, err := a.Reserve(holder(o), b, o.used, o.reserved, calls, now)
					if err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
					fit = n
					return next
				})
				refused += len(calls) - fit
				for _, c := range calls[:fit] {
					o.reserved = o.reserved.Plus(c)
				}
			case n < 6 && o.reserved.Calls > 0: // a call ends, and has used no more than was reserved
				cost := o.reserved.Cost / o.reserved.Calls
				o.reserved = o.reserved.Minus(Amount{Calls: 1, Cost: cost})
				if r.IntN(4) > 0 {
					o.used = o.used.Plus(Amount{Calls: 1, Cost: cost})
				}
			case n < 7: // the owner dies, and the next one settles what the log says
				former := *o
				o.told, o.term, o.before = true, o.term+1, &former
				stored(func(a Account) Account {
					next, err := a.Settle(holder(o), b, o.used, o.reserved, now)
					if err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
					return next
				})
			case r.IntN(5) == 0:
				o.used, o.reserved, o.over = o.used.Plus(o.reserved), Amount{}, true
			}
		}
		want := Amount{}
		for _, o := range all {
			if !o.over {
				o.used, o.reserved, o.over = o.used.Plus(o.reserved), Amount{}, true
			}
			stored(func(a Account) Account { return a.Close(o.line, o.used, now) })
			if o.closed || o.used != (Amount{}) {
				want = want.Plus(o.used)
			}
		}
		if used, reserved := a.Total(); used != want || reserved != (Amount{}) || len(a.Lines) != 0 {
			t.Fatalf("seed %d: %+v is used and %+v reserved of %d lines, want %+v", seed, used, reserved, len(a.Lines),
				want)
		}
	}
	if refused < 100 {
		t.Errorf("%d calls were past the budget: the test sees too little", refused)
	}
}

// again is an account as it is read after it was stored.
func again(t *testing.T, a Account) (out Account) {
	t.Helper()
	text, err := json.Marshal(a)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	must.OK(t, err)
	return out
}

// TestPeriodsOfABudget: in the next period all is there again, and what a batch used before does not count.
func TestPeriodsOfABudget(t *testing.T) {
	b := Budget{Amount: Amount{Calls: 3}, Per: time.Hour}
	now := time.Unix(1_000_000, 0)
	calls := []Amount{{Calls: 1}, {Calls: 1}}
	var a Account
	h := Holder{Line: "a/1"}
	a, fit, past, _ := a.Reserve(h, b, Amount{}, Amount{}, calls, now)
	if fit != 2 || past != "" {
		t.Fatalf("%d fit, past %q", fit, past)
	}
	a, fit, past, _ = a.Reserve(h, b, Amount{Calls: 2}, Amount{}, calls, now.Add(59*time.Minute))
	if fit != 1 || past != "calls" {
		t.Errorf("%d fit, past %q", fit, past)
	}
	if at, ok := a.Renews(); !ok || !at.Equal(now.Add(time.Hour)) {
		t.Errorf("it renews at %s", at)
	}
	for _, tt := range []struct {
		at   time.Duration
		left string
	}{{59 * time.Minute, "2 of 3 calls and 1 reserved"}, {time.Hour, "0 of 3 calls and 1 reserved"}} {
		shown := a.At(now.Add(tt.at))
		if at, _ := shown.Renews(); shown.Left() != tt.left || !at.Equal(now.Add(time.Hour)) {
			t.Errorf("after %s it shows %q, and renews at %s", tt.at, shown.Left(), at)
		}
	}
	if used, _ := a.Total(); used.Calls != 2 {
		t.Errorf("looking at it changed it: %+v", used)
	}
	a, fit, past, _ = a.Reserve(h, b, Amount{Calls: 3}, Amount{}, calls, now.Add(time.Hour))
	if fit != 2 || past != "" {
		t.Errorf("in the next hour %d fit, past %q", fit, past)
	}
	a = a.Close("a/1", Amount{Calls: 5}, now)
	if used, _ := a.Total(); used.Calls != 2 {
		t.Errorf("%+v are used in it", used)
	}
}

// TestWhatIsNotKnownBefore: seconds and bytes are used up when something is past, not by what a call may use.
func TestWhatIsNotKnownBefore(t *testing.T) {
	b := Budget{Amount: Amount{MS: 1_000, Bytes: 10}}
	for _, c := range []struct {
		used Amount
		past string
	}{{Amount{}, ""}, {Amount{MS: 999, Bytes: 9}, ""}, {Amount{MS: 1_000}, "seconds"}, {Amount{Bytes: 12}, "bytes"}} {
		if _, past := b.Fit(c.used, Amount{}, []Amount{{Calls: 1}}); past != c.past {
			t.Errorf("%+v: past %q", c.used, past)
		}
	}
}

func TestBudgets(t *testing.T) {
	for text, want := range map[string]BudgetGrant{
		"agent ci-*=calls:5":          {BudgetOfAgent, "ci-*", Budget{Amount: Amount{Calls: 5}}},
		"batch  *=seconds:2":          {BudgetOfBatch, "*", Budget{Amount: Amount{MS: 2_000}}},
		"session a=bytes:7":           {BudgetOfSession, "a", Budget{Amount: Amount{Bytes: 7}}},
		"team w*=cost:9,per-hours:24": {BudgetOfTeam, "w*", Budget{Amount: Amount{Cost: 9}, Per: 24 * time.Hour}},
	} {
		if got, err := ParseBudget(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                            "a budget is of one of",
		"tool x=calls:1":              "a budget is of one of",
		"agent":                       "write agent AGENTS=KEY:N",
		"agent a=per-hours:1":         "bounds nothing",
		"batch a=calls:1,per-hours:1": "has no per-hours",
		"agent a*b=calls:1":           "only at the end",
		"agent a=batches:1":           "none of the keys calls, seconds, bytes, cost, per-hours",
		"agent a=calls:0":             "use 1 to",
	} {
		if got, err := ParseBudget(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want %s", text, got, err, want)
		}
	}
	g := Budgets{{BudgetOfAgent, "web-1", Budget{Amount: Amount{Calls: 1}}}, {BudgetOfAgent, "web-*", Budget{}},
		{BudgetOfTeam, "web-*", Budget{}}, {BudgetOfSession, "*", Budget{}}, {BudgetOfBatch, "ci", Budget{}}}
	var names []string
	for _, o := range append(g.Of("web-1", "s"), g.Of("ci", "s")...) {
		names = append(names, o.Text())
	}
	if got := strings.Join(names, ", "); got !=
		"session s of web-1, agent web-1, team web-*, this batch, session s of ci" {
		t.Error(got)
	}
	a := Account{Limit: Budget{Amount: Amount{Calls: 9, MS: 60_000}}, Used: Amount{Calls: 2, MS: 1_500},
		Lines: map[string]Line{LineOf(toolyard.BatchKey{Agent: "a", ID: "b"}): {Reserved: Amount{Calls: 3}}}}
	if got := a.Left(); got != "2 of 9 calls and 3 reserved, 1.5 of 60 seconds" {
		t.Error(got)
	}
}

// FuzzBudget: what is read bounds something, and what it bounds is in its limits.
func FuzzBudget(f *testing.F) {
	f.Add("agent ci-*=calls:5,per-hours:24")
	f.Add("batch *=seconds:2,bytes:3,cost:4")
	f.Fuzz(func(t *testing.T, text string) {
		g, err := ParseBudget(text)
		if err == nil && (g.Amount == Amount{} || g.Calls < 0 || g.MS < 0 || g.MS > MaxBudget || g.Bytes < 0 ||
			g.Cost < 0 || g.Per < 0) {
			t.Errorf("%q is %+v", text, g)
		}
	})
}

// TestLinesThatWereClosed: an account remembers the lines that were closed last, also when many are closed in a short
// time, so that no former owner opens one again.
func TestLinesThatWereClosed(t *testing.T) {
	b := Budget{Amount: Amount{Calls: 1_000_000}}
	now := time.Unix(1_000_000, 0)
	var a Account
	h := Holder{}
	for n := range maxBudgetClosed + 10 {
		h.Line = fmt.Sprint("a/", n)
		var err error
		if a, err = a.Settle(h, b, Amount{Calls: 1}, Amount{}, now.Add(time.Duration(n)*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		a = a.Close(h.Line, Amount{Calls: 1}, now.Add(time.Duration(n)*time.Millisecond))
	}
	if _, err := a.Settle(h, b, Amount{}, Amount{Calls: 1}, now.Add(2*time.Second)); !errors.Is(err, ErrPassed) {
		t.Errorf("a former owner opens the line that was closed last: %v", err)
	}
	if len(a.Closed) != maxBudgetClosed {
		t.Errorf("%d lines are remembered", len(a.Closed))
	}
}

// TestABatchThatIsGivenUp: what its calls may have used counts, and it keeps no line.
func TestABatchThatIsGivenUp(t *testing.T) {
	b := Budget{Amount: Amount{Calls: 9}}
	now := time.Unix(1_000_000, 0)
	var a Account
	a, _, _, err := a.Reserve(Holder{Line: "a/1"}, b, Amount{Calls: 2}, Amount{}, []Amount{{Calls: 1}, {Calls: 1}}, now)
	must.OK(t, err)
	a = a.Abandon("a/1", now)
	a = a.Abandon("a/2", now) // which has none
	if used, reserved := a.Total(); used.Calls != 4 || reserved != (Amount{}) || len(a.Lines) != 0 {
		t.Errorf("%+v are used and %+v reserved, of %d lines", used, reserved, len(a.Lines))
	}
}

// TestAPeriodOfAClockThatWasAhead: a dispatcher whose clock is a year ahead begins a period. When it is right again, or
// another dispatcher looks, what was used counts, and the next period begins in time.
func TestAPeriodOfAClockThatWasAhead(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	b := Budget{Amount: Amount{Calls: 1}, Per: 24 * time.Hour}
	call := []Amount{{Calls: 1}}
	reserve := func(a *Account, line string, used int64, at time.Time) (Account, int) {
		next, fit, _, err := a.Reserve(Holder{Line: line}, b, Amount{Calls: used}, Amount{}, call, at)
		must.OK(t, err)
		return next, fit
	}
	var a Account
	a, fit := reserve(&a, "a/0", 0, now.AddDate(1, 0, 0))
	if fit != 1 {
		t.Fatal("the first call does not fit")
	}
	for _, line := range []string{"a/0", "a/1"} { // the batch that has used all, and another one
		used := int64(0)
		if line == "a/0" {
			used = 1
		}
		if a, fit = reserve(&a, line, used, now.Add(time.Hour)); fit != 0 {
			t.Errorf("%s has a call that the budget has not left: %s", line, a.Left())
		}
	}
	if at, ok := a.Renews(); !ok || at.After(now.Add(25*time.Hour)) {
		t.Errorf("it renews at %v, %v from now", at, at.Sub(now))
	}
	if a, fit = reserve(&a, "a/1", 0, now.Add(26*time.Hour)); fit != 1 {
		t.Errorf("a period later nothing is left: %s", a.Left())
	}
}

// TestAnAccountStaysShort: however long the names of its batches are, an account fits into a message, also when all of
// its lines are told what they have used; and lines end and begin again.
func TestAnAccountStaysShort(t *testing.T) {
	const accepted = 1 << 20 // bytes of a message, as nats-server has it by default
	now := time.Unix(1_000_000, 0)
	b := Budget{Amount: Amount{Calls: MaxBudget}, Per: time.Hour}
	some := Amount{Calls: 12_345, MS: 12_345_678, Bytes: 123_456_789, Cost: 12_345}
	for name, long := range map[string]string{
		"usual names":                     strings.Repeat("a", 20),
		"the longest":                     strings.Repeat("&", toolyard.MaxNameBytes-5), // & is \u0026 in JSON
		"the longest, of other alphabets": strings.Repeat("\u00e4", toolyard.MaxNameBytes/2-3),
	} {
		var a Account
		holder := func(n int) Holder {
			k := toolyard.BatchKey{Agent: toolyard.Agent(long), ID: toolyard.BatchID(fmt.Sprintf("%05d", n) + long)}
			return Holder{Line: LineOf(k), Until: now.Add(time.Hour), End: now.Add(72 * time.Hour)}
		}
		short := func(when string) {
			t.Helper()
			encoded, err := json.Marshal(&a)
			if err != nil || len(encoded) > accepted {
				t.Fatalf("%s: %s: it has %d bytes with %d lines, %d closed: %v", name, when, len(encoded), len(a.Lines),
					len(a.Closed), err)
			}
		}
		for n := range maxBudgetClosed + 1 { // batches that are over
			next, _, _, err := a.Reserve(holder(n), b, Amount{}, Amount{}, []Amount{{Calls: 1}}, now)
			must.OK(t, err)
			a = next.Close(holder(n).Line, Amount{Calls: 1}, now)
		}
		short("batches are over")
		begun := 0
		for n := range MaxBudgetBatches + 1 {
			next, fit, past, err := a.Reserve(holder(10_000+n), b, Amount{}, Amount{}, []Amount{{Calls: 1}}, now)
			if err != nil || fit == 0 && past != "batches under way" {
				t.Fatalf("%s: line %d: %q, %v", name, n, past, err)
			}
			a, begun = next, begun+fit
		}
		if name == "usual names" && begun != MaxBudgetBatches || begun < 200 || begun > MaxBudgetBatches {
			t.Errorf("%s: calls of %d batches begin", name, begun)
		}
		short("batches are under way")
		for n := range begun {
			next, err := a.Settle(holder(10_000+n), b, some, Amount{Calls: 10}, now.Add(2*time.Hour))
			if err != nil {
				t.Fatalf("%s: line %d is told nothing: %v", name, n, err)
			}
			a = next
		}
		short("they have used something")
		a = a.Close(holder(10_000).Line, some, now.Add(2*time.Hour))
		if _, fit, past, err := a.Reserve(holder(20_000), b, Amount{}, Amount{}, []Amount{{Calls: 1}}, now); fit != 1 {
			t.Errorf("%s: a batch is over, and no other begins: %q, %v", name, past, err)
		}
	}
}
