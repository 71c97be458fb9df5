package natsbroker_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/testenv"
)

// TestLongResultsThatShareAPiece: workers with accounts of their own store long results of the same beginning at a
// time, and all are stored.
func TestLongResultsThatShareAPiece(t *testing.T) {
	_, s := guardedArchiveYard(t)
	begin := strings.Repeat("x", 512<<10) // one piece
	var storing sync.WaitGroup
	for n := range 4 {
		w := testenv.BrokerAs(t, s, access.Principal{Role: access.Worker, Name: "p"}, fmt.Sprint("/worker/w", n))
		storing.Go(func() {
			for m := range 5 {
				if _, err := w.PutResult(t.Context(), "a",
					fmt.Appendf(nil, "%s the end of %d of worker %d", begin, m, n)); err != nil {
					t.Errorf("worker %d, result %d: %v", n, m, err)
				}
			}
		})
	}
	storing.Wait()
}
