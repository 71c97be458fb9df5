//go:build unix

package faults

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// frame is one operation of the NATS protocol. Only operations that carry a message have more than a line.
type frame struct {
	line    []byte // with its end
	op      string
	subject string
	reply   string
	header  int    // how much of body the header is
	body    []byte // header and payload, without their end
}

// payload is the message without its header.
func (f *frame) payload() []byte { return f.body[f.header:] }

// headerValue is a value of the header, "" if it has none of that name.
func (f *frame) headerValue(name string) string {
	_, fields, _ := bytes.Cut(f.body[:f.header], []byte("\r\n"))
	for line := range bytes.SplitSeq(fields, []byte("\r\n")) {
		if k, v, ok := bytes.Cut(line, []byte(":")); ok && strings.EqualFold(string(k), name) {
			return textproto.TrimString(string(v))
		}
	}
	return ""
}

// readFrame reads the next operation.
func readFrame(r *bufio.Reader) (*frame, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	f := &frame{line: line}
	words := strings.Fields(string(line))
	if len(words) == 0 {
		return f, nil
	}
	f.op = strings.ToUpper(words[0])
	args := words[1:]
	sizes := 1 // the numbers at the end: of the header, and of all
	switch f.op {
	case "HPUB", "HMSG":
		sizes = 2
	case "PUB", "MSG":
	default:
		return f, nil
	}
	if len(args) < 1+sizes {
		return nil, fmt.Errorf("%q is no operation of NATS", line)
	}
	names, numbers := args[:len(args)-sizes], args[len(args)-sizes:]
	f.subject = names[0]
	if strings.HasSuffix(f.op, "MSG") {
		names = names[1:] // the subscription's number
	}
	if len(names) > 1 {
		f.reply = names[len(names)-1]
	}
	total, err := strconv.Atoi(numbers[sizes-1])
	if err == nil && sizes == 2 {
		f.header, err = strconv.Atoi(numbers[0])
	}
	if err != nil || total < f.header {
		return nil, fmt.Errorf("%q is no operation of NATS", line)
	}
	f.body = make([]byte, total)
	if _, err := io.ReadFull(r, f.body); err != nil {
		return nil, err
	}
	end := make([]byte, 2)
	if _, err := io.ReadFull(r, end); err != nil {
		return nil, err
	}
	return f, nil
}

// writeTo writes the operation as it was read.
func (f *frame) writeTo(w *bufio.Writer) error {
	_, err := w.Write(f.line)
	if f.body != nil && err == nil {
		if _, err = w.Write(f.body); err == nil {
			_, err = w.WriteString("\r\n")
		}
	}
	return err
}

// lost decides which messages of one connection are lost on the way.
type lost interface {
	// toServer and toClient report whether a message is to be lost.
	toServer(f *frame) bool
	toClient(f *frame) bool
}

// proxy stands between clients and a NATS server, on this machine.
type proxy struct {
	url     string
	target  string
	l       net.Listener
	losing  func() lost // for each connection
	running sync.WaitGroup
	mu      sync.Mutex
	conns   []net.Conn
}

// proxyTo starts a proxy in front of a server.
func proxyTo(t testing.TB, target string, losing func() lost) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{url: "nats://" + l.Addr().String(), target: target, l: l, losing: losing}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			_ = c.Close() // whoever reads or writes it ends
		}
		p.mu.Unlock()
		p.running.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		client, err := p.l.Accept()
		if err != nil {
			return // it was closed
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		lost := p.losing()
		p.running.Go(func() { pass(client, server, lost.toServer) })
		p.running.Go(func() { pass(server, client, lost.toClient) })
	}
}

// pass passes operations on, until one side closes.
func pass(from, to net.Conn, lost func(*frame) bool) {
	defer func() {
		_ = from.Close()
		_ = to.Close()
	}()
	r, w := bufio.NewReaderSize(from, 64<<10), bufio.NewWriterSize(to, 64<<10)
	for {
		f, err := readFrame(r)
		if err != nil {
			return
		}
		if f.body != nil && lost(f) {
			continue
		}
		if err := f.writeTo(w); err != nil {
			return
		}
		if r.Buffered() == 0 {
			if err := w.Flush(); err != nil {
				return
			}
		}
	}
}

// onceLost remembers what was lost once, for all connections through a proxy.
type onceLost struct {
	mu    sync.Mutex
	known map[string]bool
	n     int // how many messages were lost
}

// first reports whether something is seen for the first time.
func (o *onceLost) first(what string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known == nil {
		o.known = map[string]bool{}
	}
	if o.known[what] {
		return false
	}
	o.known[what] = true
	o.n++
	return true
}

