package sim

import (
	"fmt"
	"testing"
)

func TestSurvey(t *testing.T) {
	n := map[string]int{}
	first := map[string]string{}
	for i := range *seeds {
		func() {
			defer func() {
				if p := recover(); p != nil {
					n["panic"]++
					first["panic"] += fmt.Sprintf("\n   seed %d %v", i, p)
				}
			}()
			if r := Run(i, Options{}); r.Failure != nil {
				k := r.Failure.Invariant
				n[k]++
				if n[k] <= 8 {
					first[k] += fmt.Sprintf("\n   seed %d (%d steps): %.300s", i, r.Steps, r.Failure.Error())
				}
			}
		}()
	}
	for k := range n {
		t.Logf("%s: %d%s", k, n[k], first[k])
	}
}
