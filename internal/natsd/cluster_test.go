package natsd

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// cluster is one node on this machine, with the small table.
func cluster(dir string, who ...access.Principal) Cluster {
	a := *asking(dir)
	a.First = nil
	return Cluster{Access: a, Nodes: []string{"localhost", "node-2"}, Principals: who, At: "/etc/nats", Store: "/data"}
}

func agent(name string) access.Principal { return access.Principal{Role: access.Agent, Name: name} }

// files are what is below a directory, with the mode of each.
func files(t *testing.T, dir string) map[string]fs.FileMode {
	t.Helper()
	out := map[string]fs.FileMode{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && !d.IsDir() {
			rel, rerr := filepath.Rel(dir, path)
			if rerr != nil {
				return rerr
			}
			out[rel] = info.Mode().Perm()
		}
		return err
	})
	must.OK(t, err)
	return out
}

// seed is the seed of any NKey.
var seed = regexp.MustCompile(`\bS[OAU][A-Z2-7]{56}\b`)

// TestClusterFiles: secrets are for their owner alone, and a second time nothing is overwritten.
func TestClusterFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "auth")
	c := cluster(dir, agent("ann"), access.Principal{Role: access.Worker, Name: "words"})
	c.Edges = []string{"words"}
	if err := c.Update(dir); !errors.Is(err, ErrNoKeys) {
		t.Errorf("an update of nothing: %v; want %v", err, ErrNoKeys)
	}
	must.OK(t, c.Write(dir))
	have := files(t, dir)
	for _, want := range []string{"README.md", "ca.pem", "creds/operator.creds", "creds/dispatcher.creds",
		"creds/system.creds", "creds/agent.ann.creds", "creds/worker.words.creds", "creds/keys/ca-key.pem",
		"nodes/localhost/nats.conf", "nodes/localhost/accounts.conf", "nodes/localhost/cert.pem",
		"nodes/localhost/key.pem", "nodes/localhost/ca.pem", "nodes/node-2/nats.conf", "edge/words/nats.conf",
		"edge/words/ca.pem"} {
		if _, ok := have[want]; !ok {
			t.Errorf("there is no %s", want)
		}
	}
	for path, mode := range have {
		secret := strings.HasPrefix(path, "creds") || filepath.Base(path) == "key.pem"
		if secret != (mode == 0o600) {
			t.Errorf("%s has the mode %o", path, mode)
		}
	}
	if content, err := os.ReadFile(filepath.Join(dir, "creds", "agent.ann.creds")); err != nil || !seed.Match(content) {
		t.Errorf("credentials have no seed (%v): the next check says nothing", err)
	}
	for path := range have { // a node's directory and the README are for others
		content := must.Read(t, filepath.Join(dir, path))
		if !strings.HasPrefix(path, "creds") && seed.Match(content) {
			t.Errorf("%s has a seed", path)
		}
	}
	if err := c.Write(dir); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("a second time: %v; want %v", err, ErrNotEmpty)
	}
}

// TestClusterUpdate: an update adds credentials, writes accounts and certificates again, and leaves all else. Of whom
// it removes nothing is left.
func TestClusterUpdate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "auth")
	must.OK(t, cluster(dir, agent("ann")).Write(dir))
	read := func() map[string]string {
		out := map[string]string{}
		for path := range files(t, dir) {
			content := must.Read(t, filepath.Join(dir, path))
			out[path] = string(content)
		}
		return out
	}
	before := read()
	must.OK(t, cluster(dir, agent("bob")).Update(dir))
	after := read()
	for path, content := range before {
		again := strings.HasPrefix(path, "nodes/") && !strings.HasSuffix(path, "nats.conf") && !strings.HasSuffix(path,
			"ca.pem")
		if again != (after[path] != content) {
			t.Errorf("%s: written again is %t", path, after[path] != content)
		}
	}
	for _, who := range []string{"agent.ann", "agent.bob"} {
		if _, ok := after["creds/"+who+".creds"]; !ok {
			t.Errorf("there are no credentials of %s", who)
		}
		if !strings.Contains(after["nodes/node-2/accounts.conf"], "# "+who+"\n") {
			t.Errorf("there is no account of %s", who)
		}
	}
	remove := cluster(dir)
	remove.Removed = []access.Principal{agent("ann")}
	must.OK(t, remove.Update(dir))
	for path, content := range read() {
		if strings.Contains(path, "agent.ann") || strings.Contains(content, "agent.ann\n") {
			t.Errorf("of an agent that was removed is left %s", path)
		}
	}
	if err := remove.Update(dir); !errors.Is(err, ErrNoCreds) {
		t.Errorf("an agent without credentials is removed: %v; want %v", err, ErrNoCreds)
	}
	remove.Removed = []access.Principal{{Role: access.Operator}}
	if err := remove.Update(dir); err == nil {
		t.Error("the operators' credentials are removed")
	}
}

