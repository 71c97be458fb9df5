package failpoint

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

func TestParse(t *testing.T) {
	p, err := parse("dispatcher.batch-received=kill;worker.call-taken=stop@3;tool.effect-begun=delay:50ms@*;dispatcher.batch-over=note@2", "log")
	must.OK(t, err)
	want := map[Name]action{
		BatchReceived: {kind: kill, at: 1}, CallTaken: {kind: stop, at: 3},
		EffectBegun: {kind: delay, delay: 50 * time.Millisecond}, BatchOver: {kind: note, at: 2},
	}
	if len(p.actions) != len(want) {
		t.Errorf("%d actions, want %d", len(p.actions), len(want))
	}
	for n, a := range want {
		if p.actions[n] != a {
			t.Errorf("%s: %+v, want %+v", n, p.actions[n], a)
		}
	}
	if p, err := parse("", ""); err != nil || len(p.actions) != 0 {
		t.Errorf("nothing is read as %+v, %v", p, err)
	}
}

// TestParseRefuses: what is not known is an error, and never nothing.
func TestParseRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"dispatcher.batch-recieved=kill":                "there is no failpoint",
		"=kill":                                         "there is no failpoint",
		"worker.call-taken":                             "write name=action",
		"worker.call-taken=kill;":                       "write name=action",
		" worker.call-taken=kill":                       "there is no failpoint",
		"worker.call-taken=":                            "is no action",
		"worker.call-taken=die":                         "is no action",
		"worker.call-taken=kill:5s":                     "is no action",
		"worker.call-taken=delay":                       "is no action",
		"worker.call-taken=delay:soon":                  "positive time",
		"worker.call-taken=delay:-1s":                   "positive time",
		"worker.call-taken=kill@0":                      "from 1 on",
		"worker.call-taken=kill@":                       "from 1 on",
		"worker.call-taken=kill@two":                    "from 1 on",
		"worker.call-taken=kill;worker.call-taken=stop": "stands twice",
	} {
		if p, err := parse(text, ""); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q is read as %+v, %v; want an error that says %q", text, p, err, says)
		}
	}
}

func TestHits(t *testing.T) {
	p, err := parse("worker.call-taken=note@3;worker.call-claimed=note@*", "log")
	must.OK(t, err)
	var taken []int
	for i := 1; i <= 5; i++ {
		if d, due := p.hit(CallTaken); due {
			taken = append(taken, i)
			if d.name != CallTaken || d.hits != i || d.log != "log" {
				t.Errorf("hit %d is %+v", i, d)
			}
		}
		if _, due := p.hit(CallClaimed); !due {
			t.Errorf("hit %d of a failpoint that is due each time is not", i)
		}
		if d, due := p.hit(BatchOver); due {
			t.Errorf("a failpoint that nobody asked for is due: %+v", d)
		}
	}
	if !slices.Equal(taken, []int{3}) {
		t.Errorf("it was due at the hits %v, want 3", taken)
	}
}

func TestNamesAreDistinct(t *testing.T) {
	sorted := slices.SortedFunc(slices.Values(Names), func(a, b Name) int { return cmp.Compare(a, b) })
	if len(slices.Compact(sorted)) != len(Names) {
		t.Errorf("two failpoints have one name: %q", sorted)
	}
	for _, n := range Names {
		if strings.ContainsAny(string(n), "=;@ ") {
			t.Errorf("%q cannot be written in the environment", n)
		}
	}
}
