//go:build unix

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestHTTPOverTLS: the HTTP API speaks TLS from files. With SIGHUP a new certificate and a new token are in force, and
// the process goes on.
func TestHTTPOverTLS(t *testing.T) {
	t.Parallel()
	ca, caFile := testenv.Authority(t, "ca")
	cert, key := testenv.Issue(t, ca, natsd.Certificate{Name: "first", Hosts: []string{"127.0.0.1"}})
	tokens := filepath.Join(t.TempDir(), "tokens")
	put := func(path, content string) {
		t.Helper()
		must.OK(t, os.WriteFile(path+".new", []byte(content), 0o600))
		must.OK(t, os.Rename(path+".new", path))
	}
	put(tokens, "before-1 *\n")
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	d := dispatcher(t, "--with-worker", "--workspace", "default="+dir, "--tls-cert", cert, "--tls-key", key,
		"--token-file", tokens)
	url := d.says["http"]
	if !strings.HasPrefix(url, "https://") {
		t.Fatalf("it says that HTTP is at %q", url)
	}
	p := newPlace(t, nil)
	b := batchFile(t, unmarshalBatch(t, `{"calls":[{"id":"1","tool":"read_file","input":{"file_path":"a.txt"}}]}`))
	if stdout, stderr, status := p.run(nil, []string{"TOOLYARD_TOKEN=before-1", "TOOLYARD_SERVER_CA=" + caFile},
		"submit", "--server", url, "--json", b); status != 0 || !strings.Contains(stdout, "one") {
		t.Errorf("exit status %d: %s", status, stderr)
	}
	if _, stderr, status := p.run(nil, []string{"TOOLYARD_TOKEN=before-1"}, "batches", "--server", url); status != 1 ||
		!strings.Contains(stderr, "certificate") {
		t.Errorf("without the CA: exit status %d: %s", status, stderr)
	}
	pem := must.Read(t, caFile)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	// ask is whom the server says it is, and what it answers a token.
	ask := func(token string) (name string, status int) {
		t.Helper()
		c := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true, ForceAttemptHTTP2: true,
		}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/batches", nil)
		must.OK(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		got, err := c.Do(r)
		must.OK(t, err)
		if err := got.Body.Close(); err != nil {
			t.Error(err)
		}
		if got.ProtoMajor != 2 {
			t.Errorf("it speaks %s", got.Proto)
		}
		return got.TLS.PeerCertificates[0].Subject.CommonName, got.StatusCode
	}
	if name, status := ask("before-1"); name != "first" || status != http.StatusOK {
		t.Errorf("before: %s, %d", name, status)
	}
	newCert, newKey, err := ca.Issue(natsd.Certificate{Name: "second", Hosts: []string{"127.0.0.1"}})
	must.OK(t, err)
	put(cert, string(newCert))
	put(key, string(newKey))
	put(tokens, "after-1 *\n")
	must.OK(t, d.cmd.Process.Signal(syscall.SIGHUP))
	for end := time.Now().Add(30 * time.Second); ; {
		name, status := ask("after-1")
		if name == "second" && status == http.StatusOK {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("after SIGHUP: %s, %d", name, status)
		}
	}
	if _, status := ask("before-1"); status != http.StatusUnauthorized {
		t.Errorf("the former token: %d", status)
	}
	for _, args := range [][]string{{"--tls-cert", cert}, {"--tls-key", key}, {"--tls-cert", cert, "--tls-key", cert}} {
		if _, stderr, status := p.run(nil, nil, append([]string{"serve", "--data", t.TempDir(), "--listen",
			"127.0.0.1:0", "--nats-listen", "127.0.0.1:0"}, args...)...); status != 2 ||
			!strings.Contains(stderr, "--tls-key") {
			t.Errorf("%s: exit status %d: %s", args, status, stderr)
		}
	}
}
