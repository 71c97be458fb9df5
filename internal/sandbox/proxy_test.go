package sandbox

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

func TestPlaces(t *testing.T) {
	for place, want := range map[string]string{
		"Example.COM.:443": "example.com:443", "127.0.0.1:80": "127.0.0.1:80", "[::1]:80": "[::1]:80",
		"[::ffff:10.0.0.1]:80": "10.0.0.1:80", "a_b.c-d:1": "a_b.c-d:1",
		"": "", "example.com": "", "example.com:0": "", "example.com:65536": "", "example.com:http": "",
		"evil\x00.example.com:443": "", "a..b:80": "", ".b:80": "", "-b:80": "",
		"a b:80": "", "user@example.com:80": "", "example.com/:80": "", "2130706433:80": "", "127.1:80": "",
		"0x7f.1:80": "0x7f.1:80", "\u0435xample.com:80": "", "[fe80::1%eth0]:80": "",
	} {
		got, err := canonicalPlace(place)
		if got != want || (err == nil) != (want != "") || (CheckPlace(place) == nil) != (want != "") {
			t.Errorf("%q is %q, %v; want %q", place, got, err, want)
		}
	}
}

// testProxy is a proxy with names that the test resolves.
func testProxy(t *testing.T, n Network, names map[string][]string) (*proxy, *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	p, err := newProxy(l, n)
	must.OK(t, err)
	asked := &atomic.Int32{}
	p.resolve = func(_ context.Context, host string) (out []netip.Addr, err error) {
		asked.Add(1)
		for _, a := range names[host] {
			out = append(out, netip.MustParseAddr(a))
		}
		if out == nil {
			err = fmt.Errorf("no such host")
		}
		return out, err
	}
	p.done.Go(p.serve)
	t.Cleanup(p.close)
	return p, asked
}

func TestTheProxyConnectsToWhatIsListed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.Host, r.Header.Get("Proxy-Authorization"))
	}))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	must.OK(t, err)
	p, asked := testProxy(t, Network{
		Allow:   []string{"allowed.test:" + port, "private.test:" + port, "mixed.test:" + port, "nowhere.test:80"},
		Private: func(host string, a netip.Addr) bool { return host != "private.test" && a.IsLoopback() },
	}, map[string][]string{"allowed.test": {"127.0.0.1"}, "private.test": {"127.0.0.1"},
		"mixed.test": {"10.0.0.1", "127.0.0.1"}})
	get := func(method, place string) (int, string) {
		t.Helper()
		conn, err := net.Dial("tcp", p.listen.Addr().String())
		must.OK(t, err)
		defer func() { _ = conn.Close() }()
		must.OK(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
		request := "CONNECT " + place + " HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n"
		if method != http.MethodConnect {
			request = "GET http://" + place +
				"/ HTTP/1.1\r\nHost: elsewhere.test\r\nProxy-Authorization: secret\r\n\r\n"
		}
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		from := bufio.NewReader(conn)
		res, err := http.ReadResponse(from, &http.Request{Method: method})
		if err != nil {
			t.Fatal(place, err)
		}
		if method == http.MethodConnect && res.StatusCode == http.StatusOK {
			if _, err := io.WriteString(conn,
				"GET / HTTP/1.1\r\nHost: inside\r\nConnection: close\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if res, err = http.ReadResponse(from, nil); err != nil {
				t.Fatal(err)
			}
		}
		body, err := io.ReadAll(res.Body)
		must.OK(t, err)
		return res.StatusCode, string(body)
	}
	for _, tt := range []struct {
		place  string
		status int
	}{
		{"allowed.test:" + port, 200}, {"ALLOWED.test.:" + port, 200}, {"mixed.test:" + port, 200},
		{"private.test:" + port, 403},            // a listed name with an address that is not public
		{"allowed.test:1", 403},                  // another port
		{"127.0.0.1:" + port, 403},               // the address behind the name
		{"other.test:" + port, 403},              // not listed
		{"allowed.test.other.test:" + port, 403}, // a name that begins like it
		{"nowhere.test:80", 403},                 // no address
		{"[::ffff:127.0.0.1]:" + port, 403},      // in other clothes
	} {
		for _, method := range []string{http.MethodConnect, http.MethodGet} {
			asked.Store(0)
			status, body := get(method, tt.place)
			want := "GET inside "
			if method == http.MethodGet {
				want = "GET " + tt.place + " "
			}
			if status != tt.status || status == 200 && body != want || asked.Load() > 1 {
				t.Errorf("%s %s: %d %q, asked %d times", method, tt.place, status, body, asked.Load())
			}
		}
	}
	for _, bad := range []string{"GET / HTTP/1.1\r\nHost: allowed.test:" + port +
		"\r\n\r\n", "GET ftp://allowed.test/ HTTP/1.1\r\n\r\n", "nonsense\r\n\r\n", "CONNECT evil\x00.allowed.test:" +
		port + " HTTP/1.1\r\n\r\n"} {
		conn, err := net.Dial("tcp", p.listen.Addr().String())
		must.OK(t, err)
		if _, err := io.WriteString(conn, bad); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 40") {
			t.Errorf("%q: %q %v", bad, answer, err)
		}
		must.OK(t, conn.Close())
	}
}

