package testenv

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// readyWait bounds the wait for a server that was configured by a file.
const readyWait = 90 * time.Second

// Configured starts a nats-server as its own program starts it from a configuration file, and stops it with the test.
// It listens on a free port of loopback, whatever the file says; adjust may change more. It returns its URL.
func Configured(t testing.TB, path string, adjust func(*server.Options)) string {
	t.Helper()
	s := configured(t, path, adjust)
	if !s.ReadyForConnections(readyWait) {
		t.Fatalf("the server of %s was not ready after %s", path, readyWait)
	}
	return s.ClientURL()
}

// tlsTimeout bounds a handshake with a server of [OverTLS], in seconds.
const tlsTimeout = 30

// OverTLS starts a nats-server that asks for no credentials and speaks TLS as a test says, and stops it with the test.
// It returns its URL.
func OverTLS(t testing.TB, config *tls.Config) string {
	t.Helper()
	return Configured(t, must.File(t, "nats.conf", ""), func(o *server.Options) {
		o.TLS, o.TLSConfig, o.TLSTimeout = true, config, tlsTimeout
	})
}

// configured does not wait until the server is ready: one of a cluster needs the others.
func configured(t testing.TB, path string, adjust func(*server.Options)) *server.Server {
	t.Helper()
	opts, err := server.ProcessConfigFile(path)
	if err != nil {
		t.Fatalf("the configuration %s: %v", path, err)
	}
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	if adjust != nil {
		adjust(opts)
	}
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatalf("the configuration %s: %v", path, err)
	}
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	s.Start()
	return s
}

// Issue writes a certificate of an authority and its key into the test's directory.
func Issue(t testing.TB, a *natsd.Authority, c natsd.Certificate) (certFile, keyFile string) {
	t.Helper()
	cert, key, err := a.Issue(c)
	must.OK(t, err)
	return writePair(t, cert, key)
}

// Authority makes one, and writes its certificate into the test's directory.
func Authority(t testing.TB, name string) (a *natsd.Authority, certFile string) {
	t.Helper()
	a, err := natsd.NewAuthority(name)
	must.OK(t, err)
	cert, key, err := a.PEM()
	must.OK(t, err)
	certFile, _ = writePair(t, cert, key)
	return a, certFile
}

func writePair(t testing.TB, cert, key []byte) (certFile, keyFile string) {
	t.Helper()
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, content := range map[string][]byte{certFile: cert, keyFile: key} {
		must.OK(t, os.WriteFile(path, content, 0o600))
	}
	return certFile, keyFile
}
