package verdict

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/test/faults/ledger"
	"github.com/toolyard/toolyard/tool"
)

// judged is a history of calls in one workspace, one in each batch, named by the tools. Each is over at second 10. A
// tool is exclusive if its name begins with "write".
func judged(lines map[string][]ledger.Line) *Judged {
	j := &Judged{History: &History{Batches: map[toolyard.BatchKey]*Batch{}},
		Rules: Rules{Kinds: map[string]Kind{}},
		Tools: map[Call]string{}, Results: map[Call]Finished{}, Planned: map[toolyard.BatchKey]*events.Planned{},
		GroupOf: map[Call]int{}, lines: map[Call][]ledger.Line{}}
	for name, all := range lines {
		c := Call{toolyard.BatchKey{Agent: "a", ID: toolyard.BatchID(name)}, 0}
		j.Kinds[name], j.Tools[c] = Kind{Exclusive: strings.HasPrefix(name, "write")}, name
		j.Results[c], j.Batches[c.BatchKey] = Finished{At: time.Unix(0, 10)}, &Batch{}
		group := events.Group{Calls: []int{0}}
		if all[0].File != "" {
			group.Locks = []tool.Lock{{Name: all[0].File}}
		}
		j.Planned[c.BatchKey] = &events.Planned{Groups: []events.Group{group}}
		for _, l := range all {
			l.Agent, l.Batch, l.Workspace, l.Tool = c.Agent, c.ID, "w", name
			j.lines[c], j.Ledger = append(j.lines[c], l), append(j.Ledger, l)
		}
	}
	slices.SortFunc(j.Ledger, func(a, b ledger.Line) int { return int(a.Wall - b.Wall) })
	return j
}

// TestWhoActsBesideAnExclusiveCall: what acts while an exclusive call has the same file, or either has the whole
// workspace, is found. What has another file may act.
func TestWhoActsBesideAnExclusiveCall(t *testing.T) {
	for name, c := range map[string]struct {
		writes, acts string // their files; empty: the whole workspace
		found        bool
	}{
		"the same file":              {"x", "x", true},
		"another file":               {"x", "y", false},
		"the whole beside a file":    {"x", "", true},
		"a file beside the whole":    {"", "x", true},
		"the whole beside the whole": {"", "", true},
	} {
		j := judged(map[string][]ledger.Line{
			"write": {{Kind: ledger.Begin, File: c.writes, Wall: 1}},
			"read":  {{Kind: ledger.Begin, File: c.acts, Wall: 0}, {Kind: ledger.Tick, File: c.acts, Wall: 5}},
		})
		if j.steady(); (len(j.out) > 0) != c.found {
			t.Errorf("%s: %q", name, j.out)
		}
	}
}

// TestTokensOfAPlace: tokens grow in each place of a workspace, and a missing one is found once.
func TestTokensOfAPlace(t *testing.T) {
	for name, c := range map[string]struct {
		first, second ledger.Line
		found         int
	}{
		"they grow":             {ledger.Line{Token: 1}, ledger.Line{Token: 2}, 0},
		"they fall":             {ledger.Line{Token: 2}, ledger.Line{Token: 1}, 1},
		"two have the same":     {ledger.Line{Token: 1}, ledger.Line{Token: 1}, 1},
		"of other files":        {ledger.Line{Token: 2, File: "x"}, ledger.Line{Token: 1, File: "y"}, 0},
		"a file, and the whole": {ledger.Line{Token: 2, File: "x"}, ledger.Line{Token: 1}, 1},
		"none":                  {ledger.Line{Token: 1}, ledger.Line{}, 1},
	} {
		c.first.Kind, c.first.Wall, c.second.Kind, c.second.Wall = ledger.Effect, 1, ledger.Effect, 2
		j := judged(map[string][]ledger.Line{"write 1": {c.first}, "write 2": {c.second}})
		if j.q7(); len(j.out) != c.found {
			t.Errorf("%s: %q", name, j.out)
		}
	}
}