// TestAnAddressThatDoesNotAnswer: it takes no more than its share of the time, so that the others of the name are
// tried.
func TestAnAddressThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := newProxy(nil, Network{Allow: []string{"a.test:80"}})
		must.OK(t, err)
		defer p.stop()
		p.resolve = func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("10.0.0.1"),
				netip.MustParseAddr("1.1.1.2"), netip.MustParseAddr("1.1.1.3")}, nil
		}
		ours, theirs := net.Pipe()
		defer func() { _, _ = ours.Close(), theirs.Close() }()
		p.connect = func(ctx context.Context, _, address string) (net.Conn, error) {
			if address != "1.1.1.3:80" {
				<-ctx.Done()
			}
			return ours, ctx.Err()
		}
		began := time.Now()
		got, err := p.dial("a.test:80")
		if took := time.Since(began); got != ours || err != nil || took >= proxyDialTimeout {
			t.Errorf("%v after %s", err, took)
		}
	})
}

// TestAnEarlyAnswer: a server that answers before it has the whole of a request has its answer passed on, whether it
// reads the rest or not.
func TestAnEarlyAnswer(t *testing.T) {
	const head, body = "POST http://%s/ HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", 64 << 20
	const answer = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nmore"
	for name, closes := range map[string]bool{"it closes": true, "it reads nothing more": false} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			must.OK(t, err)
			defer func() { _ = l.Close() }()
			answered, over := make(chan error, 1), make(chan struct{})
			defer close(over)
			go func() {
				conn, err := l.Accept()
				if err == nil {
					defer func() { _ = conn.Close() }()
					_, err = http.ReadRequest(bufio.NewReader(conn))
				}
				if err == nil {
					_, err = io.WriteString(conn, answer)
				}
				answered <- err
				if err == nil && !closes {
					halfClose(conn)
					<-over
				}
			}()
			began, place := time.Now(), l.Addr().String()
			p, _ := testProxy(t, Network{Allow: []string{place},
				Private: func(string, netip.Addr) bool { return true }}, nil)
			conn, err := net.Dial("tcp", p.listen.Addr().String())
			must.OK(t, err)
			defer func() { _ = conn.Close() }()
			must.OK(t, conn.SetDeadline(time.Now().Add(time.Minute)))
			go func() { // it ends with the connection at the latest
				if _, err := fmt.Fprintf(conn, head, place, body); err == nil {
					_, _ = conn.Write(make([]byte, body))
				}
			}()
			must.OK(t, <-answered)
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must.OK(t, err)
			text, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != http.StatusRequestEntityTooLarge || string(text) != "more" {
				t.Errorf("%d %q, %v", res.StatusCode, text, err)
			}
			must.OK(t, conn.Close())
			for len(p.slots) > 0 { // the connection is over, also where the server holds its end
				if time.Now().After(began.Add(time.Minute)) {
					t.Fatal("the proxy still has the connection")
				}
				runtime.Gosched()
			}
		})
	}
}

// TestAnEmptyListAllowsNothing: nil and empty mean the same.
func TestAnEmptyListAllowsNothing(t *testing.T) {
	for _, allow := range [][]string{nil, {}} {
		_, spec, err := plan(Policy{Network: Network{Allow: allow}}, Command{Argv: []string{"true"}}, aMachine(), nil)
		if err != nil || spec.Proxy || strings.Contains(strings.ToLower(strings.Join(spec.Env, " ")), "proxy") {
			t.Errorf("%#v: %+v, %v", allow, spec, err)
		}
	}
	if _, err := newProxy(nil, Network{Allow: []string{"*:443"}}); err == nil {
		t.Error("a pattern is taken for a place")
	}
}
