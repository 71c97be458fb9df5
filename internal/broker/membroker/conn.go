package membroker

import (
	"cmp"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// conn is one connection. It is the net.Conn that the client holds, and what the server knows of it. The server's lock
// guards it.
type conn struct {
	s      *Server
	party  *party
	number int // among those of its party, from 1

	parser  parser
	greeted bool  // the handshake is over
	in      []*op // what the client has sent, and was not performed yet
	ordered int   // how many of them stand in their order; see order.go
	out     []*outgoing
	waiting int // bytes in out

	echo, noResponders bool

	subs []*sub // in the order in which they were made

	gone     bool   // the server has forgotten it
	broken   bool   // neither side can use it any more
	buf      []byte // what the client may read
	readable chan struct{}
	deadline time.Time
	expired  *time.Timer
}

// outgoing is one message of the protocol on its way to a client.
type outgoing struct {
	verb, subject string
	bytes         []byte
	late          bool // it was held back at the server
	arrived       uint64
	what          string // as its step says it, from when it has arrived
}

// connect makes a connection of a party. The handshake is answered at once, without a step, since nats.go holds a lock
// that its callers wait for while it shakes hands.
func (s *Server) connect(p *party) *conn {
	p.conns++
	c := &conn{s: s, party: p, number: p.conns, readable: make(chan struct{}, 1)}
	i, _ := slices.BinarySearchFunc(s.conns, c, func(a, b *conn) int {
		return cmp.Or(cmp.Compare(a.party.name, b.party.name), cmp.Compare(a.number, b.number))
	})
	s.conns = slices.Insert(s.conns, i, c)
	c.feed(s.info())
	return c
}

// feed makes bytes readable.
func (c *conn) feed(b []byte) {
	if !c.broken {
		c.buf = append(c.buf, b...)
		c.tell()
	}
}

func (c *conn) tell() {
	select {
	case c.readable <- struct{}{}:
	default:
	}
}

// send puts a message on its way to the client.
func (c *conn) send(verb, subject string, b []byte) {
	if c.gone {
		return
	}
	if o := (&outgoing{verb: verb, subject: subject, bytes: b}); c.shape(o) {
		c.enqueue(o)
	}
}

func (c *conn) enqueue(o *outgoing) {
	if c.gone {
		return
	}
	if c.waiting += len(o.bytes); c.waiting > maxPendingBytes {
		c.s.fail("more than %d bytes wait to be delivered to %s", maxPendingBytes, c.party.name)
	}
	c.out = append(c.out, o)
	c.s.signal()
}

// deliver hands the first message on its way to the client.
func (c *conn) deliver() {
	o := c.out[0]
	c.out = c.out[1:]
	c.waiting -= len(o.bytes)
	c.feed(o.bytes)
	if strings.HasPrefix(o.subject, inboxPrefix) {
		c.s.js.arrived(o.subject)
	}
}

// perform performs the first operation of the client.
func (c *conn) perform() {
	o := c.in[0]
	c.in = c.in[1:]
	c.ordered--
	c.do(o)
}

// forget takes the connection out of the server: what the client had subscribed to is gone. What is on its way still
// arrives, as long as the connection is not broken.
func (c *conn) forget() {
	if c.gone {
		return
	}
	c.gone = true
	c.in, c.out, c.subs, c.ordered = nil, nil, nil, 0
	c.s.conns = slices.DeleteFunc(c.s.conns, func(o *conn) bool { return o == c })
	c.s.js.interestGone()
}

// drop breaks the connection. What was on its way in either direction is lost.
func (c *conn) drop() {
	c.broken, c.buf = true, nil
	c.tell()
	c.gone = true
	c.in, c.out, c.subs, c.ordered = nil, nil, nil, 0
}

// Read blocks until the server has delivered something.
func (c *conn) Read(b []byte) (int, error) {
	for {
		c.s.mu.Lock()
		n := copy(b, c.buf)
		c.buf = c.buf[n:]
		more, broken, late := len(c.buf) > 0, c.broken, !c.deadline.IsZero() && !c.s.now().Before(c.deadline)
		if more || broken || late {
			c.tell() // for the next read
		}
		c.s.mu.Unlock()
		switch {
		case n > 0:
			return n, nil
		case broken:
			return 0, io.EOF
		case late:
			return 0, os.ErrDeadlineExceeded
		}
		<-c.readable
	}
}

// Write takes all, and never blocks.
func (c *conn) Write(b []byte) (int, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.broken {
		return 0, io.ErrClosedPipe
	}
	ops, err := c.parser.parse(b, c.s.opts.MaxPayload)
	for _, o := range ops {
		if !c.greeted {
			c.shakeHands(o)
			continue
		}
		c.push(o)
	}
	if err != nil {
		c.push(&op{verb: opError, data: []byte(err.Error())})
	}
	return len(b), nil
}

func (c *conn) push(o *op) {
	if c.gone {
		return
	}
	if c.in = append(c.in, o); len(c.in) > maxPendingOps {
		c.s.fail("more than %d operations of %s wait to be performed", maxPendingOps, c.party.name)
	}
	c.s.signal()
}

// Close closes the client's side. What it has sent before is still performed.
func (c *conn) Close() error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.broken {
		return nil
	}
	c.broken, c.buf = true, nil
	c.tell()
	c.push(&op{verb: opClose})
	return nil
}

// LocalAddr returns the party's name.
func (c *conn) LocalAddr() net.Addr { return addr(c.party.name) }

// RemoteAddr returns the server's name.
func (c *conn) RemoteAddr() net.Addr { return addr(serverName) }

// SetDeadline sets when a read that finds nothing fails. Writes do not block.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline sets when a read that finds nothing fails.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.expired != nil {
		c.expired.Stop()
		c.expired = nil
	}
	if c.deadline = t; !t.IsZero() {
		c.expired = time.AfterFunc(time.Until(t), c.tell)
	}
	return nil
}

// SetWriteDeadline does nothing: writes do not block.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

type addr string

func (addr) Network() string  { return "membroker" }
func (a addr) String() string { return string(a) }
