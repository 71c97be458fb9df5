//go:build unix

package builtin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// webBench has web_fetch with an allow list, and a server on the loopback that counts what it is asked.
type webBench struct {
	*bench
	fetch  *fetcher
	server *httptest.Server
	asked  atomic.Int64
	serve  string // the page below /given
}

func newWebBench(t *testing.T, allow ...string) *webBench {
	b := &webBench{bench: newBench(t)}
	b.env.WorkspaceDir, b.env.Root = "", nil // it needs none
	mux := http.NewServeMux()
	answer := func(kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, body)
		}
	}
	mux.HandleFunc("/text", answer("text/plain; charset=utf-8", "plain é text\n"))
	mux.HandleFunc("/latin1", answer("text/plain; charset=iso-8859-1", "caf\xe9"))
	mux.HandleFunc("/undeclared", answer("text/plain", "caf\xe9"))
	mux.HandleFunc("/late-utf8", answer("text/plain", strings.Repeat("x", 5000)+"é"))
	mux.HandleFunc("/broken-utf8", answer("text/plain; charset=utf-8", "caf\xe9!"))
	mux.HandleFunc("/nonsense-charset", answer("text/plain; charset=klingon", "é"))
	mux.HandleFunc("/json", answer("application/vnd.x+json", `{"a":1}`))
	mux.HandleFunc("/png", answer("image/png", "\x89PNG\r\n\x1a\n12345678"))
	mux.HandleFunc("/bytes", answer("text/plain", "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"))
	mux.HandleFunc("/utf16", answer("text/plain; charset=utf-16le", "h\x00i\x00"))
	mux.HandleFunc("/utf16-mark", answer("text/plain", "\xff\xfeh\x00i\x00"))
	mux.HandleFunc("/coded", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", r.URL.RawQuery)
		answer("text/plain", "coded")(w, r)
	})
	mux.HandleFunc("/empty", answer("text/html", ""))
	mux.HandleFunc("/html", answer("text/html", `<!doctype html><html><head><title> A
		title </title><style>.x{}</style><script>alert("no")</script></head><body><h1>Head &amp; line</h1>
		<p>One <b>bold</b> word, <a href="/next?a=1">a link</a>.</p><noscript>no js</noscript><ul><li>first</li><li><p>second</p></li><li></li></ul>
		<pre>a
  b</pre><table><tr><th>k</th><td>v</td></tr></table><svg><text>picture</text></svg><script/>hidden</script><img alt="a cat"><br>end`))
	mux.HandleFunc("/given/", func(w http.ResponseWriter, r *http.Request) { answer("text/html", b.serve)(w, r) })
	mux.HandleFunc("/huge", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		for range 3 * MaxFetchBytes / (64 << 10) {
			if _, err := io.WriteString(w, strings.Repeat("y", 64<<10)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/status/", func(w http.ResponseWriter, r *http.Request) {
		var code int
		_, _ = fmt.Sscanf(r.URL.Path, "/status/%d", &code)
		w.Header().Set("Retry-After", r.URL.Query().Get("after"))
		w.WriteHeader(code)
	})
	mux.HandleFunc("/to", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "a=b")
		http.Redirect(w, r, r.URL.Query().Get("url"), http.StatusFound)
	})
	mux.HandleFunc("/to-long", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/"+strings.Repeat("x", MaxURLBytes), http.StatusFound)
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) {
		var n int
		_, _ = fmt.Sscanf(r.URL.RawQuery, "%d", &n)
		if n == 0 {
			answer("text/plain", "arrived")(w, r)
			return
		}
		http.Redirect(w, r, fmt.Sprintf("/loop?%d", n-1), http.StatusFound)
	})
	mux.HandleFunc("/headers", func(w http.ResponseWriter, r *http.Request) {
		answer("text/plain", fmt.Sprintf("cookie %q referer %q auth %q", r.Header.Get("Cookie"),
			r.Header.Get("Referer"), r.Header.Get("Authorization")))(w, r)
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "begun")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.asked.Add(1)
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(b.server.Close)
	a, err := parseAllowed(allow)
	b.must(err)
	b.fetch = newFetcher(a)
	b.tools["web_fetch"], err = webFetch(b.fetch)
	b.must(err)
	return b
}