// TestClusterUpdateRenewsTheCA: an update in the last two years of a CA makes a new certificate for its key. Nodes and
// clients that have the former one and those that have the new one take each other's. An operator's own CA stays.
func TestClusterUpdateRenewsTheCA(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "auth")
	c := cluster(dir)
	c.Edges = []string{"words"}
	must.OK(t, c.Write(dir))
	at := func(path string) string { return filepath.Join(dir, path) }
	a, err := ReadAuthority(must.Read(t, at("ca.pem")), must.Read(t, at("creds/keys/ca-key.pem")))
	must.OK(t, err)
	old, err := selfSigned(a.cert.Subject.CommonName, a.key, time.Now().Add(CertificateLifetime-time.Hour))
	must.OK(t, err)
	former, _, err := old.PEM()
	must.OK(t, err)
	for _, path := range []string{"ca.pem", "nodes/localhost/ca.pem", "edge/words/ca.pem"} {
		must.OK(t, os.WriteFile(at(path), former, 0o644))
	}
	must.OK(t, os.WriteFile(at("nodes/node-2/ca.pem"), []byte("the operator's own"), 0o644))
	byFormer, _, err := old.Issue(Certificate{Name: "n", Hosts: []string{"localhost"}})
	must.OK(t, err)
	c.Edges = nil
	must.OK(t, c.Update(dir))
	now := must.Read(t, at("ca.pem"))
	for path, want := range map[string][]byte{"nodes/localhost/ca.pem": now, "edge/words/ca.pem": now,
		"nodes/node-2/ca.pem": []byte("the operator's own")} {
		if got := must.Read(t, at(path)); !bytes.Equal(got, want) {
			t.Errorf("%s is %s; want %s", path, got, want)
		}
	}
	must.OK(t, c.Update(dir))
	if !bytes.Equal(must.Read(t, at("ca.pem")), now) {
		t.Error("a CA that is young is renewed")
	}
	for _, roots := range [][]byte{former, now} {
		for _, cert := range [][]byte{byFormer, must.Read(t, at("nodes/localhost/cert.pem"))} {
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(roots)
			block, _ := pem.Decode(cert)
			leaf, err := x509.ParseCertificate(block.Bytes)
			must.OK(t, err)
			if _, err := leaf.Verify(x509.VerifyOptions{DNSName: "localhost", Roots: pool}); err != nil {
				t.Errorf("the certificate until %v with the CA's: %v", leaf.NotAfter, err)
			}
		}
	}
	block, _ := pem.Decode(must.Read(t, at("nodes/localhost/cert.pem")))
	leaf, err := x509.ParseCertificate(block.Bytes)
	must.OK(t, err)
	if left := time.Until(leaf.NotAfter); left < CertificateLifetime-time.Hour {
		t.Errorf("a node's certificate is valid for %s", left)
	}
}

// TestClusterCertificates: a node's certificate is for all nodes, and serves as a client's between them. A client's is
// none of a server.
func TestClusterCertificates(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "auth")
	must.OK(t, cluster(dir).Write(dir))
	ca := must.Read(t, filepath.Join(dir, "ca.pem"))
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		t.Fatal("the CA is no certificate")
	}
	at := filepath.Join(dir, "nodes", "node-2")
	pair, err := tls.LoadX509KeyPair(filepath.Join(at, "cert.pem"), filepath.Join(at, "key.pem"))
	must.OK(t, err)
	for _, name := range []string{"node-2", "localhost", "127.0.0.1"} {
		for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots,
				KeyUsages: []x509.ExtKeyUsage{use}}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	a, err := NewAuthority("a")
	must.OK(t, err)
	cert, _, err := a.Issue(Certificate{Name: "client"})
	must.OK(t, err)
	block, _ := pem.Decode(cert)
	client, err := x509.ParseCertificate(block.Bytes)
	must.OK(t, err)
	if len(client.ExtKeyUsage) != 1 || client.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth {
		t.Errorf("a client's certificate is for %v", client.ExtKeyUsage)
	}
}