func (o *onceLost) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n
}

// ackLost loses the answer to each publish to a stream once, and to each final acknowledgement of a delivery: the
// message itself arrives. A publish is known again by the id of its event, or else by what it says.
type ackLost struct {
	once *onceLost
	mu   sync.Mutex
	sent map[string]string // what was published, by the subject of its answer
}

func (a *ackLost) toServer(f *frame) bool {
	stored := strings.HasPrefix(f.subject, "$KV.") || strings.HasPrefix(f.subject, "$O.") ||
		strings.HasPrefix(f.subject, "$JS.ACK.") && string(f.payload()) == "+ACK"
	for _, prefix := range []string{"ty.batch.", "ty.event.", "ty.call.", "ty.reply."} {
		stored = stored || strings.HasPrefix(f.subject, prefix)
	}
	if f.reply == "" || !stored {
		return false
	}
	what := f.headerValue("ce-id")
	switch {
	case what != "":
	case strings.HasPrefix(f.subject, "$O.ty_blob.C."): // a repeated part of an object has another subject
		what = fmt.Sprintf("object %x", sha256.Sum256(f.payload()))
	case strings.HasPrefix(f.subject, "$O."): // and the object's entry says another time
		what = f.subject
	default:
		what = fmt.Sprintf("%s %x", f.subject, sha256.Sum256(f.payload()))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent[f.reply] = what
	return false
}

func (a *ackLost) toClient(f *frame) bool {
	a.mu.Lock()
	what, ok := a.sent[f.subject]
	delete(a.sent, f.subject)
	a.mu.Unlock()
	return ok && a.once.first(what)
}

// progressLost loses the first sign of life of each delivery.
type progressLost struct{ once *onceLost }

func (p progressLost) toServer(f *frame) bool {
	return strings.HasPrefix(f.subject, "$JS.ACK.") && string(f.payload()) == "+WPI" && p.once.first(f.subject)
}

func (p progressLost) toClient(*frame) bool { return false }

// TestFrames: the proxy reads what clients and servers write, and passes it on unchanged.
func TestFrames(t *testing.T) {
	for text, want := range map[string]frame{
		"PING\r\n":                 {op: "PING"},
		"SUB a.* 1\r\n":            {op: "SUB"},
		"PUB a 2\r\nhi\r\n":        {op: "PUB", subject: "a", body: []byte("hi")},
		"PUB a _INBOX.1 0\r\n\r\n": {op: "PUB", subject: "a", reply: "_INBOX.1", body: []byte{}},
		"MSG a 7 2\r\n\r\n\r\n":    {op: "MSG", subject: "a", body: []byte("\r\n")},
		"MSG a 7 b 2\r\nhi\r\n":    {op: "MSG", subject: "a", reply: "b", body: []byte("hi")},
		"hpub a b 22 24\r\nNATS/1.0\r\nCe-Id: x\r\n\r\nhi\r\n": {op: "HPUB", subject: "a", reply: "b", header: 22,
			body: []byte("NATS/1.0\r\nCe-Id: x\r\n\r\nhi")},
		"HMSG a 7 22 22\r\nNATS/1.0\r\nce-id: x\r\n\r\n\r\n": {op: "HMSG", subject: "a", header: 22,
			body: []byte("NATS/1.0\r\nce-id: x\r\n\r\n")},
	} {
		r := bufio.NewReader(strings.NewReader(text + "PONG\r\n"))
		f, err := readFrame(r)
		if err != nil || f.op != want.op || f.subject != want.subject || f.reply != want.reply ||
			f.header != want.header || !bytes.Equal(f.body, want.body) {
			t.Errorf("%q is read as %+v, %v", text, f, err)
			continue
		}
		if f.header > 0 && f.headerValue("ce-id") != "x" {
			t.Errorf("%q has the id %q", text, f.headerValue("ce-id"))
		}
		var out bytes.Buffer
		w := bufio.NewWriter(&out)
		if err := errors.Join(f.writeTo(w), w.Flush()); err != nil || out.String() != text {
			t.Errorf("%q is passed on as %q, %v", text, out.String(), err)
		}
		if next, err := readFrame(r); err != nil || next.op != "PONG" {
			t.Errorf("behind %q stands %+v, %v", text, next, err)
		}
	}
	for _, text := range []string{"PUB\r\n", "PUB a x\r\n", "HPUB a 9 1\r\nx\r\n", "PUB a 5\r\nhi\r\n", "PING"} {
		if f, err := readFrame(bufio.NewReader(strings.NewReader(text))); err == nil {
			t.Errorf("%q is read as %+v", text, f)
		}
	}
}
