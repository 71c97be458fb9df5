package sim

import (
	"testing"
)

func TestSurvey2(t *testing.T) {
	for f := range fenceCount {
		n := map[string]int{}
		first := map[string]uint64{}
		runs := *seeds
		total := 0
		for i := range runs {
			if r := Run(i, Options{Without: []Fence{f}}); r.Failure != nil {
				k := r.Failure.Invariant
				n[k]++
				total++
				if n[k] == 1 {
					first[k] = i
				}
				if total > 40 {
					break
				}
			}
		}
		t.Logf("%d %v: %v first %v\n", f, f, n, first)
	}
}
