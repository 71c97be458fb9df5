package cli

import (
	"crypto/tls"
	"os"
	"strings"
	"testing"

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
