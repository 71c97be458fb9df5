package cli

import (
	"errors"
	"fmt"
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

// nkey makes an NKey of a user: the file of its seed, and the public key.
func nkey(t *testing.T) (seedFile, public string, pair nkeys.KeyPair) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	must.OK(t, err)
	seed, err := pair.Seed()
	must.OK(t, err)
	if public, err = pair.PublicKey(); err != nil {
		t.Fatal(err)
	}
	return must.File(t, "seed", string(seed)), public, pair
}

// userCreds writes credentials of a user that an account has signed.
func userCreds(t *testing.T, account nkeys.KeyPair, expires time.Time) string {
	t.Helper()
	_, public, pair := nkey(t)
	claims := jwt.NewUserClaims(public)
	claims.Name, claims.Expires = "somebody's own name", expires.Unix()
	token, err := claims.Encode(account)
	must.OK(t, err)
	seed, err := pair.Seed()
	must.OK(t, err)
	content, err := jwt.FormatUserConfig(token, seed)
	must.OK(t, err)
	return must.File(t, "creds", string(content))
}

// signedServer is a server that takes users of one account, which an operator of its own has signed.
func signedServer(t *testing.T) (url string, account nkeys.KeyPair) {
	t.Helper()
	operator, err := nkeys.CreateOperator()
	must.OK(t, err)
	if account, err = nkeys.CreateAccount(); err != nil {
		t.Fatal(err)
	}
	operatorKey, err := operator.PublicKey()
	must.OK(t, err)
	accountKey, err := account.PublicKey()
	must.OK(t, err)
	o, a := jwt.NewOperatorClaims(operatorKey), jwt.NewAccountClaims(accountKey)
	o.Name, a.Name = "o", "a"
	signedO, err := o.Encode(operator)
	must.OK(t, err)
	signedA, err := a.Encode(operator)
	must.OK(t, err)
	conf := fmt.Sprintf("operator: %q\nresolver: MEMORY\nresolver_preload: { %s: %q }\n", signedO, accountKey, signedA)
	return testenv.Configured(t, must.File(t, "conf", conf), nil), account
}

// connects are tried against a server.
type connect struct {
	name  string
	reach Reach
	// says are parts of the error; none: it connects.
	says []string
}

func (c connect) try(t *testing.T, url string) {
	t.Helper()
	nc, err := c.reach.Connect(url, access.Principal{Role: access.Operator}, "test", testenv.Log(t))
	if err == nil {
		nc.Close()
		if len(c.says) > 0 {
			t.Errorf("%s: it connects; want an error that says %q", c.name, c.says)
		}
		return
	}
	if len(c.says) == 0 {
		t.Errorf("%s: %v", c.name, err)
	}
	if strings.Contains(err.Error(), "is the server there?") {
		t.Errorf("%s: a refusal is taken for a server that is away: %v", c.name, err)
	}
	for _, s := range c.says {
		if !strings.Contains(err.Error(), s) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the error does not say %q in one line: %v", c.name, s, err)
		}
	}
	// A program that runs for long does not wait for what waiting does not mend.
	if nc, err := c.reach.Await(t.Context(), url, access.Principal{Role: access.Operator}, "test",
		testenv.Log(t)); err == nil {
		nc.Close()
		t.Errorf("%s: the second time it connects", c.name)
	}
}

// TestNKeys: a command connects with the seed of an NKey; one that the server does not know is named.
func TestNKeys(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir()) // this machine may have a system of its own
	known, public, _ := nkey(t)
	unknown, _, _ := nkey(t)
	url := testenv.Configured(t, must.File(t, "conf", "authorization { users: [ { nkey: "+public+" } ] }\n"), nil)
	for _, c := range []connect{
		{"the right one", Reach{NKey: known}, nil},
		{"another", Reach{NKey: unknown}, []string{unknown, "does not take the NKey", "public key", "--nats-nkey"}},
		{"none", Reach{}, []string{"there are none for operator", "--creds"}},
		{"no seed", Reach{NKey: must.File(t, "nonsense", "nonsense")}, []string{"--nats-nkey", "has no seed"}},
		{"two", Reach{NKey: known, Creds: known}, []string{"--creds and --nats-nkey exclude each other"}},
		{"a context too", Reach{NKey: known, Context: "c"}, []string{"--nats-nkey and --nats-context exclude"}},
	} {
		c.try(t, url)
	}
}

