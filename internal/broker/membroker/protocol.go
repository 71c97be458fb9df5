package membroker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The verbs of operations. opClose and opError do not stand on the wire: the client has closed its side, or has broken
// the protocol.
const (
	opConnect = "CONNECT"
	opPing    = "PING"
	opPong    = "PONG"
	opSub     = "SUB"
	opUnsub   = "UNSUB"
	opPub     = "PUB"
	opHPub    = "HPUB"
	opClose   = "CLOSE"
	opError   = "ERROR"
)

// op is one operation of a client.
type op struct {
	verb                       string
	subject, reply, queue, sid string
	max                        int // of UNSUB; 0: at once
	hdr, data                  []byte
	arrived                    uint64
	what                       string // as its step says it, from when it has arrived
}

// protocolError is an error of the protocol, in nats-server's words.
type protocolError string

func (e protocolError) Error() string { return string(e) }

const (
	errUnknownOp  = protocolError("Unknown Protocol Operation")
	errParse      = protocolError("Parser Error")
	errMaxPayload = protocolError("Maximum Payload Violation")
	errSubject    = protocolError("Invalid Subject")
)

// parser makes operations of bytes in any pieces.
type parser struct {
	buf  []byte
	head *op // of a message whose payload is not there yet
	hdr  int // bytes of headers of it
	size int // bytes of headers and data
}

// parse takes in bytes and returns the operations that are complete. After an error it must not be called again.
func (p *parser) parse(b []byte, maxPayload int) (ops []*op, err error) {
	p.buf = append(p.buf, b...)
	for {
		if p.head != nil {
			if len(p.buf) < p.size+2 {
				return ops, nil
			}
			if string(p.buf[p.size:p.size+2]) != "\r\n" {
				return ops, errParse
			}
			if p.hdr > 0 {
				p.head.hdr = bytes.Clone(p.buf[:p.hdr])
			}
			p.head.data = bytes.Clone(p.buf[p.hdr:p.size])
			p.buf = p.buf[p.size+2:]
			ops, p.head = append(ops, p.head), nil
			continue
		}
		line, rest, ok := bytes.Cut(p.buf, []byte("\r\n"))
		if !ok {
			if len(p.buf) > maxLineBytes && !bytes.HasPrefix(p.buf, []byte(opConnect)) {
				return ops, errParse
			}
			return ops, nil
		}
		p.buf = rest
		o, err := p.line(string(line))
		if err != nil {
			return ops, err
		}
		if o.verb == opPub || o.verb == opHPub {
			if p.size > maxPayload {
				return ops, errMaxPayload
			}
			p.head = o
			continue
		}
		ops = append(ops, o)
	}
}

// line reads one line of the protocol.
func (p *parser) line(line string) (*op, error) {
	verb, rest, _ := strings.Cut(line, " ")
	verb = strings.ToUpper(verb)
	o, args := &op{verb: verb}, strings.Fields(rest)
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return -1
		}
		return n
	}
	switch verb {
	case opPing, opPong:
		return o, nil
	case opConnect:
		o.data = []byte(rest)
		return o, nil
	case opSub:
		switch len(args) {
		case 2:
			o.subject, o.sid = args[0], args[1]
		case 3:
			o.subject, o.queue, o.sid = args[0], args[1], args[2]
		default:
			return nil, errParse
		}
		return o, nil
	case opUnsub:
		if len(args) == 0 || len(args) > 2 {
			return nil, errParse
		}
		if o.sid = args[0]; len(args) == 2 {
			o.max = max(number(args[1]), 0)
		}
		return o, nil
	case opPub, opHPub:
		sizes := 1
		if verb == opHPub {
			sizes = 2
		}
		switch len(args) - sizes {
		case 1:
			o.subject = args[0]
		case 2:
			o.subject, o.reply = args[0], args[1]
		default:
			return nil, errParse
		}
		p.hdr, p.size = 0, number(args[len(args)-1])
		if sizes == 2 {
			p.hdr = number(args[len(args)-2])
		}
		if p.size < 0 || p.hdr < 0 || p.hdr > p.size {
			return nil, errParse
		}
		return o, nil
	}
	return nil, errUnknownOp
}

const (
	serverName    = "membroker"
	serverVersion = "2.15.2" // the nats-server that it does as
)

// info is the first thing that a client reads.
func (s *Server) info() []byte {
	data, err := json.Marshal(map[string]any{
		"server_id": serverName, "server_name": serverName, "version": serverVersion, "proto": 1, "go": "go",
		"host": "127.0.0.1", "port": 4222, "headers": true, "max_payload": s.opts.MaxPayload, "jetstream": true,
	})
	if err != nil {
		panic(err) // constants
	}
	return fmt.Appendf(nil, "INFO %s\r\n", data)
}

// shakeHands answers until the client's first PING.
func (c *conn) shakeHands(o *op) {
	switch o.verb {
	case opConnect:
		asked := struct {
			Echo         bool `json:"echo"`
			NoResponders bool `json:"no_responders"`
		}{Echo: true}
		if err := json.Unmarshal(o.data, &asked); err != nil {
			c.feed(fmt.Appendf(nil, "-ERR '%s'\r\n", errParse))
			c.drop()
			return
		}
		c.echo, c.noResponders = asked.Echo, asked.NoResponders
	case opPing:
		c.greeted = true
		c.feed([]byte("PONG\r\n"))
	}
}

// do performs an operation.
func (c *conn) do(o *op) {
	switch o.verb {
	case opPing:
		c.send(opPong, "", []byte("PONG\r\n"))
	case opSub:
		c.subscribe(o)
	case opUnsub:
		c.unsubscribe(o)
	case opPub, opHPub: // the subject may have wildcards: nats-server only minds if the client asks for that
		m := &message{subject: o.subject, reply: o.reply, hdr: o.hdr, data: o.data}
		if lens := c.s.opts.Lens; lens != nil {
			m.hdr, m.data = lens(c.party.name, true, m.subject, m.hdr, m.data)
		}
		c.s.publish(c, m)
	case opClose:
		c.forget()
	case opError:
		c.refuse(errors.New(string(o.data)))
		if string(o.data) != errSubject.Error() {
			c.hangUp()
		}
	}
}

func (c *conn) refuse(why error) { c.send("-ERR", "", fmt.Appendf(nil, "-ERR '%s'\r\n", why)) }

// hangUp closes the connection behind what is on its way.
func (c *conn) hangUp() {
	for len(c.out) > 0 {
		c.deliver()
	}
	rest := c.buf
	c.forget()
	c.broken, c.buf = true, rest
	c.tell()
}
