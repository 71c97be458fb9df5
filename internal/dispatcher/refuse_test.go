package dispatcher

import (
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker/membroker"
	"github.com/toolyard/toolyard/internal/registry"
)

// TestARefusalTakesThePlaceOfThePlan: a dispatcher that is slow would plan a batch, and another one, which does not
// know a tool that a rule names, refuses it meanwhile. Nothing of the batch runs.
func TestARefusalTakesThePlaceOfThePlan(t *testing.T) {
	inYard(t, func(y *yard) {
		y.Server.Hold(func(s membroker.Step) bool {
			return s.Party == "slow" &&
				(strings.Contains(s.What, "PUB ty.event.") || strings.Contains(s.What, "$JS.ACK."))
		})
		y.dispatcher("slow")
		y.settle()
		k := y.submitBatch(toolyard.Batch{Calls: []toolyard.Call{{Tool: "write"}},
			Options: toolyard.Options{Deny: []string{"read"}}})
		y.settle()
		y.dispatcher("quick", func(c *Config) {
			c.Base = nil
			for _, e := range y.entries() {
				if e.Name != "read" {
					c.Base = append(c.Base, registry.Entry(e))
				}
			}
		})
		y.Eventually("the batch is refused", func() bool {
			replies, err := y.b.Replies(y.Context(), k, 0)
			return err == nil && len(replies) == 1
		})
		y.Server.Hold(nil)
		y.settle()
		if s := y.fold(k); s.Plan != nil {
			y.Errorf("it was refused, and planned by %s", s.Owner)
		}
	})
}