// TestCredentialsOfOthers: credentials that Toolyard has not made are taken, and those that ran out are named.
func TestCredentialsOfOthers(t *testing.T) {
	url, account := signedServer(t)
	stranger, err := nkeys.CreateAccount()
	must.OK(t, err)
	good := userCreds(t, account, time.Now().Add(time.Hour))
	expired, wrong := userCreds(t, account, time.Now().Add(-time.Hour)), userCreds(t, stranger, time.Time{})
	for _, c := range []connect{
		{"the right ones", Reach{Creds: good}, nil},
		{"expired ones", Reach{Creds: expired}, []string{expired, "ran out at 20", "put new ones there"}},
		{"of another system", Reach{Creds: wrong}, []string{wrong, "does not take the credentials", "--creds"}},
		{"none at all", Reach{Creds: must.File(t, "nonsense", "nonsense")}, []string{"--creds"}},
	} {
		c.try(t, url)
	}
}

// TestCertificates: a command connects to a server that shows a certificate of a private CA and asks for one. A
// certificate that is missing, wrong or not valid any more is named, on either side.
func TestCertificates(t *testing.T) {
	ca, caFile := testenv.Authority(t, "our CA")
	other, otherFile := testenv.Authority(t, "another CA")
	past := time.Now().Add(-time.Hour)
	server := func(c natsd.Certificate) string {
		cert, key := testenv.Issue(t, ca, c)
		conf := fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }\n", cert, key, caFile)
		return testenv.Configured(t, must.File(t, "conf", conf), nil)
	}
	local := []string{"127.0.0.1"}
	url := server(natsd.Certificate{Name: "node", Hosts: local})
	cert, key := testenv.Issue(t, ca, natsd.Certificate{Name: "worker"})
	oldCert, oldKey := testenv.Issue(t, ca, natsd.Certificate{Name: "worker", From: past.Add(-time.Hour), To: past})
	wrongCert, wrongKey := testenv.Issue(t, other, natsd.Certificate{Name: "worker"})
	for _, c := range []connect{
		{"the right one", Reach{CA: caFile, Cert: cert, Key: key}, nil},
		{"none", Reach{CA: caFile}, []string{"asks for a certificate", "--nats-client-cert", "--nats-client-key"}},
		{"of another CA", Reach{CA: caFile, Cert: wrongCert, Key: wrongKey},
			[]string{"does not take the certificate in " + wrongCert}},
		{"one that ran out", Reach{CA: caFile, Cert: oldCert, Key: oldKey},
			[]string{oldCert, "is valid from", past.UTC().Format(time.RFC3339), "renew it"}},
		{"no CA", Reach{Cert: cert, Key: key}, []string{"127.0.0.1", "issued by CN=our CA", "--nats-ca"}},
		{"another CA", Reach{CA: otherFile, Cert: cert, Key: key}, []string{"signed by none of " + otherFile}},
		{"half", Reach{CA: caFile, Cert: cert}, []string{"--nats-client-cert and --nats-client-key go together"}},
		{"another's key", Reach{CA: caFile, Cert: cert, Key: oldKey}, []string{"--nats-client-key", "does not match"}},
		{"no CA in the file", Reach{CA: key}, []string{"--nats-ca", "no certificate in PEM"}},
	} {
		c.try(t, url)
	}
	connect{"the server's ran out", Reach{CA: caFile, Cert: cert, Key: key}, []string{"of the NATS server (127.0.0.1)",
		"is valid from", past.UTC().Format(time.RFC3339), "renew it on the server"}}.try(t,
		server(natsd.Certificate{Name: "node", Hosts: local, From: past.Add(-time.Hour), To: past}))
	connect{"the server's is for another name", Reach{CA: caFile, Cert: cert, Key: key},
		[]string{"is for nats.example and not for 127.0.0.1"}}.try(t,
		server(natsd.Certificate{Name: "node", Hosts: []string{"nats.example"}}))
	if errs := new(UsageError); !errors.As((&Reach{Cert: "a"}).exclusive(), &errs) {
		t.Error("flags that do not go together are no error of usage")
	}
}
