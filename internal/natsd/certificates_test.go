package natsd

import (
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestACertificateEndsWithItsAuthority: one that is made in the last two years of a CA is valid no longer than the CA,
// and a CA that has run out signs nothing.
func TestACertificateEndsWithItsAuthority(t *testing.T) {
	a, err := NewAuthority("a")
	must.OK(t, err)
	end := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	a.cert.NotAfter = end
	text, _, err := a.Issue(Certificate{Name: "n", Hosts: []string{"n"}})
	must.OK(t, err)
	block, _ := pem.Decode(text)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil || !c.NotAfter.Equal(end) {
		t.Errorf("it is valid until %v, %v; the authority until %v", c.NotAfter, err, end)
	}
	a.cert.NotAfter = time.Now().Add(-time.Hour)
	if _, _, err := a.Issue(Certificate{Name: "n"}); err == nil || !strings.Contains(err.Error(), "ran out on") {
		t.Errorf("an authority that has run out signs: %v", err)
	}
}
