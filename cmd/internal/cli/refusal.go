package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/internal/natsd"
)

// identity is as whom a command connects, for messages about a server that does not accept it.
type identity struct {
	reach *Reach
	creds *credentials // nil: an NKey or a context
}

// refusal is an error that waiting does not mend. It wraps nothing: a network error below it would look as if the
// server were away.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// Refused reports whether a server does not take who one is.
func Refused(err error) bool {
	if _, ok := errors.AsType[*refusal](err); ok {
		return true
	}
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) ||
		errors.Is(err, nats.ErrAuthRevoked) || errors.Is(err, nats.ErrAccountAuthExpired)
}

// explain says in one line which credentials or which certificate is wrong, and what to do. Other errors stay as they
// are.
func (i identity) explain(err error) error {
	if err == nil {
		return nil
	}
	if Refused(err) {
		return i.explainRefused(err)
	}
	if text := i.explainTLS(err); text != "" {
		return &refusal{text}
	}
	if errors.Is(err, nats.ErrTLS) { // the alert was lost, or the server has gone: waiting is right
		return fmt.Errorf("%w; either it has gone, or %s", err, i.wanted())
	}
	return err
}

func (i identity) explainRefused(err error) error {
	switch {
	case i.creds != nil:
		return i.creds.explain(err)
	case i.reach.Context != "":
		return fmt.Errorf("%w: the server does not take the credentials of the context %s: see \"nats context show\"", err,
			i.reach.Context)
	}
	return fmt.Errorf("%w: the server does not take the NKey in %s: have its operator add the public key to the "+
		"server's users, or name another with --nats-nkey", err, i.reach.NKey)
}

// explainTLS is "" for an error that is not about certificates.
func (i identity) explainTLS(err error) string {
	bad, ok := errors.AsType[x509.CertificateInvalidError](err)
	if ok && bad.Reason == x509.Expired && bad.Cert != nil {
		return fmt.Sprintf("the certificate of the NATS server (%s) is valid from %s to %s, and it is %s: renew it on "+
			"the server, or set the clock of this machine", names(bad.Cert), moment(bad.Cert.NotBefore),
			moment(bad.Cert.NotAfter), moment(time.Now()))
	}
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		issuer := ""
		if unknown.Cert != nil {
			issuer = fmt.Sprintf(" (%s, issued by %s)", names(unknown.Cert), unknown.Cert.Issuer)
		}
		by := "the certificates of this machine"
		if i.reach.CA != "" {
			by = i.reach.CA
		}
		return fmt.Sprintf("the certificate of the NATS server%s is signed by none of %s: name the file of its CA with "+
			"--nats-ca (%s)", issuer, by, EnvName("nats-ca"))
	}
	if other, ok := errors.AsType[x509.HostnameError](err); ok && other.Certificate != nil {
		return fmt.Sprintf("the certificate of the NATS server is for %s and not for %s: connect to one of its names, or "+
			"give the server a certificate for this one", names(other.Certificate), other.Host)
	}
	if text := i.ownExpired(); text != "" {
		return text
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" { // an alert of TLS
		return fmt.Sprintf("%s (%v)", i.wanted(), op.Err)
	}
	return ""
}

// wanted says what to do about a server that does not take the client's certificate.
func (i identity) wanted() string {
	if i.reach.Cert != "" {
		return fmt.Sprintf("the NATS server does not take the certificate in %s: name one that its CA has signed, with "+
			"--nats-client-cert and --nats-client-key", i.reach.Cert)
	}
	return fmt.Sprintf("the NATS server asks for a certificate: name one that its CA has signed, with "+
		"--nats-client-cert (%s) and --nats-client-key (%s)", EnvName("nats-client-cert"), EnvName("nats-client-key"))
}

// ownExpired says that the client's own certificate is not valid now. The server may only hang up.
func (i identity) ownExpired() string {
	if i.reach.Cert == "" {
		return ""
	}
	pair, err := tls.LoadX509KeyPair(i.reach.Cert, i.reach.Key)
	if err != nil {
		return fmt.Sprintf("the certificate in %s, or its key in %s, cannot be read any more: %v", i.reach.Cert,
			i.reach.Key, err)
	}
	if now := time.Now(); now.After(pair.Leaf.NotAfter) || now.Before(pair.Leaf.NotBefore) {
		return fmt.Sprintf("the certificate in %s is valid from %s to %s, and it is %s: renew it, or set the clock of "+
			"this machine", i.reach.Cert, moment(pair.Leaf.NotBefore), moment(pair.Leaf.NotAfter), moment(now))
	}
	return ""
}

// moment is a time in messages.
func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// names are whom a certificate is for.
func names(c *x509.Certificate) string {
	all := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	if len(all) == 0 {
		return c.Subject.String()
	}
	return strings.Join(all, ", ")
}

// whenRefusedLater logs the explanation when a running connection is refused. The library tries again several times a
// second; one line says it until something else is wrong.
func (i identity) whenRefusedLater(log *slog.Logger) nats.Option {
	return func(o *nats.Options) error {
		next := o.AsyncErrorCB
		var mu sync.Mutex
		said := ""
		o.AsyncErrorCB = func(nc *nats.Conn, sub *nats.Subscription, err error) {
			if !Refused(err) {
				next(nc, sub, err)
				return
			}
			text := i.explain(err).Error()
			mu.Lock()
			again := said == text
			said = text
			mu.Unlock()
			if !again {
				log.Error("NATS refuses this connection; trying again", "error", text)
			}
		}
		return nil
	}
}

// sayWhyNot logs which certificate keeps a lost connection from coming back, until the connection is closed. The
// library tries again several times a second and tells nobody why that fails; one line says it in each outage.
func (i identity) sayWhyNot(nc *nats.Conn, log *slog.Logger) {
	link := nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(link)
	said := false
	for status := range link {
		why := nc.LastError()
		switch {
		case nc.IsClosed():
			return
		case status == nats.CONNECTED:
			said = false
		case !said && why != nil:
			if text := i.explainTLS(why); text != "" {
				log.Error("the connection to NATS does not come back; trying again", "error", text)
				said = true
			}
		}
	}
}

// explain says which credentials a server did not take, and what to do.
func (c *credentials) explain(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	where := "name those of its dispatcher, DIR/creds of its --data DIR, with --creds FILE (" + EnvName("creds") +
		") or --data DIR (" + EnvName("data") + ")"
	if c.used == "" {
		looked := ""
		if c.dir != "" {
			looked = " in " + c.dir
		}
		return fmt.Errorf("%w: the server asks for credentials, and there are none for %s%s: %s", err, c.whose, looked,
			where)
	}
	if have, rerr := natsd.ReadCreds(c.used); rerr == nil && !have.Expires.IsZero() && time.Now().After(have.Expires) {
		return fmt.Errorf("%w: the credentials in %s ran out at %s: put new ones there, or name others with --creds",
			err, c.used, moment(have.Expires))
	}
	return fmt.Errorf("%w: the server does not take the credentials in %s: %s", err, c.used, where)
}
