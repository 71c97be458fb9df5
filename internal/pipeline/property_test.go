package pipeline

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/toolyard/toolyard"
)

func TestTableIsTheTwelvePhasesInOrder(t *testing.T) {
	var got []toolyard.Phase
	for i := range table {
		got = append(got, table[i].phase)
		for _, code := range table[i].codes {
			if !slices.Contains(toolyard.Codes, code) {
				t.Errorf("%s lists %q, which is no code", table[i].phase, code)
			}
		}
	}
	if !slices.Equal(got, toolyard.Phases) {
		t.Errorf("got %q", got)
	}
	if codes := PhaseCodes(toolyard.PhaseSchedule); len(codes) != 3+len(interruptions) {
		t.Errorf("schedule: %q", codes)
	}
	if PhaseCodes("nope") != nil || len(PhaseCodes(toolyard.PhaseEmitTerminal)) != 0 {
		t.Error("codes out of nowhere")
	}
}

// fake replaces what the rows of a pipeline do and keeps their order, codes and conditions.
func fake(p *Pipeline, run func(phase toolyard.Phase, c *call, ctx context.Context) finding) {
	p.rows = slices.Clone(table)
	for i := range p.rows {
		phase, real := p.rows[i].phase, p.rows[i].run
		p.rows[i].run = func(c *call, ctx context.Context) finding {
			if f := run(phase, c, ctx); f != (finding{}) {
				if phase == toolyard.PhaseExecute { // it starts and then fails
					real(c, ctx)
				}
				return f
			}
			return real(c, ctx)
		}
	}
}

// TestAnyPhaseMayFail: whatever phases fail, with whatever code, in whatever way, there is exactly one failed fact,
// it has the result's code, emit_terminal is last and post_hooks ran if and only if execute did (checkInvariants).
func TestAnyPhaseMayFail(t *testing.T) {
	codes := append(slices.Clone(toolyard.Codes), "", "made_up")
	for seed := range uint64(2_000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r := newRig()
		failing := map[toolyard.Phase]int{}
		for range 1 + rnd.IntN(3) {
			failing[toolyard.Phases[rnd.IntN(len(toolyard.Phases))]] = rnd.IntN(3)
		}
		code := codes[rnd.IntN(len(codes))]
		fake(r.Pipeline, func(phase toolyard.Phase, _ *call, _ context.Context) finding {
			switch how, ok := failing[phase]; {
			case !ok:
			case how == 0:
				panic("boom")
			default:
				return failed(code, "it failed", "because")
			}
			return finding{}
		})
		res := r.result(t)
		first := toolyard.Phase("")
		for i := range table {
			if how, ok := failing[table[i].phase]; ok {
				first = table[i].phase
				want := code
				if how == 0 || !table[i].allows(code) || !code.IsError() {
					want = toolyard.InternalError
				}
				if res.Code != want {
					t.Errorf("%s ended with %q, want %q", first, res.Code, want)
				}
				break
			}
		}
		if got := phaseOf(res); got != first {
			t.Errorf("it failed in %q, want %q", got, first)
		}
		if t.Failed() {
			t.Fatalf("seed %d: %v with %q: %+v", seed, failing, code, res)
		}
	}
}

// TestEveryPhaseWithEveryCode: a phase that ends with a code which is not its own has a bug, and the result says so.
func TestEveryPhaseWithEveryCode(t *testing.T) {
	for i := range table {
		for _, code := range append(slices.Clone(toolyard.Codes), "", "made_up") {
			r := newRig()
			fake(r.Pipeline, func(phase toolyard.Phase, _ *call, _ context.Context) finding {
				if phase == table[i].phase {
					return failed(code, "it failed", "because")
				}
				return finding{}
			})
			want := toolyard.InternalError
			if slices.Contains(PhaseCodes(table[i].phase), code) {
				want = code
			}
			if code == toolyard.ResultRedacted { // a remark ends nothing
				want = toolyard.InternalError
			}
			if res := r.result(t); res.Code != want {
				t.Errorf("%s with %q ended as %q, want %q", table[i].phase, code, res.Code, want)
			}
		}
	}
}

func TestABugInTheLoopIsAResult(t *testing.T) {
	r := newRig()
	n := 0
	r.Now = nil
	fake(r.Pipeline, func(toolyard.Phase, *call, context.Context) finding { n++; return finding{} })
	r.rows[3].run = nil
	if res := r.result(t); res.Code != toolyard.InternalError || n == 0 {
		t.Errorf("%q", res.Code)
	}
}
