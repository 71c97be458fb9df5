//go:build unix

package faults

import (
	"net"
	"sync"
	"testing"
)

// gate is what stands in the way of connections, and can be shut: as a whole, or for what goes in one direction.
type gate struct {
	there, back valve // from who dials to who is dialled, and back
	mu          sync.Mutex
	conns       []net.Conn
}

// valve is one direction of a gate.
type valve struct {
	mu     sync.Mutex
	closed chan struct{} // closed when it is open again; nil while it is open
}

// shut lets nothing through any more; what was on its way comes when it is open again.
func (v *valve) shut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed == nil {
		v.closed = make(chan struct{})
	}
}

func (v *valve) open() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed != nil {
		close(v.closed)
		v.closed = nil
	}
}

// pass waits while the valve is shut.
func (v *valve) pass() {
	v.mu.Lock()
	closed := v.closed
	v.mu.Unlock()
	if closed != nil {
		<-closed
	}
}

// to returns the address of the gate to a server.
func (g *gate) to(t testing.TB, target string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.Close()
		g.open()
		g.drop()
	})
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return // it was closed
			}
			go g.connect(near, target)
		}
	}()
	return "nats://" + l.Addr().String()
}

// connect connects who dials with who is dialled, which takes both directions.
func (g *gate) connect(near net.Conn, target string) {
	g.there.pass()
	g.back.pass()
	far, err := net.Dial("tcp", target)
	if err != nil {
		_ = near.Close()
		return
	}
	g.mu.Lock()
	g.conns = append(g.conns, near, far)
	g.mu.Unlock()
	go carry(far, near, &g.there)
	go carry(near, far, &g.back)
}

// carry carries what comes, while the valve is open.
func carry(to, from net.Conn, v *valve) {
	defer to.Close()   //nolint:errcheck // the other side sees it
	defer from.Close() //nolint:errcheck // as does this one
	for buffer := make([]byte, 64<<10); ; {
		n, err := from.Read(buffer)
		v.pass()
		if n > 0 {
			if _, werr := to.Write(buffer[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// shut lets nothing through any more; what was on its way comes when it is open again, or never if the connections are
// dropped.
func (g *gate) shut(drop bool) {
	g.there.shut()
	g.back.shut()
	if drop {
		g.drop()
	}
}

func (g *gate) open() {
	g.there.open()
	g.back.open()
}

// drop closes the connections.
func (g *gate) drop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		_ = c.Close()
	}
	g.conns = nil
}
