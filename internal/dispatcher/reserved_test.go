package dispatcher

import (
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker/membroker"
	"github.com/toolyard/toolyard/internal/registry"
)

// TestAReservationForALaterGroup: a dispatcher that did not know the tool of the first call has reserved a ticket for
// the second group, and died before its plan was stored. The next one knows the tool, and its plan begins with the
// first group.
func TestAReservationForALaterGroup(t *testing.T) {
	inYard(t, func(y *yard) {
		y.Server.Hold(func(s membroker.Step) bool {
			return s.Party == "early" && strings.Contains(s.What, "PUB ty.event.")
		})
		y.dispatcher("early", func(c *Config) {
			c.Base = nil
			for _, e := range y.entries() {
				if e.Name != "read" {
					c.Base = append(c.Base, registry.Entry(e))
				}
			}
		})
		k := y.submit("read", "write")
		y.Eventually("a ticket is reserved for the second group", func() bool {
			q, err := y.b.Tickets(y.Context(), toolyard.DefaultWorkspace)
			return err == nil && len(q.Tickets) == 1 && q.Tickets[0].Group == 1
		})
		y.Server.Cut("early") // for good
		y.Server.Hold(nil)
		y.dispatcher("d")
		y.work()
		if got := y.codes(k); got != "ok ok" {
			y.Errorf("the results are %s", got)
		}
		if n := y.fold(k).Takeovers; n > 0 {
			y.Errorf("it had %d more owners", n)
		}
	})
}
