package sim

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestTeeth takes away one fence at a time: some history then breaks an invariant that the fence is for.
//
// The fences are code without switches. So this test makes mutated copies of that code, in which each fence can be
// taken away, builds this package with them, and lets TestMutants there do the rest.
func TestTeeth(t *testing.T) {
	known := slices.ContainsFunc(teeth, func(x tooth) bool { return x.fence == *onlyTooth })
	if *onlyTooth != "" && !known || *teethSeeds == 0 {
		t.Fatalf("-tooth %q -teeth %d: want one of the fences, and one history at least", *onlyTooth, *teethSeeds)
	}
	file := filepath.Join(t.TempDir(), "sums")
	err := again(t, t.Output(), built(t, "steady"), "TestSimulation", fmt.Sprint("-seeds=", sameSeeds), "-twice=0",
		"-sums="+file)
	must.OK(t, err)
	data := must.Read(t, file)
	var plain sums
	must.OK(t, json.Unmarshal(data, &plain))
	mutants := built(t, "steady,mutants", mutations(teeth)...)
	plainly := "-plain=" + strings.Join(plain.Hashes, ",")
	if err := again(t, os.Stdout, mutants, "TestMutants", "-test.v", plainly); err != nil {
		t.Error(err)
	}
}

// sameSeeds is how many histories are played with and without the mutations, while all fences stand.
const sameSeeds = 5
