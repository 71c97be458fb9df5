package sim

import (
	"fmt"
	"slices"
	"testing"
)

// TestTeeth takes away one fence at a time: some history must then break an invariant that the fence is for, whatever
// else breaks before. A hint is a seed that did when it was written down; it is tried first, and all from 0 on when it
// does no more.
func TestTeeth(t *testing.T) {
	const first, some, many = 100, 1_500, 6_000
	for _, tooth := range []struct {
		// fence is the one that the tooth is for. Others, where there are some, are taken away with it: they make good
		// what it guards against, only later.
		fence        Fence
		focus        Focus
		hint, within uint64
		breaks       []string
		others       []Fence
	}{
		{FenceClaim, Anything, 20, first, []string{"I5"}, nil},
		{FenceFinish, Anything, 5, first, []string{"I1"}, nil},
		{FenceBatch, Anything, 1, first, []string{"I1", "I7"}, nil},
		{FenceReply, Takeovers, 2, first, []string{"I2"}, nil},
		{FenceTicket, Absences, 193, some, []string{"I4", "Q7"}, nil},
		{FenceLeaveGroup, Anything, 1122, many, []string{"I4", "Q7", "liveness"}, nil},
		{FenceCommit, Absences, 224, some, []string{"I4", "Q7"}, nil},
		{FenceLapsed, Absences, 183, some, []string{"I4", "Q7"}, nil},
		{FenceSilence, Absences, 28, some, []string{"I4"}, nil},
		{FenceHolder, Anything, 597, some, []string{"liveness"}, nil},
		{FenceLapsedAtStart, Anything, 5, first, []string{"liveness"}, nil},
		{FenceFoldOrder, Streams, 8129, many, []string{"panic"}, nil},
		{FenceRecognise, Absences, 1544, many, []string{"outcome_unknown"}, nil},
		{FenceInFlight, Takeovers, 5382, many, []string{"liveness"}, nil},
		{FenceTerm, Streams, 1058, many, []string{"I4", "liveness"}, nil},
		{FenceBeatTimeout, Takeovers, 162, some, []string{"outcome_unknown"}, nil},
		{FenceKeepPace, Anything, 611, some, []string{"outcome_unknown"}, nil},
		{FenceNonce, Absences, 22, first, []string{"Q10"}, nil},
		{FenceRedelivery, Anything, 0, first, []string{"liveness"}, nil},
		{FenceReread, Anything, 0, first, []string{"liveness"}, nil},
		{FenceSweep, Takeovers, 8, some, []string{"liveness"}, nil},
		{FenceAckLast, Anything, 5, first, []string{"liveness"}, nil},
		{FenceApproval, People, 0, first, []string{"approval"}, nil},
		{FenceApprovedHash, People, 2, some, []string{"approval"}, nil},
		{FenceWholeChain, People, 0, some, []string{"asked once", "I7"}, nil},
		{FenceGap, People, 4444, many, []string{"I7"}, nil},
		{FenceWaitClaim, People, 8043, many, []string{"I7"}, nil},
		{FenceTakes, Crowds, 11943, many, []string{"I4", "Q7"}, nil},
		{FenceTicketSure, People, 475, many, []string{"parked", "liveness"}, nil},
		{FenceProof, People, 866, many, []string{"I4", "Q7"}, nil},
		{FenceParkLeave, People, 0, first, []string{"parked"}, nil},
		{FenceParkedTicket, People, 4532, many, []string{"parked", "liveness"}, nil},
		{FenceParkReread, People, 6, some, []string{"liveness"}, []Fence{FenceMissed}},
		{FenceNewsWakes, People, 22, many, []string{"I8"}, nil},
		{FenceParkedHandle, People, 22, many, []string{"I8"}, nil},
		{FenceHandle, People, 29, some, []string{"I8"}, nil},
		{FenceWakeSeq, People, 261, many, []string{"I8"}, nil},
		{FenceUnlist, People, 1130, many, []string{"liveness"}, nil},
		{FenceGiveBack, People, 6, some, []string{"liveness"}, []Fence{FenceMissed}},
		{FenceWake, People, 2, first, []string{"liveness"}, []Fence{FenceMissed}},
		{FenceMissed, People, 358, some, []string{"liveness"}, nil},
		{FenceExpired, People, 0, first, []string{"liveness"}, nil},
		{FenceForgotten, Restarts, 24, some, []string{"I4"}, nil},
		{FenceQuiet, Restarts, 90, some, []string{"I4"}, nil},
	} {
		t.Run(tooth.fence.String(), func(t *testing.T) {
			others := map[string]int{}
			bites := func(seed uint64) bool {
				r := Run(seed, Options{Without: append([]Fence{tooth.fence}, tooth.others...), Focus: tooth.focus})
				if r.Failure == nil {
					return false
				}
				if !slices.Contains(tooth.breaks, r.Failure.Invariant) {
					others[r.Failure.Invariant]++
					return false
				}
				without := fmt.Sprint(int(tooth.fence))
				for _, f := range tooth.others {
					without += fmt.Sprintf(",%d", f)
				}
				t.Logf("go test ./internal/sim -run TestSeed -seed %d -focus %d -without %s (before it %v)\n%v", seed,
					tooth.focus, without, others, r.Failure)
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
			t.Errorf("none of %d histories breaks %v without this fence (others: %v): it does nothing, or the "+
				"simulation does not see what it is for",
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
			t.Fatalf("seed %d: %d results of unknown outcome and %d takeovers, without a fault", seed,
				r.Codes["outcome_unknown"], r.Takeovers)
		}
	}
}

// TestTheSameSeedIsTheSameHistory compares two plays of a seed, line by line, and one without a trace.
func TestTheSameSeedIsTheSameHistory(t *testing.T) {
	for seed := range uint64(40) {
		a, b, quiet := Run(seed, Options{Trace: true, Chatter: true}), Run(seed, Options{Trace: true, Chatter: true}),
			Run(seed, Options{})
		if a.Steps != quiet.Steps || a.End != quiet.End {
			t.Errorf("seed %d has %d steps with a trace and %d without", seed, a.Steps, quiet.Steps)
		}
		if !slices.Equal(a.Trace, b.Trace) {
			t.Errorf("seed %d goes differently the second time", seed)
		}
	}
}
