package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// certificateLook is how often the files of a certificate are read again.
	certificateLook = 5 * time.Second
	// certificateWarn is how long before its end a certificate is warned about.
	certificateWarn = 7 * 24 * time.Hour
	// certificateWarnAgain is how long after a warning the same one is due.
	certificateWarnAgain = 24 * time.Hour
)

// Certificate is a server's certificate in two files, which may be replaced while the server runs. New connections get
// the new one; those that exist are kept.
type Certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	now               atomic.Pointer[tls.Certificate]

	mu        sync.Mutex
	cert, key []byte   // what is in force
	warned    warnings // about it
}

// warnings are those about the end of one certificate.
type warnings struct {
	last    time.Time
	runsOut bool // the last one said that it has run out
}

// due reports whether a certificate that is valid until some time is to be warned about now. That is once a day, and at
// once when it has run out.
func (w *warnings) due(now, until time.Time) bool {
	runsOut := !now.Before(until)
	if until.Sub(now) >= certificateWarn || runsOut == w.runsOut && now.Sub(w.last) < certificateWarnAgain {
		return false
	}
	w.last, w.runsOut = now, runsOut
	return true
}

// ReadCertificate reads a certificate and its key.
func ReadCertificate(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, log: log}
	return c, c.Read()
}

// Read reads the files again. If they do not fit together, the former certificate stays in force. It warns of the one
// that is in force then when that runs out soon, also when nothing has changed.
func (c *Certificate) Read() error { return c.readAt(time.Now()) }

func (c *Certificate) readAt(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.replace()
	pair := c.now.Load()
	if pair == nil || !c.warned.due(now, pair.Leaf.NotAfter) {
		return err
	}
	text := "a certificate runs out soon: renew it"
	if c.warned.runsOut {
		text = "a certificate has run out: renew it"
	}
	c.log.Warn(text, "file", c.certFile, "until", pair.Leaf.NotAfter)
	return err
}

// replace puts what the files have in force, if that is something else.
func (c *Certificate) replace() error {
	cert, err := os.ReadFile(c.certFile)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(c.keyFile)
	if err != nil {
		return err
	}
	if c.now.Load() != nil && bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s and %s: %w", c.certFile, c.keyFile, err)
	}
	c.cert, c.key = cert, key
	c.now.Store(&pair)
	c.warned = warnings{}
	c.log.Info("a certificate was read", "file", c.certFile, "until", pair.Leaf.NotAfter)
	return nil
}

// Follow reads the files again and again until ctx ends.
func (c *Certificate) Follow(ctx context.Context) {
	tick := time.NewTicker(certificateLook)
	defer tick.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch err := c.Read(); {
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			c.log.Error("a certificate cannot be read again; the former one stays in force", "error", err)
		}
	}
}

// Config is what a server listens with.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.now.Load(), nil },
	}
}

// HTTPClient is a client that checks a server's certificate against those in a file; nil for an empty path.
func HTTPClient(flag, path string) (*http.Client, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // the default one
	}
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, Usagef("%s: %w", flag, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, Usagef("%s %s: it has no certificate in PEM", flag, path)
	}
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, fmt.Errorf("the default transport is a %T", http.DefaultTransport)
	}
	transport = transport.Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return &http.Client{Transport: transport}, nil
}
