package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The bounds of the proxy of one command.
const (
	maxProxyConns     = 64
	proxyDialTimeout  = 10 * time.Second
	proxyHeaderBytes  = 64 << 10
	proxyHeaderWithin = 10 * time.Second
)

// proxy gives a command its access to the network: an HTTP proxy that connects to the addresses of an allow-list. It
// listens on a socket in the sandbox's own network namespace, so that no other process can use it, and dials from the
// worker's.
//
// A name is resolved once, every address is checked, and the checked address is dialed. So a server that would answer
// differently the second time is not asked twice.
type proxy struct {
	allow   map[string]bool
	private func(string, netip.Addr) bool
	listen  net.Listener
	slots   chan struct{}
	resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	connect func(ctx context.Context, network, address string) (net.Conn, error)
	// answer serves one connection: as a proxy, or as [Policy].Serve does.
	answer func(net.Conn)

	alive context.Context // ends with close
	stop  context.CancelFunc

	mu     sync.Mutex
	open   map[net.Conn]bool
	closed bool
	done   sync.WaitGroup
}

// CheckPlace checks an entry of an allow-list: a host name or address, and a port.
func CheckPlace(place string) error {
	_, err := canonicalPlace(place)
	return err
}

// canonicalPlace is the form in which entries are compared. It accepts only names that a resolver and the comparison
// read in the same way.
func canonicalPlace(place string) (string, error) {
	host, port, err := net.SplitHostPort(place)
	if err != nil {
		return "", fmt.Errorf("%q is no place; write HOST:PORT", place)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", fmt.Errorf("%q has no port from 1 to 65535", place)
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Zone() == "" {
		return net.JoinHostPort(ip.Unmap().String(), strconv.FormatUint(n, 10)), nil
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	const maxName = 253
	wrong := host == "" || len(host) > maxName || strings.Contains(host, "..") || host[0] == '.' || host[0] == '-' ||
		strings.Trim(host, "0123456789.") == ""
	for _, c := range host {
		wrong = wrong || !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_')
	}
	if wrong {
		return "", fmt.Errorf("%q has no host name or address", place)
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

func newProxy(l net.Listener, n Network) (*proxy, error) {
	p := &proxy{allow: map[string]bool{}, private: n.Private, listen: l, slots: make(chan struct{}, maxProxyConns),
		open: map[net.Conn]bool{}}
	p.alive, p.stop = context.WithCancel(context.Background())
	p.answer = p.proxied
	p.connect = (&net.Dialer{}).DialContext
	p.resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	}
	for _, place := range n.Allow {
		c, err := canonicalPlace(place)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrViolation, err)
		}
		p.allow[c] = true
	}
	return p, nil
}

// serve accepts connections until the listener is closed.
func (p *proxy) serve() {
	for {
		conn, err := p.listen.Accept()
		if err != nil {
			return
		}
		select {
		case p.slots <- struct{}{}:
		default:
			_ = conn.Close() // more at once than any command needs
			continue
		}
		if !p.keep(conn) {
			return
		}
		p.done.Go(func() {
			defer func() { <-p.slots }()
			defer p.drop(conn)
			p.answer(conn)
		})
	}
}

// keep records a connection for close; false if the proxy is closed.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return false
	}
	p.open[c] = true
	return true
}

func (p *proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
	_ = c.Close() // both sides got everything
}

// close ends the proxy with all of its connections.
func (p *proxy) close() {
	p.stop()
	_ = p.listen.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.open {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.done.Wait()
}

// proxied serves one request and then connects both ends. One connection goes to one address; a second request on it
// would go there unchecked.
func (p *proxy) proxied(conn net.Conn) {
	if err := conn.SetReadDeadline(time.Now().Add(proxyHeaderWithin)); err != nil {
		return
	}
	limited := &io.LimitedReader{R: conn, N: proxyHeaderBytes}
	from := bufio.NewReader(limited)
	req, err := http.ReadRequest(from)
	if err != nil {
		refuse(conn, http.StatusBadRequest, "the proxy cannot read this request")
		return
	}
	place, tunnel := req.Host, req.Method == http.MethodConnect
	if !tunnel {
		if req.URL.Scheme != "http" || req.URL.Host == "" {
			refuse(conn, http.StatusBadRequest, "this is a proxy; ask it for http:// URLs, or to CONNECT")
			return
		}
		place = req.URL.Host
		if req.URL.Port() == "" {
			place = net.JoinHostPort(req.URL.Hostname(), "80")
		}
	}
	out, why := p.dial(place)
	if why != nil {
		refuse(conn, http.StatusForbidden, why.Error())
		return
	}
	if !p.keep(out) {
		return
	}
	defer p.drop(out)
	if conn.SetReadDeadline(time.Time{}) != nil {
		return
	}
	limited.N = 1 << 62
	if tunnel {
		if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
			return
		}
	} else {
		req.Host = req.URL.Host // the checked host, whatever the header says
		for _, h := range []string{"Proxy-Connection", "Proxy-Authorization"} {
			req.Header.Del(h)
		}
		req.Close = true // the next request is a new connection and is checked
	}
	both := make(chan struct{})
	go func() {
		defer close(both)
		switch {
		case tunnel:
			_, _ = io.Copy(out, from) // either side's end is the end
			halfClose(out)
		case req.Write(out) != nil:
			halfClose(out)
			// The server may have answered already. A connection that is closed before all of it is read may lose what
			// the client has not read yet.
			_, _ = io.Copy(io.Discard, from)
		}
	}()
	_, _ = io.Copy(conn, out)
	halfClose(conn)
	if !tunnel { // the answer is over: the rest of the request is for nobody
		_ = out.Close()
	}
	<-both
}

func halfClose(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.CloseWrite() // the peer may be gone
	}
}

// errNotAllowed is all that a command learns: not whether a name exists, or what it resolves to.
var errNotAllowed = errors.New("this place is not allowed; an operator lists the places that commands can reach")

// dial connects to an address of the allow-list.
func (p *proxy) dial(place string) (net.Conn, error) {
	c, err := canonicalPlace(place)
	if err != nil || !p.allow[c] {
		return nil, errNotAllowed
	}
	host, port, err := net.SplitHostPort(c)
	if err != nil {
		return nil, errNotAllowed
	}
	end := time.Now().Add(proxyDialTimeout)
	ctx, cancel := context.WithDeadline(p.alive, end)
	defer cancel()
	addresses := []netip.Addr{}
	if ip, err := netip.ParseAddr(host); err == nil {
		addresses = append(addresses, ip)
	} else if addresses, err = p.resolve(ctx, host); err != nil {
		return nil, errors.New("the name could not be resolved")
	}
	addresses = slices.DeleteFunc(addresses, func(ip netip.Addr) bool {
		ip = ip.Unmap()
		return !PublicAddress(ip) && (p.private == nil || !p.private(host, ip))
	})
	failed := error(errNotAllowed)
	for i, ip := range addresses {
		share, cancel := context.WithTimeout(ctx, time.Until(end)/time.Duration(len(addresses)-i))
		conn, err := p.connect(share, "tcp", net.JoinHostPort(ip.Unmap().String(), port))
		cancel()
		if err == nil {
			return conn, nil
		}
		failed = errors.New("the place does not answer")
	}
	return nil, failed
}

// refuse answers with a status and closes.
func refuse(conn net.Conn, status int, why string) {
	body := why + "\n"
	_, _ = fmt.Fprintf(conn,
		"HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(body), body) // a peer that has gone needs no answer
}
