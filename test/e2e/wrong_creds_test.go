//go:build unix

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// expired are credentials of a user of the platform's account whose time is over.
func expired(t *testing.T, creds string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(creds, "keys", "server.platform.*.nk"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the keys of the platform's account are %q: %v", found, err)
	}
	seed := must.Read(t, found[0])
	account, err := nkeys.FromSeed([]byte(strings.TrimSpace(string(seed))))
	must.OK(t, err)
	user, err := nkeys.CreateUser()
	must.OK(t, err)
	public, err := user.PublicKey()
	must.OK(t, err)
	claims := jwt.NewUserClaims(public)
	claims.Expires = time.Now().Add(-time.Hour).Unix()
	token, err := claims.Encode(account)
	must.OK(t, err)
	own, err := user.Seed()
	must.OK(t, err)
	content, err := jwt.FormatUserConfig(token, own)
	must.OK(t, err)
	path := filepath.Join(t.TempDir(), "expired.creds")
	must.OK(t, os.WriteFile(path, content, 0o600))
	return path
}

// TestExpiredCertificates: a command that meets a server whose certificate ran out, or has such a one itself, ends with
// one line that says whose it is, when it was valid, and who renews it.
func TestExpiredCertificates(t *testing.T) {
	t.Parallel()
	ca, caFile := testenv.Authority(t, "our CA")
	end := time.Now().Add(-time.Hour)
	issue := func(to time.Time, hosts ...string) (cert, key string) {
		return testenv.Issue(t, ca, natsd.Certificate{Name: "one", Hosts: hosts, From: end.Add(-time.Hour), To: to})
	}
	server := func(cert, key string) string {
		conf := filepath.Join(t.TempDir(), "nats.conf")
		must.OK(t, os.WriteFile(conf, fmt.Appendf(nil, "tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }\n",
			cert, key, caFile), 0o600))
		return testenv.Configured(t, conf, nil)
	}
	cert, key := issue(time.Now().Add(time.Hour), "127.0.0.1")
	oldCert, oldKey := issue(end, "127.0.0.1")
	until := end.UTC().Format(time.RFC3339)
	batch := batchFile(t, unmarshalBatch(t, `{"calls":[{"id":"1","tool":"glob","input":{"pattern":"*"}}]}`))
	good, old := server(cert, key), server(oldCert, oldKey)
	for _, args := range [][]string{{"dispatcher", "serve", "--listen", "127.0.0.1:0"}, {"worker", "serve"},
		{"dispatcher", "submit", batch}} {
		for _, c := range []struct{ url, cert, key, whose, renew string }{
			{old, cert, key, "the certificate of the NATS server (127.0.0.1", "renew it on the server"},
			{good, oldCert, oldKey, "the certificate in " + oldCert, "renew it"},
		} {
			_, stderr, status := run(t, nil, args[0], append(args[1:], "--nats", c.url, "--nats-ca", caFile,
				"--nats-client-cert", c.cert, "--nats-client-key", c.key)...)
			if status != 1 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, c.whose) ||
				!strings.Contains(stderr, "is valid from") || !strings.Contains(stderr, until) ||
				!strings.Contains(stderr, c.renew) {
				t.Errorf("%s: exit status %d: %s", args[:2], status, stderr)
			}
		}
	}
}

// TestWrongCredentials: on a cluster with accounts, a command whose credentials are another's, another system's, the
// servers' own or too old ends with one line that says so and what to name, with and without a dispatcher that knows
// whose they are. So does a dispatcher of another system in the same account.
func TestWrongCredentials(t *testing.T) {
	t.Parallel()
	p := newPlace(t, nil)
	ann := access.Principal{Role: access.Agent, Name: "ann"}
	c := testenv.GuardedCluster(t, ann, access.Principal{Role: access.Worker, Name: "default"})
	dir, _ := c.Creds()
	other := filepath.Join(t.TempDir(), "auth")
	p.ok(nil, "init-auth", other)
	creds := func(name string) string { return filepath.Join(dir, name+".creds") }
	batch := batchFile(t, unmarshalBatch(t,
		`{"agent":"ann","calls":[{"id":"1","tool":"glob","input":{"pattern":"*"}}]}`))
	old := expired(t, dir)
	serve := []string{"dispatcher", "serve", "--listen", "127.0.0.1:0", "--replicas", "3", "--max-store-bytes",
		"1000000000"}
	submit, worker := []string{"dispatcher", "submit", batch}, []string{"worker", "serve"}
	refused := func(args []string, creds string, says ...string) {
		t.Helper()
		_, stderr, status := run(t, nil, args[0], append(args[1:], "--nats", c.ClientURL(), "--nats-ca", c.CA(),
			"--creds", creds)...)
		if status != 1 && status != 2 || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s with %s: exit status %d: %s", args[:2], creds, status, stderr)
		}
		for _, s := range says {
			if !strings.Contains(stderr, s) {
				t.Errorf("%s with %s does not say %q: %s", args[:2], creds, s, stderr)
			}
		}
	}
	// Nobody has set the system up: nobody knows whose the credentials are.
	for _, who := range []string{"worker.default", "system"} {
		refused(serve, creds(who), "no JetStream", "dispatcher.creds")
	}
	for _, args := range [][]string{serve, submit, worker} {
		refused(args, filepath.Join(other, "creds"), "does not take the credentials in "+other, "--creds")
		refused(args, old, "the credentials in "+old+" ran out at", "put new ones there")
	}
	refused(submit, creds("system"), "no dispatcher answers", "--creds")

	startIn(t, 3, []string{"TOOLYARD_NATS=" + c.ClientURL(), "TOOLYARD_NATS_CA=" + c.CA(),
		"TOOLYARD_CREDS=" + creds("dispatcher")}, serve[0], serve[1:]...)
	refused(serve, creds("worker.default"), `those of workers of pool "default"`, "dispatcher.creds")
	refused(serve, creds("agent.ann"), `those of agent "ann"`, "dispatcher.creds")
	refused(append(worker, "--pool", "other"), creds("worker.default"), `pool "default"`, `pool "other"`,
		"dispatcher creds --pool other")
	refused(submit, creds("system"), "--creds")
	refused(submit, creds("worker.default"), `those of workers of pool "default"`)
	refused(append(serve, "--max-store-bytes", "2000000000"), creds("dispatcher"),
		"made with 1000000000, not 2000000000", "an account of NATS has one Toolyard system", "an account of its own")
}
