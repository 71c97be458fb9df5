package sim

import (
	"slices"
	"testing"
)

// TestTeeth takes away one fence at a time: some history must then break an invariant that the fence is for, whatever else
// breaks before. A hint is a seed that did when it was written down; it is tried first, and all from 0 on when it does no more.
func TestTeeth(t *testing.T) {
	const first, some, many = 100, 1_500, 6_000
	for _, tooth := range []struct {
		fence        Fence
		focus        Focus
		hint, within uint64
		breaks       []string
	}{
		{FenceClaim, Takeovers, 0, first, []string{"I5"}},
		{FenceFinish, Anything, 0, first, []string{"I1"}},
		{FenceBatch, Anything, 0, first, []string{"I1", "I7"}},
		{FenceReply, Takeovers, 0, first, []string{"I2"}},
		{FenceTicket, Absences, 0, some, []string{"I4", "Q7"}},
		{FenceLeaveGroup, Anything, 198, some, []string{"I4"}},
		{FenceCommit, Absences, 243, some, []string{"I4", "Q7"}},
		{FenceLapsed, Absences, 0, some, []string{"I4", "Q7"}},
		{FenceSilence, Absences, 47, some, []string{"I4"}},
		{FenceHolder, Anything, 464, some, []string{"liveness"}},
		{FenceLapsedAtStart, Anything, 0, first, []string{"liveness"}},
		{FenceFoldOrder, Streams, 233, many, []string{"panic"}},
		{FenceRecognise, Absences, 639, some, []string{"outcome_unknown"}},
		{FenceLostClaim, Absences, 995, many, []string{"I4", "outcome_unknown"}},
		{FenceInFlight, Takeovers, 4762, many, []string{"liveness"}},
		{FenceTerm, Streams, 1003, many, []string{"I4", "liveness"}},
		{FenceBeatTimeout, Takeovers, 147, some, []string{"outcome_unknown"}},
		{FenceKeepPace, Anything, 751, some, []string{"outcome_unknown"}},
		{FenceNonce, Absences, 0, first, []string{"Q10"}},
		{FenceRedelivery, Anything, 0, first, []string{"liveness"}},
		{FenceReread, Anything, 0, first, []string{"liveness"}},
		{FenceSweep, Takeovers, 0, some, []string{"liveness"}},
		{FenceAckLast, Anything, 0, first, []string{"liveness"}},
	} {
		t.Run(tooth.fence.String(), func(t *testing.T) {
			others := map[string]int{}
			bites := func(seed uint64) bool {
				r := Run(seed, Options{Without: []Fence{tooth.fence}, Focus: tooth.focus})
				if r.Failure == nil {
					return false
				}
				if !slices.Contains(tooth.breaks, r.Failure.Invariant) {
					others[r.Failure.Invariant]++
					return false
				}
				t.Logf("go test ./internal/sim -run TestSeed -seed %d -focus %d -without %d (before it %v)\n%v", seed, tooth.focus, tooth.fence, others, r.Failure)
				return true
			}
			if bites(tooth.hint) {
				return
			}
			for seed := range min(tooth.within, mostTeeth) {
				if bites(seed) {
					return
				}
			}
			if tooth.within > mostTeeth {
				t.Logf("not seen in %d histories; it may take %d", mostTeeth, tooth.within)
				return
			}
			t.Errorf("none of %d histories breaks %v without this fence (others: %v): it does nothing, or the simulation does not see what it is for",
				tooth.within, tooth.breaks, others)
		})
	}
}

// TestCalm plays histories without faults: nothing is lost, and nobody is told that it might be.
func TestCalm(t *testing.T) {
	for seed := range uint64(300) {
		if r := Run(seed, Options{Calm: true}); r.Failure != nil {
			t.Fatalf("\n%s", Run(seed, Options{Calm: true, Trace: true}))
		} else if r.Codes["outcome_unknown"] > 0 || r.Takeovers > 0 {
			t.Fatalf("seed %d: %d results of unknown outcome and %d takeovers, without a fault", seed, r.Codes["outcome_unknown"], r.Takeovers)
		}
	}
}

// TestTheSameSeedIsTheSameHistory compares two plays of a seed, line by line, and one without a trace.
func TestTheSameSeedIsTheSameHistory(t *testing.T) {
	for seed := range uint64(40) {
		a, b, quiet := Run(seed, Options{Trace: true, Chatter: true}), Run(seed, Options{Trace: true, Chatter: true}), Run(seed, Options{})
		if a.Steps != quiet.Steps || a.End != quiet.End {
			t.Errorf("seed %d has %d steps with a trace and %d without", seed, a.Steps, quiet.Steps)
		}
		if !slices.Equal(a.Trace, b.Trace) {
			t.Errorf("seed %d goes differently the second time", seed)
		}
	}
}