// port is the server's.
func (b *webBench) port() string {
	u, err := url.Parse(b.server.URL)
	b.must(err)
	return u.Port()
}

func (b *webBench) fails(code toolyard.Code, rawURL string) *tool.Error {
	b.Helper()
	err := b.run("web_fetch", in{"url": rawURL})
	e := tool.AsError(err)
	if err == nil || e.Code != code {
		b.Errorf("%s: %v, want %s", rawURL, err, code)
	}
	return e
}

func TestWebFetch(t *testing.T) {
	b := newWebBench(t, "127.0.0.1")
	for path, want := range map[string]string{
		"/text":             "plain é text",
		"/latin1":           "café",
		"/undeclared":       "café",
		"/late-utf8":        "xé",
		"/broken-utf8":      "caf\ufffd!",
		"/nonsense-charset": "é",
		"/json":             `{"a":1}`,
		"/empty":            "[the page has no text]",
		"/utf16":            "hi",
		"/utf16-mark":       "hi",
		"/coded?identity":   "coded",
		"/loop?5":           "arrived",
		"/to?url=/headers":  `cookie "" referer "" auth ""`,
	} {
		b.contains(b.ok("web_fetch", in{"url": b.server.URL + path}), "URL: "+b.server.URL, want)
	}
	want := "URL: " + b.server.URL +
		"/html\nContent-Type: text/html\nTitle: A title\n\n# Head & line\n\nOne bold word, a link (" + b.server.URL +
		"/next?a=1).\n\n- first\n\n- second\n\na\n  b\n\nk | v\n\n[image: a cat]\nend"
	if got := b.ok("web_fetch", in{"url": b.server.URL + "/html"}); got != want {
		t.Errorf("HTML:\n%q\nwant\n%q", got, want)
	}
	b.contains(b.ok("web_fetch", in{"url": b.server.URL + "/text", "max_chars": 7}),
		"plain é\n[cut after 7 of 13 characters")
	b.contains(b.ok("web_fetch", in{"url": b.server.URL + "/huge"}), "[cut after 40000 of 5242880",
		"give a larger max_chars", "[the page is larger than 5 MiB")
	b.contains(b.ok("web_fetch", in{"url": b.server.URL + "/huge", "max_chars": MaxFetchChars}),
		"[cut after 1000000 of 5242880 characters]\n")
	b.contains(b.fails(toolyard.InvalidArguments, b.server.URL+"/png").Message, "image/png of 16 bytes")
	b.contains(b.fails(toolyard.InvalidArguments, b.server.URL+"/bytes").Message,
		"is binary data (sent as text/plain) of 16 bytes, not text")
	b.contains(b.fails(toolyard.ExecutionFailed, b.server.URL+"/coded?br").Message, "content encoding br")
	b.contains(b.fails(toolyard.ExecutionFailed, b.server.URL+"/loop?6").Message, "more than 5 times")
	b.contains(b.fails(toolyard.ExecutionFailed, b.server.URL+"/status/404").Message, "404 Not Found")
	b.fails(toolyard.ExecutionFailed, b.server.URL+"/status/304")
	for after, ms := range map[string]int64{"": 0, "2": 2000, "86400": 3_600_000, "soon": 0, "99999999999999999999": 0,
		"-1": 0} {
		for _, status := range []int{429, 500, 503} {
			e := b.fails(toolyard.DependencyUnavailable,
				fmt.Sprintf("%s/status/%d?after=%s", b.server.URL, status, after))
			if !e.Retryable || e.RetryAfterMS != ms {
				t.Errorf("%d with Retry-After %q: %+v", status, after, e)
			}
		}
	}
}

