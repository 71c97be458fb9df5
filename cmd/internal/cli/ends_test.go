package cli

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// logLines is a log, line by line.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// shows starts a server that shows the certificate that is in shown, and returns its URL. greeted counts who asks.
func shows(t *testing.T, shown *atomic.Pointer[tls.Certificate], greeted *atomic.Int64) (url string) {
	t.Helper()
	config := &tls.Config{MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			greeted.Add(1)
			return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*shown.Load()}}, nil
		}}
	return testenv.OverTLS(t, config)
}

// issued is a certificate for a server on loopback.
func issued(t *testing.T, ca *natsd.Authority, c natsd.Certificate) *tls.Certificate {
	t.Helper()
	c.Name, c.Hosts = "node", []string{"127.0.0.1"}
	pair, err := tls.LoadX509KeyPair(testenv.Issue(t, ca, c))
	must.OK(t, err)
	return &pair
}

// TestACertificateThatStopsAReconnectIsNamed: a process that cannot come back, because the server's certificate ran out
// meanwhile, says so in one line each time that it has lost the connection, however often it tries.
func TestACertificateThatStopsAReconnectIsNamed(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir()) // this machine may have a system of its own
	ca, caFile := testenv.Authority(t, "our CA")
	past := time.Now().Add(-time.Hour)
	good := issued(t, ca, natsd.Certificate{})
	bad := issued(t, ca, natsd.Certificate{From: past.Add(-time.Hour), To: past})
	var shown atomic.Pointer[tls.Certificate]
	var greeted atomic.Int64
	shown.Store(good)
	url := shows(t, &shown, &greeted)
	lines := make(logLines, 1_000)
	nc, err := (&Reach{CA: caFile}).Connect(url, access.Principal{Role: access.Dispatcher}, "test",
		slog.New(slog.NewTextHandler(lines, nil)))
	must.OK(t, err)
	defer nc.Close()
	for outage := range 2 {
		shown.Store(bad)
		before := greeted.Load()
		must.OK(t, nc.ForceReconnect())
		testenv.Until(t, "it has tried several times", func() bool { return greeted.Load() > before+5 })
		shown.Store(good)
		said := 0
		for line := ""; !strings.Contains(line, "connected to NATS again"); {
			line = testenv.Within(t, fmt.Sprintf("it is connected again after outage %d", outage), lines)
			if strings.Contains(line, "renew it on the server") {
				said++
			}
		}
		if said != 1 {
			t.Errorf("in outage %d it names the certificate that ran out %d times; want once", outage, said)
		}
	}
}

// TestWhatReachesNATSIsWarnedAboutBeforeItRunsOut: a program that is connected warns of the certificates and
// credentials that a new connection needs, for as long as the server shows them: also of that of the CA, and when one
// has run out.
func TestWhatReachesNATSIsWarnedAboutBeforeItRunsOut(t *testing.T) {
	const day = 24 * time.Hour
	t.Setenv("XDG_STATE_HOME", t.TempDir()) // this machine may have a system of its own
	now := time.Now()
	ca, caFile := testenv.Authority(t, "our CA")
	var shown atomic.Pointer[tls.Certificate]
	var greeted atomic.Int64
	shown.Store(issued(t, ca, natsd.Certificate{To: now.Add(365 * day)}))
	url := shows(t, &shown, &greeted)
	account, err := nkeys.CreateAccount()
	must.OK(t, err)
	ownCert, ownKey := testenv.Issue(t, ca, natsd.Certificate{Name: "worker", To: now.Add(300 * day)})
	r := &Reach{CA: caFile, Cert: ownCert, Key: ownKey, Creds: userCreds(t, account, now.Add(200*day))}
	who := access.Principal{Role: access.Dispatcher}
	nc, err := r.Connect(url, who, "test", testenv.Log(t))
	must.OK(t, err)
	defer nc.Close()
	look := func(what string, after time.Duration, want ...string) {
		t.Helper()
		lines := make(logLines, 10)
		r.warnOfEnds(nc, url, who, now.Add(after), slog.New(slog.NewTextHandler(lines, nil)))
		close(lines)
		var got []string
		for line := range lines {
			got = append(got, line)
		}
		for i, w := range want {
			if len(got) != len(want) || !strings.Contains(got[i], w) {
				t.Fatalf("%s: it warns %q; want %q", what, got, want)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%s: it warns %q; want %q", what, got, want)
		}
	}
	creds, own := "credentials in "+r.Creds, "certificate in "+ownCert
	look("when all is new", 0)
	look("before a month is left of the credentials", 169*day)
	look("when a month is left of the credentials", 171*day, creds)
	look("when a month is left of the client's certificate", 271*day, own, creds)
	r.Cert, r.Key, r.Creds = "", "", ""
	look("when a month is left of the server's certificate", 336*day, "certificate 127.0.0.1 of the NATS server")
	look("when it has run out", 366*day, "has run out")
	shown.Store(issued(t, ca, natsd.Certificate{To: now.Add(700 * day)}))
	look("when the server shows a new one", 336*day)
	look("when the CA runs out too", natsd.AuthorityLifetime-day, "certificate 127.0.0.1",
		"certificate CN=our CA")
	shown.Store(issued(t, ca, natsd.Certificate{From: now.Add(-2 * time.Hour), To: now.Add(-time.Hour)}))
	look("when no new connection is made", 336*day, "is valid from")
}

// TestWhatIsRenewedByItselfIsWarnedAboutLate: a certificate for days is not warned about for all its life.
func TestWhatIsRenewedByItselfIsWarnedAboutLate(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	from := time.Now()
	for _, c := range []struct {
		valid, after time.Duration
		near         bool
	}{
		{2 * 365 * day, 699 * day, false}, {2 * 365 * day, 701 * day, true}, {2 * 365 * day, 800 * day, true},
		{8 * day, 5 * day, false}, {8 * day, 7 * day, true}, {90 * day, 61 * day, false},
	} {
		e := end{from: from, until: from.Add(c.valid)}
		if got := e.near(from.Add(c.after)); got != c.near {
			t.Errorf("what is valid for %s is warned about after %s: %t", c.valid, c.after, got)
		}
	}
	if never := (&end{from: from}); never.near(from.Add(100 * 365 * day)) {
		t.Error("what does not run out is warned about")
	}
}
