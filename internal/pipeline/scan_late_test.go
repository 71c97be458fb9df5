package pipeline

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestAScannerThatIsTooLate: what a scanner finds when nobody waits for it any more changes nothing: the output, and
// what the tool says of its failure, stay withheld.
func TestAScannerThatIsTooLate(t *testing.T) {
	for name, err := range map[string]error{"success": nil, "failure": errBoom} {
		synctest.Test(t, func(t *testing.T) {
			var began atomic.Bool
			released := false
			release := make(chan struct{})
			r := newRig(returns("the output", err), scans("secrets=strip"))
			r.Redact = func(text string) string {
				switch {
				case text == "the output" && began.CompareAndSwap(false, true):
					<-release
				case began.Load() && !released: // it was given up, and the call goes on: now it comes to its end
					released = true
					close(release)
					synctest.Wait()
				}
				return text
			}
			res := r.result(t)
			if !released || strings.Contains(res.Text(), "the output") || strings.Contains(res.Text(), "boom") {
				t.Errorf("%s: %q", name, res.Text())
			}
		})
	}
}
