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
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	return selfSigned(name, key, time.Now().Add(AuthorityLifetime))
}

// Renewed is an authority with the same name and key, and a certificate that is valid for longer. What either signs is
// valid for whoever has the certificate of one of them, so they can be replaced in any order.
func (a *Authority) Renewed() (*Authority, error) {
	return selfSigned(a.cert.Subject.CommonName, a.key, time.Now().Add(AuthorityLifetime))
}

// selfSigned is an authority that is valid from now on until some time.
func selfSigned(name string, key crypto.Signer, until time.Time) (*Authority, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-clockSlack), NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	a := &Authority{cert: template, key: key}
	der, err := a.sign(template, key)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("natsd: make an authority: %w", err)
	}
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
				"valid no longer", a.cert.Subject.CommonName,
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
	signer, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	der, err := a.sign(template, signer)
	if err != nil {
		return nil, nil, err
	}
	return inPEM(der, signer)
}

func newKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("natsd: make a key: %w", err)
	}
	return key, nil
}

// sign signs a certificate for a key.
func (a *Authority) sign(template *x509.Certificate, key crypto.Signer) (der []byte, err error) {
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, fmt.Errorf("natsd: make a certificate: %w", err)
	}
	if der, err = x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key); err != nil {
		return nil, fmt.Errorf("natsd: make a certificate: %w", err)
	}
	return der, nil
}

func inPEM(der []byte, signer crypto.Signer) (cert, key []byte, err error) {
	private, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		return nil, nil, fmt.Errorf("natsd: write a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), nil
}