func TestWebFetchURLsThatAreNone(t *testing.T) {
	b := newWebBench(t)
	for rawURL, want := range map[string]string{
		"": "is empty", "example.com": "must begin with http", "ftp://example.com/": "must begin with http",
		"file:///etc/passwd": "must begin with http",
		"http://":            "names no host", "http:example.com": "names no host",
		"http://user:pw@example.com/": "user name or password", "http://user@127.0.0.1/": "user name",
		"http://example.com:99999/": "ports go from", "http://exa mple.com/": "is not a URL",
		"http://[::1/": "is not a URL",
		"https://example.com/" + strings.Repeat("x", MaxURLBytes): "at most 8192",
		"javascript:alert(1)": "must begin with http",
	} {
		b.contains(b.refused(toolyard.InvalidArguments, "web_fetch", in{"url": rawURL}), want)
	}
	b.refused(toolyard.InvalidArguments, "web_fetch", in{"url": "http://example.com/", "max_chars": 0})
	if message := b.refused(toolyard.InvalidArguments, "web_fetch",
		in{"url": "http://user:pw@example.com/"}); strings.Contains(message, "pw") {
		t.Errorf("the message repeats a password: %q", message)
	}
	if err := b.tools["web_fetch"].Check(t.Context(), b.env,
		encode(in{"url": "https://example.com/a?b=c"})); err != nil {
		t.Errorf("a good URL: %v", err)
	}
}

// TestWebFetchReachesNothingPrivate has a server that would answer, and allows nothing: it must not be asked.
func TestWebFetchReachesNothingPrivate(t *testing.T) {
	b := newWebBench(t)
	for _, host := range []string{
		"127.0.0.1", "127.8.9.10", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
		"224.0.0.1", "255.255.255.255", "198.18.0.1",
		"[::1]", "[::]", "[fe80::1]", "[fe80::1%25lo]", "[fc00::1]", "[ff02::1]", "[::ffff:127.0.0.1]",
		"[::ffff:8.8.8.8]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[2001::1]",
		"localhost", "LOCALHOST.", "a.localhost",
	} {
		b.refused(toolyard.SandboxViolation, "web_fetch", in{"url": "http://" + host + ":" + b.port() + "/text"})
	}
	// Names and odd spellings that only the resolver turns into such an address pass the check, and end at the dial.
	for name, found := range map[string][]string{
		"rebind.example.com": {"127.0.0.1"}, "mapped.example.com": {"::ffff:127.0.0.1"},
		"both.example.com": {"10.0.0.1", "::1"}, "2130706433": {"127.0.0.1"},
		"0x7f.1": {"127.0.0.1"}, "meta.example.com": {"169.254.169.254"}, "zone.example.com": {"fe80::1%lo"},
	} {
		b.fetch.lookup = func(context.Context, string) ([]netip.Addr, error) {
			var ips []netip.Addr
			for _, f := range found {
				ips = append(ips, netip.MustParseAddr(f))
			}
			return ips, nil
		}
		u := "http://" + name + ":" + b.port() + "/text"
		if err := b.tools["web_fetch"].Check(t.Context(), b.env, encode(in{"url": u})); err != nil {
			t.Errorf("%s: check: %v", u, err)
		}
		if e := b.fails(toolyard.SandboxViolation, u); strings.Contains(e.Message, found[0]) {
			t.Errorf("%s: the message says where the name leads: %q", name, e.Message)
		}
	}
	if n := b.asked.Load(); n != 0 {
		t.Errorf("the server was asked %d times", n)
	}
}

