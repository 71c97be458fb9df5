//go:build mutants && steady

package sim

import (
	"flag"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/test/sim/fence"
)

var plainHashes = flag.String("plain", "", "the hashes of the first histories, played without mutations")

// TestMutants plays histories of the mutated code: see TestTeeth.
func TestMutants(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	t.Run("all fences stand", func(t *testing.T) {
		fence.Take()
		for seed, hash := range strings.Split(*plainHashes, ",") {
			if got := inMemory(t, uint64(seed), options{}).hash; got != hash {
				t.Errorf("seed %d has the hash %s with the mutations, and %s without: one changes what it should not",
					seed, got, hash)
			}
		}
	})
	before := map[scene]*seenFences{}
	for _, tooth := range teeth {
		if *onlyTooth != "" && tooth.fence != *onlyTooth {
			continue
		}
		t.Run(tooth.fence, func(t *testing.T) { tooth.bite(t, before) })
	}
}

// many is how many histories are enough for every tooth.
const many = 1000

// scene is a history, as far as it is drawn, and the fences that are taken away from it.
type scene struct {
	attack  attack
	seed    uint64
	without string
}

// seenFences says how a history ended, and which of its fences made a difference.
type seenFences struct {
	problems []string
	asked    map[string]bool
}

// play plays a history without some fences.
func (s scene) play(t *testing.T, opt options, without ...string) *seenFences {
	fence.Take(without...)
	opt.attack = s.attack
	r := inMemory(t, s.seed, opt)
	defer fence.Take()
	return &seenFences{r.problems, fence.Asked()}
}

// bite plays histories until one holds with the fence and breaks without it, as it should. Only those are played
// without it in which it makes a difference.
func (tooth tooth) bite(t *testing.T, before map[scene]*seenFences) {
	there := 0
	bites := func(seed uint64) bool {
		s := scene{tooth.attack, seed, strings.Join(tooth.others, ",")}
		with := before[s]
		if with == nil {
			with = s.play(t, options{}, tooth.others...)
			before[s] = with
		}
		if len(with.problems) > 0 {
			if len(tooth.others) == 0 {
				t.Errorf("with all fences, attack %q, seed %d: %s", s.attack, seed, strings.Join(with.problems, "\n"))
			}
			return false
		}
		if tooth.refused == nil && !with.asked[tooth.fence] { // the server is not asked
			return false
		}
		there++
		without := append(slices.Clone(tooth.others), tooth.fence)
		problems := s.play(t, options{refused: tooth.refused}, without...).problems
		for _, p := range problems {
			if name, _, _ := strings.Cut(p, ":"); slices.Contains(tooth.breaks, name) {
				t.Logf("seed %d: %s", seed, p)
				return true
			}
		}
		if len(problems) > 0 {
			t.Logf("seed %d breaks otherwise: %s", seed, problems[0])
		}
		return false
	}
	if bites(tooth.hint) {
		return
	}
	for seed := range *teethSeeds {
		if bites(seed) {
			return
		}
	}
	if tooth.rare && *teethSeeds < many {
		t.Logf("not seen in %d histories; %d should do", *teethSeeds, many)
		return
	}
	t.Errorf("none of %d histories breaks %v without this fence; in %d of them it makes a difference", *teethSeeds,
		tooth.breaks, there)
}
