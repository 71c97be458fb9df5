package cli

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestACertificateIsReadAgain: a new pair of files is in force for the next connection. Files that do not fit together,
// as they are while they are replaced, leave the former certificate in force.
func TestACertificateIsReadAgain(t *testing.T) {
	ca, _ := testenv.Authority(t, "ca")
	certFile, keyFile := testenv.Issue(t, ca, natsd.Certificate{Name: "first", Hosts: []string{"a"}})
	c, err := ReadCertificate(certFile, keyFile, testenv.Log(t))
	must.OK(t, err)
	shown := func() string {
		t.Helper()
		pair, err := c.Config().GetCertificate(&tls.ClientHelloInfo{})
		must.OK(t, err)
		return pair.Leaf.Subject.CommonName
	}
	cert, key, err := ca.Issue(natsd.Certificate{Name: "second", Hosts: []string{"a"}})
	must.OK(t, err)
	must.OK(t, os.WriteFile(certFile, cert, 0o600))
	if err := c.Read(); err == nil || !strings.Contains(err.Error(), certFile) {
		t.Errorf("a certificate with another's key: %v", err)
	}
	if got := shown(); got != "first" {
		t.Errorf("half way %s is in force", got)
	}
	must.OK(t, os.WriteFile(keyFile, key, 0o600))
	must.OK(t, c.Read())
	if got := shown(); got != "second" {
		t.Errorf("%s is in force; want the second", got)
	}
	if _, err := ReadCertificate(certFile, certFile, testenv.Log(t)); err == nil {
		t.Error("a certificate without a key is taken")
	}
}

// TestACertificateThatRunsOutIsWarnedAbout, once a day, while the process runs and its files stay as they are, and also
// when they cannot be read any more. A new one ends that.
func TestACertificateThatRunsOutIsWarnedAbout(t *testing.T) {
	t.Parallel()
	begin := time.Now().Truncate(time.Second)
	const day = 24 * time.Hour
	ca, _ := testenv.Authority(t, "ca")
	certFile, keyFile := testenv.Issue(t, ca, natsd.Certificate{Hosts: []string{"a"}, To: begin.Add(10 * day)})
	var log bytes.Buffer
	c, err := ReadCertificate(certFile, keyFile, slog.New(slog.NewTextHandler(&log,
		&slog.HandlerOptions{Level: slog.LevelWarn})))
	must.OK(t, err)
	look := func(after time.Duration, want string) {
		t.Helper()
		log.Reset()
		_ = c.readAt(begin.Add(after)) // what cannot be read is what a test looks at below
		if got := log.String(); strings.Count(got, "\n") != min(1, len(want)) || !strings.Contains(got, want) {
			t.Errorf("after %s it warns %q; want %q", after, got, want)
		}
	}
	look(0, "")
	look(2*day, "")
	look(3*day+time.Second, "runs out soon")
	look(3*day+6*time.Second, "")
	look(4*day+time.Second, "runs out soon")
	look(10*day-time.Second, "runs out soon")
	look(10*day, "has run out")
	look(10*day+5*time.Second, "")
	must.OK(t, os.Rename(certFile, certFile+".away"))
	look(11*day, "has run out")
	cert, key, err := ca.Issue(natsd.Certificate{Hosts: []string{"a"}, To: begin.Add(30 * day)})
	must.OK(t, err)
	for file, content := range map[string][]byte{certFile: cert, keyFile: key} {
		must.OK(t, os.WriteFile(file, content, 0o600))
	}
	look(12*day, "")
	look(24*day, "runs out soon")
}
