package sim

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/events"
)

// on reports whether a message is on a subject with a prefix and, if types are given, is an event of one of them.
func on(prefix string, types ...events.Type) func(subject string, header func(string) string) bool {
	return func(subject string, header func(string) string) bool {
		return strings.HasPrefix(subject, prefix) && (len(types) == 0 ||
			slices.Contains(types, events.Type(header("ce-type"))))
	}
}

// batchChain are the owner's events.
func batchChain(subject string, _ func(string) string) bool {
	return strings.HasPrefix(subject, "ty.event.") && strings.HasSuffix(subject, "._.batch")
}

// teeth are the fences of internal/sim that are taken away here too, with a history that breaks without each, and which
// invariants that may be. Those that the server holds are taken away at the server: it stores what it should refuse.
// The others are code of dispatchers and workers, which has no switch yet.
var teeth = []struct {
	fence   string
	without func(subject string, header func(string) string) bool
	hint    uint64 // a seed that did; it is tried first
	breaks  []string
}{
	{"expected sequence on claims", on("ty.event.", events.CallClaimed), 0, []string{"Q13", "Q3"}},
	{"expected sequence on results", on("ty.event.", events.CallFinished), 50, []string{"Q13", "Q1"}},
	{"expected sequence on the batch chain", batchChain, 4, []string{"Q13", "Q1"}},
	{"expected sequence on replies", on("ty.reply."), 0, []string{"Q1", "Q2"}},
}

// notYet are the fences of internal/sim that have no tooth here.
var notYet = []string{
	"compare-and-set on tickets", // taken away at the server too: none of 40 histories broke
	"group check on leaving", "lease check at commit points", "a lapsed lease stays lapsed",
	"silence before a lost call is settled",
	"a dropped claim is settled", "a call that lapsed before its start is redelivered",
	"a fold reads the input after the plan",
	"a worker recognises its own claim", "only claims that were known are lost", "what a former owner queued is reread",
	"term check on leaving", "a heartbeat is given up when the next is due", "heartbeats keep their pace",
	"nonce of an append",
	"redelivery of submissions", "rereading of calls in flight", "sweep of tickets left behind",
	"acknowledge after the result",
	"approval before a call runs", "hash of the approved input", "open calls are read whole",
	"a gap before a live copy is read",
	"no waiting behind a claim", "old grants count no more", "leave before parked", "sweep of a parked batch's ticket",
	"look for news after parked", "news wakes a parked batch", "a parked batch is adopted by a wake only",
	"only the handle adopts",
	"a wake names its parking", "look before a call is taken off the list", "an owner proves itself after a decision",
	"a change of nothing is stored too", "a wake is given back while the batch runs", "wake after a decision",
	"sweep of lost wakes",
	"sweep of expired requests", "what the server may have forgotten is claimed", "workers are done with the reads",
}

// TestTeeth takes away one fence at a time: some history then breaks an invariant.
func TestTeeth(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	t.Logf("%d fences have a tooth, %d not yet", len(teeth), len(notYet))
	for _, tooth := range teeth {
		t.Run(tooth.fence, func(t *testing.T) {
			tries := []uint64{tooth.hint}
			for n := range *teethSeeds {
				tries = append(tries, n)
			}
			for n, seed := range tries {
				r := inMemory(t, seed, options{without: tooth.without})
				if len(r.problems) == 0 {
					continue
				}
				broken, _, _ := strings.Cut(r.problems[0], ":")
				if slices.Contains(tooth.breaks, broken) {
					t.Logf("seed %d, after %d others: %s", seed, n, r.problems[0])
					return
				}
			}
			t.Errorf("none of %d histories breaks %v without this fence", *teethSeeds, tooth.breaks)
		})
	}
}