// TestWebFetchRedirectsAreChecked allows one host, which redirects to others.
func TestWebFetchRedirectsAreChecked(t *testing.T) {
	b := newRedirects(t)
	from := "http://allowed.example.com:" + b.port() + "/to?url="
	b.contains(b.ok("web_fetch", in{"url": from + "/text"}), "plain") // the positive control
	before := b.asked.Load()
	for to, code := range map[string]toolyard.Code{
		b.server.URL + "/text":                    toolyard.SandboxViolation,
		"http://localhost:" + b.port() + "/text":  toolyard.SandboxViolation,
		"http://169.254.169.254/latest/meta-data": toolyard.SandboxViolation,
		"file:///etc/passwd":                      toolyard.InvalidArguments,
		"http://u:p@allowed.example.com/text":     toolyard.InvalidArguments,
		"http://allowed.example.com:0/text":       toolyard.InvalidArguments,
		"/to-long":                                toolyard.InvalidArguments,
	} {
		b.fails(code, from+url.QueryEscape(to))
	}
	if n := b.asked.Load() - before; n != 8 {
		t.Errorf("the server was asked %d times, want 8: once for each redirect, never behind it", n)
	}
}

// newRedirects has a server under every name, all of which it may be asked by.
func newRedirects(t *testing.T) *webBench {
	b := newWebBench(t, ".example.com")
	b.fetch.lookup = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	return b
}

// TestARedirectToAnotherHostIsACallOfItsOwn: rules, hooks and people have judged the host of the call's input, and no
// other. Where a redirect leads to another one, that one is not asked, and the model reads where it leads.
func TestARedirectToAnotherHostIsACallOfItsOwn(t *testing.T) {
	b := newRedirects(t)
	own := "allowed.example.com:" + b.port()
	for _, to := range []string{
		"http://other.example.com:" + b.port() + "/text", "http://sub.allowed.example.com:" + b.port() +
			"/text", "//other.example.com:" + b.port() + "/text",
		"http://allowed.example.com/text", // another port is another server
		"https://allowed.example.com/text", "http://xn--allowed-.example.com:" + b.port() + "/text",
		"/to?url=" + url.QueryEscape("http://other.example.com:"+b.port()+"/text"), // in two hops
	} {
		hops := int64(1)
		if strings.HasPrefix(to, "/to") {
			hops = 2
		}
		before := b.asked.Load()
		out := b.ok("web_fetch", in{"url": "http://" + own + "/to?url=" + url.QueryEscape(to)})
		if n := b.asked.Load() - before; n != hops || strings.Contains(out, "plain") ||
			!strings.Contains(out, "Redirect: 302 Found") ||
			!strings.Contains(out, ".example.com") || !strings.Contains(out, "call web_fetch again") {
			t.Errorf("%s: %d requests, want %d; the model reads %q", to, n, hops, out)
		}
	}
	// The positive control: the same host in another spelling is the same.
	for _, to := range []string{"http://ALLOWED.example.com:" + b.port() + "/text", "http://allowed.example.com.:" +
		b.port() + "/text", "//" + own + "/text", "text"} {
		b.contains(b.ok("web_fetch", in{"url": "http://" + own + "/to?url=" + url.QueryEscape(to)}), "plain")
	}
}

