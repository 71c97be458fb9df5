//go:build unix

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// bin is where the commands are built, once for all tests.
var bin string

func TestMain(m *testing.M) {
	var err error
	if bin, err = testenv.Binaries("", "cmd/..."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(testenv.RunWaiting(m))
}

// run runs a command to its end.
func run(t *testing.T, stdin io.Reader, name string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	return runIn(t, stdin, reach(args), name, args...)
}

// runIn runs a command with more in its environment to its end.
func runIn(t *testing.T, stdin io.Reader, env []string, name string, args ...string) (stdout, stderr string,
	status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, name), args...)
	cmd.Stdin, cmd.Env = stdin, append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	exit := new(exec.ExitError)
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s %q: %v", name, args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// process is a command that serves.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	says map[string]string // what it printed when it was ready: "nats: URL" and the like
}

// start starts a command and waits until it has said n lines.
func start(t *testing.T, lines int, name string, args ...string) *process {
	t.Helper()
	return startIn(t, lines, reach(args), name, args...)
}

// startIn starts a command with more in its environment.
func startIn(t *testing.T, lines int, env []string, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, says: map[string]string{}, cmd: exec.Command(filepath.Join(bin, name), args...)}
	p.cmd.Stderr, p.cmd.Env = &prefixed{t: t, name: name}, append(os.Environ(), env...)
	out, err := p.cmd.StdoutPipe()
	must.OK(t, err)
	must.OK(t, p.cmd.Start())
	t.Cleanup(func() { p.stop(syscall.SIGKILL) })
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		s := bufio.NewScanner(out)
		for n := 0; n < lines && s.Scan(); n++ {
			if k, v, ok := strings.Cut(s.Text(), ": "); ok {
				p.says[k] = v
			}
		}
		go func() { _, _ = io.Copy(io.Discard, out) }()
	}()
	select {
	case <-ready:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s %q is not ready after 30 s", name, args)
	}
	if name == "dispatcher" && !slices.Contains(args, "--nats") { // a server: one that has ended may have had its port
		stores.Delete(p.says["nats"])
	}
	for i, a := range args {
		if a == "--data" { // the last one counts
			stores.Store(p.says["nats"], args[i+1])
		}
	}
	return p
}

// stores has the store of each server that a test has started, by its URL: credentials are there.
var stores sync.Map

// reach are the settings with which a command finds the credentials for the server that its arguments name.
func reach(args []string) []string {
	for i, a := range args {
		if dir, ok := stores.Load(a); ok && args[max(i-1, 0)] == "--nats" {
			return []string{"TOOLYARD_DATA=" + dir.(string)}
		}
	}
	return nil
}

// credsFor are the credentials of a role, or ROLE.NAME, for the server at a URL.
func credsFor(t *testing.T, url, role string) nats.Option {
	t.Helper()
	dir, ok := stores.Load(url)
	if !ok {
		return func(*nats.Options) error { return nil } // it asks for none
	}
	role, name, _ := strings.Cut(role, ".")
	path, err := natsd.FindCreds(filepath.Join(dir.(string), "creds"),
		access.Principal{Role: access.Role(role), Name: name})
	must.OK(t, err)
	return nats.UserCredentials(path)
}

// stop ends the process and returns its exit status.
func (p *process) stop(sig syscall.Signal) int {
	if p.cmd.ProcessState != nil {
		return p.cmd.ProcessState.ExitCode()
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %s: %v", sig, err)
	}
	_ = p.cmd.Wait() // the status is what counts
	return p.cmd.ProcessState.ExitCode()
}

// prefixed puts a process's log into the test's, and keeps it.
type prefixed struct {
	t    *testing.T
	name string
	mu   sync.Mutex
	kept bytes.Buffer
}

// logged counts how often a process has logged something.
func (p *process) logged(what string) int {
	w := p.cmd.Stderr.(*prefixed)
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.kept.String(), what)
}

func (w *prefixed) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept.Write(b) // it never fails
	fmt.Fprintf(w.t.Output(), "%s: %s", w.name, b)
	return len(b), nil
}

// dispatcher starts a dispatcher with an embedded server, or on one.
func dispatcher(t *testing.T, args ...string) *process {
	t.Helper()
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--data",
		testenv.StoreDir(t)}, args...)
	return start(t, 3, "dispatcher", args...)
}

// worker starts a worker that serves a directory.
func worker(t *testing.T, url, dir string, args ...string) *process {
	t.Helper()
	return start(t, 3, "worker", append([]string{"serve", "--nats", url, "--workspace", "default=" + dir}, args...)...)
}

// connect makes a broker to look at the log with.
func connect(t *testing.T, url string) *natsbroker.Broker {
	t.Helper()
	nc, err := nats.Connect(url, credsFor(t, url, "dispatcher"))
	must.OK(t, err)
	t.Cleanup(nc.Close)
	return testenv.Open(t, nc, broker.Settings{}, "/test")
}

// viewOf reads the batch object that a command printed.
func viewOf(t *testing.T, stdout string) toolyard.BatchView {
	t.Helper()
	var v toolyard.BatchView
	d := json.NewDecoder(strings.NewReader(stdout))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("the output is no batch object: %v\n%s", err, stdout)
	}
	return v
}

// batchFile writes a batch for a command to read.
func batchFile(t *testing.T, b toolyard.Batch) string {
	t.Helper()
	data := must.JSON(t, b)
	path := filepath.Join(t.TempDir(), "batch.json")
	must.OK(t, os.WriteFile(path, data, 0o600))
	return path
}

func input(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// workspace is a directory with some files.
func workspace(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.OK(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return dir
}

// certificate makes a certificate for this machine, which signs itself, and its key.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	must.OK(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	must.OK(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	must.OK(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: signed},
		keyFile: {Type: "PRIVATE KEY", Bytes: encoded}} {
		must.OK(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
	}
	return certFile, keyFile
}