// TestSystemCredentials: the credentials of the servers' own account reach the servers, and no stream.
func TestSystemCredentials(t *testing.T) {
	dir := t.TempDir()
	a := asking(dir)
	acc, err := a.keys(slog.New(slog.DiscardHandler))
	must.OK(t, err)
	path := filepath.Join(a.Dir, "system.creds")
	must.OK(t, acc.ring.systemCreds(path))
	s := startServer(t, Options{StoreDir: dir, Listen: "127.0.0.1:0", Access: a})
	nc := as(t, s, path)
	if _, err := nc.Request("$SYS.REQ.SERVER.PING", nil, readyWait); err != nil {
		t.Errorf("the servers do not answer: %v", err)
	}
	if _, err := nc.Request("in.ann.1", nil, readyWait); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("a publish for an agent: %v; want %v", err, nats.ErrNoResponders)
	}
}

// TestClusterReload: a server that reads its accounts again knows an agent who was added, and closes the connections of
// one who was removed, or has new credentials. It takes their old ones no more.
func TestClusterReload(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "auth")
	must.OK(t, cluster(dir, agent("ann"), agent("eve")).Write(dir))
	conf := filepath.Join(dir, "nodes", "node-2", "test.conf")
	must.OK(t, os.WriteFile(conf, []byte("listen: \"127.0.0.1:-1\"\ninclude \"accounts.conf\"\n"), 0o600))
	o, err := server.ProcessConfigFile(conf)
	must.OK(t, err)
	o.NoSigs, o.NoLog = true, true
	s, err := server.NewServer(o)
	must.OK(t, err)
	s.Start()
	t.Cleanup(func() { end(s) })
	if !s.ReadyForConnections(readyWait) {
		t.Fatal("the server is not ready")
	}
	closed := make(chan struct{}, 2)
	creds := func(name string) string { return filepath.Join(dir, "creds", name+".creds") }
	before := map[string]string{}
	for _, name := range []string{"agent.ann", "agent.eve"} {
		content := must.Read(t, creds(name))
		before[name] = filepath.Join(t.TempDir(), name)
		must.OK(t, os.WriteFile(before[name], content, 0o600))
		nc, err := nats.Connect(s.ClientURL(), nats.UserCredentials(before[name]), nats.NoReconnect(),
			nats.ClosedHandler(func(*nats.Conn) { closed <- struct{}{} }))
		must.OK(t, err)
		t.Cleanup(nc.Close)
	}
	change := cluster(dir, agent("bob"), agent("eve"))
	change.Removed = []access.Principal{agent("ann"), agent("eve")}
	must.OK(t, errors.Join(change.Update(dir), s.Reload()))
	for range before {
		<-closed
	}
	for name, path := range before {
		if _, err := nats.Connect(s.ClientURL(), nats.UserCredentials(path)); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("the old credentials of %s: %v; want %v", name, err, nats.ErrAuthorization)
		}
	}
	for _, name := range []string{"agent.bob", "agent.eve"} {
		nc, err := nats.Connect(s.ClientURL(), nats.UserCredentials(creds(name)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		nc.Close()
	}
	if _, err := os.Stat(creds("agent.ann")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the credentials that were removed: %v", err)
	}
}

// TestTheOperatorStays: accounts that are written again later name the operator in the same words. A server refuses to
// reload a configuration with others.
func TestTheOperatorStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "auth")
		operator := func() string {
			content := must.Read(t, filepath.Join(dir, "nodes", "node-2", "accounts.conf"))
			_, rest, _ := strings.Cut(string(content), "operator: ")
			line, _, _ := strings.Cut(rest, "\n")
			return line
		}
		must.OK(t, cluster(dir, agent("ann")).Write(dir))
		first := operator()
		time.Sleep(time.Hour) // of the bubble's clock: signatures say when they were made
		must.OK(t, cluster(dir, agent("bob")).Update(dir))
		if again := operator(); again != first || first == "" {
			t.Errorf("the operator was %s, and is %s", first, again)
		}
	})
}