func TestSameServer(t *testing.T) {
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"http://a.example/", "http://a.example:80/b", true}, {"https://a.example:443/", "https://a.example/", true},
		{"http://a.example/", "https://a.example/", true}, {"http://a.example:80/", "https://a.example:443/", true},
		{"http://a.example:8080/", "https://a.example:8080/", true},
		{"https://a.example/", "http://a.example/", false},
		{"https://a.example:8443/", "http://a.example:8443/", false},
		{"http://a.example/", "http://a.example:8080/", false}, {"http://a.example/", "https://a.example:8443/", false},
		{"http://a.example/", "http://www.a.example/", false},
		{"http://a.example/", "http://a.example.evil.example/", false},
		{"http://[2001:db8::1]/", "http://[2001:DB8::1]/", true},
		{"http://[2001:db8::1]/", "http://[2001:db8::2]/", false},
	} {
		from, err := url.Parse(c.from)
		must.OK(t, err)
		to, err := url.Parse(c.to)
		must.OK(t, err)
		if got := sameServer(from, to); got != c.want {
			t.Errorf("%s to %s: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}

func TestWebFetchThatFails(t *testing.T) {
	b := newWebBench(t, "127.0.0.0/8")
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	b.must(err)
	address := closed.Addr().String()
	b.must(closed.Close())
	down := func(rawURL, want string) {
		t.Helper()
		e := b.fails(toolyard.DependencyUnavailable, rawURL)
		if !e.Retryable || !strings.Contains(e.Message, want) {
			t.Errorf("%s: %+v", rawURL, e)
		}
	}
	down("http://"+address+"/", "could not be reached")
	b.fetch.lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
		return nil, &net.DNSError{Err: "no such host", Name: host, Server: "10.0.0.53", IsNotFound: true}
	}
	down("http://nothing.example.com/", "could not be resolved")
	b.fetch.lookup = func(context.Context, string) ([]netip.Addr, error) { return nil, nil }
	down("http://nothing.example.com/", "could not be resolved")
	b.fetch.timeout = 200 * time.Millisecond
	down(b.server.URL+"/slow", "did not answer within 200ms")
	// A call that is stopped ends for that reason, and not as a server that is down.
	gone := errors.New("the batch was canceled")
	ctx, cancel := context.WithCancelCause(t.Context())
	b.fetch.timeout = FetchTimeout
	time.AfterFunc(100*time.Millisecond, func() { cancel(gone) })
	if _, err := b.tools["web_fetch"].Run(ctx, b.env, encode(in{"url": b.server.URL + "/slow"})); !errors.Is(err,
		gone) {
		t.Errorf("a canceled fetch: %v", err)
	}
}

func TestWebFetchIgnoresProxies(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	b := newWebBench(t, "web.internal")
	b.fetch.lookup = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	b.contains(b.ok("web_fetch", in{"url": "http://web.internal:" + b.port() + "/text"}), "plain")
}

func TestAllowed(t *testing.T) {
	a, err := parseAllowed([]string{"10.1.0.0/16", "127.0.0.1", "fd00::/8", "Wiki.Internal", ".corp"})
	must.OK(t, err)
	for _, c := range []struct {
		host, ip string
		want     bool
	}{
		{"x", "10.1.2.3", true}, {"x", "10.2.0.1", false}, {"x", "127.0.0.1", true}, {"x", "::ffff:127.0.0.1", true},
		{"x", "127.0.0.2", false}, {"x", "fd12::1", true},
		{"x", "fe80::1", false}, {"wiki.internal.", "192.168.0.1", true}, {"a.wiki.internal", "192.168.0.1", false},
		{"a.b.corp", "::1", true},
		{"corp", "::1", false}, {"evilcorp", "::1", false}, {"x", "8.8.8.8", true}, {"x", "2606:4700::1111", true},
	} {
		if got := a.address(c.host, netip.MustParseAddr(c.ip)); got != c.want {
			t.Errorf("%s at %s: %v, want %v", c.host, c.ip, got, c.want)
		}
	}
	for _, bad := range []string{"", ".", "10.0.0.0/99", "http://x", "*.corp", "a b", "host:80"} {
		if _, err := All(Options{AllowPrivateAddresses: []string{bad}}); err == nil {
			t.Errorf("%q is taken for an entry", bad)
		}
	}
}

// FuzzHTMLText holds that any page becomes valid text without its scripts, in time.
func FuzzHTMLText(f *testing.F) {
	for _, seed := range []string{"<p>a<script>x", "<svg/><b>y", "</a></a></pre><li><li>", "<title>a<title>b",
		"<script/>x</script>y", strings.Repeat("<div>", 1000)} {
		f.Add(seed)
	}
	base := &url.URL{Scheme: "http", Host: "x"}
	f.Fuzz(func(t *testing.T, source string) {
		_, text, _ := htmlText(toUTF8([]byte(source), "text/html", false), base)
		if strings.ToValidUTF8(text, "") != text {
			t.Errorf("%q became %q", source, text)
		}
	})
}

// TestAPageDoesNotGrow: a page has at most so many bytes of text and so many characters of a title, whatever short
// links become when they are whole.
func TestAPageDoesNotGrow(t *testing.T) {
	base, err := url.Parse("http://example.com/" + strings.Repeat("x", MaxURLBytes-100) + "/")
	must.OK(t, err)
	const more = 1_000 // links past the limit
	links := strings.Repeat("<a href=y>z</a>", MaxFetchText/MaxURLBytes+more)
	_, text, cut := htmlText(links, base)
	if len(text) > MaxFetchText+2*MaxURLBytes || !cut {
		t.Errorf("%d bytes of links have become %d bytes of text; cut: %t", len(links), len(text), cut)
	}
	b := newWebBench(t, "127.0.0.1")
	for _, c := range []struct{ page, want string }{
		{"<title>" + strings.Repeat("t", 1<<20) + "</title>short", "Title: " + strings.Repeat("t", MaxFetchTitle) +
			"…\n\nshort"},
		{"<title>" + strings.Repeat("t", MaxFetchTitle) + "</title>", "Title: " + strings.Repeat("t", MaxFetchTitle) +
			"\n\n[the page has no text]"},
	} {
		b.serve = c.page
		b.contains(b.ok("web_fetch", in{"url": b.server.URL + "/given/", "max_chars": 100}), c.want)
	}
	b.serve = strings.Repeat("<a href=y>z</a>", MaxFetchText/8_000+more)
	b.contains(b.ok("web_fetch", in{"url": b.server.URL + "/given/" + strings.Repeat("x", 8_000) + "/"}),
		"has more than 8 MiB of text")
}

// TestLinksOfAPageWithABase: a link leads where a browser would go, also where the page says what it begins at.
func TestLinksOfAPageWithABase(t *testing.T) {
	b := newWebBench(t, "127.0.0.1")
	page := b.server.URL + "/given/a/"
	for head, want := range map[string]string{
		`<base href="/docs/">`:                                     b.server.URL + "/docs/x",
		`<base href="/docs/"/><base href="/other/">`:               b.server.URL + "/docs/x",
		`<base target=_top><base href=" https://b.example/c ">`:    "https://b.example/x",
		`<base href="../">`:                                        b.server.URL + "/given/x",
		`<base href="">`:                                           page + "x",
		`<base href="javascript:alert(1)">`:                        page + "x",
		`<base href="http://[">`:                                   page + "x",
		`<base href="/` + strings.Repeat("y", MaxURLBytes) + `/">`: page + "x",
		`<template><base href="/docs/"></template>`:                page + "x",
	} {
		b.serve = "<head>" + head + "</head><a href=x>link</a>"
		b.contains(b.ok("web_fetch", in{"url": page}), "link ("+want+")")
	}
}

// TestAPageWhoseElementIsNotClosed: what stands behind a drawing, a formula or a list to choose from that nothing
// closes is read. One that is closed is left out.
func TestAPageWhoseElementIsNotClosed(t *testing.T) {
	for source, want := range map[string]string{
		"<p>a<svg><text>x</text></svg><p>b":                   "a\n\nb",
		"<p>a<select><option>x</select><p>b":                  "a\n\nb",
		"<p>a<svg><path d=M0><p>b":                            "a\n\nb",
		"<p>a<select><option><p>b":                            "a\n\nb",
		"<p>a<math><mi></mi><p>b":                             "a\n\nb",
		"<p>a<svg><p>b<svg></svg><p>c":                        "a\n\nb\n\nc",
		"<p>a<svg><select><math></math><p>b":                  "a\n\nb",
		"<svg>x</svg><p>a<svg><p>b":                           "a\n\nb",
		"<p>a<svg><script>x</script><style>y</style><p>b":     "a\n\nb",
		"<p>a" + strings.Repeat("<svg><select>", 1_000) + "b": "ab",
		"<p>a<script>x<p>b":                                   "a",
		"<p>a<template>x<p>b":                                 "a",
	} {
		if _, text, _ := htmlText(source, &url.URL{Scheme: "http", Host: "x"}); text != want {
			t.Errorf("%.80s became %q, want %q", source, text, want)
		}
	}
}
