package natsd

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// How long certificates are valid.
const (
	// AuthorityLifetime is for the certificate of an authority.
	AuthorityLifetime = 10 * 365 * 24 * time.Hour
	// CertificateLifetime is for those that it signs.
	CertificateLifetime = 2 * 365 * 24 * time.Hour
	// clockSlack is how far a clock may be behind the one that made a certificate.
	clockSlack = 5 * time.Minute
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// Certificate says what an authority is to sign.
type Certificate struct {
	// Name is the common name, for people.
	Name string
	// Hosts are the DNS names and addresses of a server, which may also be a client of others. Empty: of a client.
	Hosts []string
	// From and To bound its validity. Zero: from now on, and for [CertificateLifetime] or as long as its authority.
	From, To time.Time
}

// NewAuthority makes an authority with a new key.
func NewAuthority(name string) (*Authority, error) {
	now := time.Now()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-clockSlack), NotAfter: now.Add(AuthorityLifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	a := &Authority{}
	der, key, err := a.sign(template)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("natsd: make an authority: %w", err)
	}
	a.key = key
	return a, nil
}

// ReadAuthority reads what [Authority.PEM] has written.
func ReadAuthority(cert, key []byte) (*Authority, error) {
	c, _ := pem.Decode(cert)
	k, _ := pem.Decode(key)
	if c == nil || k == nil {
		return nil, errors.New("natsd: read an authority: it is no PEM")
	}
	a := &Authority{}
	var err error
	if a.cert, err = x509.ParseCertificate(c.Bytes); err != nil {
		return nil, fmt.Errorf("natsd: read an authority: %w", err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(k.Bytes)
	if err != nil {
		return nil, fmt.Errorf("natsd: read the key of an authority: %w", err)
	}
	signer, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("natsd: read the key of an authority: a %T signs nothing", parsed)
	}
	a.key = signer
	return a, nil
}

// PEM is the authority's certificate, and its key.
func (a *Authority) PEM() (cert, key []byte, err error) { return inPEM(a.cert.Raw, a.key) }

// Issue makes a key and a certificate for it.
func (a *Authority) Issue(c Certificate) (cert, key []byte, err error) {
	if c.From.IsZero() {
		c.From = time.Now().Add(-clockSlack)
	}
	if c.To.IsZero() {
		if c.To = c.From.Add(CertificateLifetime); c.To.After(a.cert.NotAfter) {
			c.To = a.cert.NotAfter
		}
		if !c.From.Before(c.To) {
			return nil, nil, fmt.Errorf("natsd: the certificate of the authority %s ran out on %s, and what it signs is "+
				"valid no longer: make a new cluster with init-auth", a.cert.Subject.CommonName,
				a.cert.NotAfter.Format(time.DateOnly))
		}
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: c.Name}, NotBefore: c.From, NotAfter: c.To, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, host := range c.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	if len(c.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	der, signer, err := a.sign(template)
	if err != nil {
		return nil, nil, err
	}
	return inPEM(der, signer)
}

// sign makes a key and signs a certificate for it; the authority's own if it has none yet.
func (a *Authority) sign(template *x509.Certificate) (der []byte, key crypto.Signer, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, fmt.Errorf("natsd: make a key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, nil, fmt.Errorf("natsd: make a certificate: %w", err)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	if der, err = x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer); err != nil {
		return nil, nil, fmt.Errorf("natsd: make a certificate: %w", err)
	}
	return der, key, nil
}

func inPEM(der []byte, signer crypto.Signer) (cert, key []byte, err error) {
	private, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		return nil, nil, fmt.Errorf("natsd: write a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), nil
}
