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
)

// TestACertificateIsReadAgain: a new pair of files is in force for the next connection. Files that do not fit together,
// as they are while they are replaced, leave the former certificate in force.
func TestACertificateIsReadAgain(t *testing.T) {
	ca, _ := testenv.Authority(t, "ca")
	certFile, keyFile := testenv.Issue(t, ca, natsd.Certificate{Name: "first", Hosts: []string{"a"}})
	c, err := ReadCertificate(certFile, keyFile, testenv.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	shown := func() string {
		t.Helper()
		pair, err := c.Config().GetCertificate(&tls.ClientHelloInfo{})
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.Subject.CommonName
	}
	cert, key, err := ca.Issue(natsd.Certificate{Name: "second", Hosts: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(certFile, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Read(); err == nil || !strings.Contains(err.Error(), certFile) {
		t.Errorf("a certificate with another's key: %v", err)
	}
	if got := shown(); got != "first" {
		t.Errorf("half way %s is in force", got)
	}
	if err := os.WriteFile(keyFile, key, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Read(); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err := os.Rename(certFile, certFile+".away"); err != nil {
		t.Fatal(err)
	}
	look(11*day, "has run out")
	cert, key, err := ca.Issue(natsd.Certificate{Hosts: []string{"a"}, To: begin.Add(30 * day)})
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{certFile: cert, keyFile: key} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	look(12*day, "")
	look(24*day, "runs out soon")
}
