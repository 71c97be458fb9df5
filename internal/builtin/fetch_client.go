package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/toolyard/toolyard/tool"
)

// fetcher gets pages from allowed addresses. It keeps nothing between calls: no cookies, no open connections, and no
// proxy from the environment (which would resolve names without the check).
type fetcher struct {
	allowed allowed
	// lookup resolves a host name.
	lookup  func(ctx context.Context, host string) ([]netip.Addr, error)
	timeout time.Duration
	client  *http.Client
}

func newFetcher(a allowed) *fetcher {
	f := &fetcher{allowed: a, timeout: FetchTimeout}
	f.lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	}
	f.client = &http.Client{
		CheckRedirect: f.checkRedirect,
		Transport: &http.Transport{
			Proxy:                  nil,
			DialContext:            f.dial,
			DisableKeepAlives:      true,
			ForceAttemptHTTP2:      true,
			TLSHandshakeTimeout:    DialTimeout,
			MaxResponseHeaderBytes: MaxFetchHeader,
		},
	}
	return f
}

// private is the error of an address that is not allowed. It does not repeat the address, because a model must not
// learn where a name or a redirect leads inside a network.
func private(what string) error {
	return tool.Violation("%s leads to a private or local address, and this worker fetches from public ones only", what)
}

// checkURL returns an error if a URL must not be fetched, as far as its text tells; what names the URL in messages.
// dial checks the address of a host name.
func (f *fetcher) checkURL(u *url.URL, what string) error {
	host := u.Hostname()
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return tool.Invalid("%s must begin with http:// or https://", what)
	case u.User != nil:
		return tool.Invalid("%s holds a user name or password; leave them out: this tool fetches public pages only",
			what)
	case u.Opaque != "" || host == "":
		return tool.Invalid("%s names no host", what)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return tool.Invalid("%s has the port %s; ports go from 1 to 65535", what, show(port))
		}
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if !f.allowed.address(host, ip) {
			return private(what)
		}
		return nil
	}
	// RFC 6761 reserves these names for the loopback; whatever a resolver answers, they are not public.
	if name := canonicalHost(host); (name == "localhost" || strings.HasSuffix(name, ".localhost")) &&
		!f.allowed.host(name) && !f.allowed.address(name, netip.MustParseAddr("127.0.0.1")) {
		return private(what)
	}
	return nil
}

// redirectError ends a fetch at a redirect to another server.
type redirectError struct {
	from, to *url.URL
	status   int
}

func (e *redirectError) Error() string { return "a redirect to another server" }

// sameServer reports whether a redirect stays at the requested server, the only one that rules, hooks and people have
// judged. A redirect from http to https at the usual ports, or at the same port, stays; one back to http does not.
func sameServer(from, to *url.URL) bool {
	usual := map[string]string{"http": "80", "https": "443"}
	fromPort, toPort := cmp.Or(from.Port(), usual[from.Scheme]), cmp.Or(to.Port(), usual[to.Scheme])
	if canonicalHost(from.Hostname()) != canonicalHost(to.Hostname()) {
		return false
	}
	if from.Scheme == "http" && to.Scheme == "https" {
		return fromPort == toPort || fromPort == usual["http"] && toPort == usual["https"]
	}
	return from.Scheme == to.Scheme && fromPort == toPort
}

var (
	errRedirects = errors.New("too many redirects")             // ends a chain of redirects
	errResolve   = errors.New("the host name was not resolved") // no address was dialed
)

// checkRedirect makes the same checks for a redirect, and ends the fetch if it leads to another server, which needs a
// new call. The next server does not learn the page before.
func (f *fetcher) checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > MaxRedirects {
		return errRedirects
	}
	if len(req.URL.String()) > MaxURLBytes {
		return tool.Invalid("the redirect of url is more than %d bytes long", MaxURLBytes)
	}
	if err := f.checkURL(req.URL, "the redirect of url"); err != nil {
		return err
	}
	if from := via[len(via)-1].URL; !sameServer(from, req.URL) {
		return &redirectError{from: from, to: req.URL, status: req.Response.StatusCode}
	}
	req.Header.Del("Referer")
	return nil
}

// dial resolves a host once, and connects to one of its allowed addresses. No name is resolved again between the check
// and the connection.
func (f *fetcher) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var found []netip.Addr
	if ip, err := netip.ParseAddr(host); err == nil {
		found = []netip.Addr{ip}
	} else {
		ctx, stop := context.WithTimeoutCause(ctx, DialTimeout, errors.New("the name was not resolved in time"))
		defer stop()
		if found, err = f.lookup(ctx, host); err != nil {
			return nil, fmt.Errorf("%w: %w", errResolve, err)
		}
		for i, ip := range found {
			found[i] = ip.Unmap() // a resolver may return IPv4 addresses in either form
		}
	}
	dialer := net.Dialer{
		Timeout: DialTimeout,
		// A second check, at the socket itself.
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			if to, err := netip.ParseAddrPort(address); err != nil || !f.allowed.address(host, to.Addr()) {
				return private("url")
			}
			return nil
		},
	}
	err = nil
	tried := 0
	for _, ip := range found {
		if !f.allowed.address(host, ip) {
			continue
		}
		tried++
		conn, failed := dialer.DialContext(ctx, network, net.JoinHostPort(ip.String(), port))
		if failed == nil {
			return conn, nil
		}
		err = errors.Join(err, failed)
	}
	if tried == 0 && len(found) > 0 {
		return nil, private("url")
	}
	if err == nil {
		err = fmt.Errorf("%w: no address", errResolve)
	}
	return nil, err
}
