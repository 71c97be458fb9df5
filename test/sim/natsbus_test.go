package sim

import (
	"net"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/broker/membroker"
	"github.com/toolyard/toolyard/internal/testenv"
)

// realBus is a real nats-server in this process. It shows that the parties and the checks are right, in real time.
type realBus struct{ address string }

func newRealBus(t testing.TB) *realBus {
	return &realBus{address: strings.TrimPrefix(testenv.Server(t).ClientURL(), "nats://")}
}

func (b *realBus) dial(string) (net.Conn, error) { return net.Dial("tcp", b.address) }

func (b *realBus) server() *membroker.Server { return nil }
