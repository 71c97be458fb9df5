package natsd

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// asking is a small table: agents may store under their own name, and ask and hear under it.
func asking(dir string) *Access {
	grants := func(p access.Principal) []access.Grant {
		switch p.Role {
		case access.Agent:
			return []access.Grant{{Subject: "in." + p.Name + ".*"}, {Subject: "get." + p.Name, Way: access.AskMany},
				{Subject: "live." + p.Name + ".>", Way: access.Hear}}
		case access.Worker:
			return []access.Grant{{Subject: "ev." + p.Name + ".*"}, {Subject: "get." + p.Name, Way: access.AskMany}}
		}
		return nil
	}
	return &Access{
		Dir: filepath.Join(dir, "creds"), Grants: grants, First: []access.Principal{{Role: access.Agent, Name: "ann"}},
		Exports: []access.Grant{
			{Subject: "in.*.*"}, {Subject: "ev.*.*"}, {Subject: "get.*", Way: access.AskMany},
			{Subject: "live.*.>", Way: access.Hear},
		},
	}
}

func as(t *testing.T, s *Server, path string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL(), nats.UserCredentials(path))
	must.OK(t, err)
	t.Cleanup(nc.Close)
	return nc
}

func TestCredentialsAreAskedFor(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, Options{StoreDir: dir, Listen: "127.0.0.1:0", Access: asking(dir)})
	if _, err := nats.Connect(s.ClientURL()); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("without credentials: %v; want %v", err, nats.ErrAuthorization)
	}
	creds, made := s.Creds()
	if !made {
		t.Error("the first start did not say that it made credentials")
	}
	for _, name := range []string{"operator", "dispatcher", "agent"} {
		path := filepath.Join(creds, name+".creds")
		if mode := stat(t, path).Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %o; want 600", path, mode)
		}
		as(t, s, path)
	}
	for _, d := range []string{creds, filepath.Join(creds, "keys")} {
		if mode := stat(t, d).Mode().Perm(); mode != 0o700 {
			t.Errorf("%s has mode %o; want 700", d, mode)
		}
	}
	// The platform has streams, of an agent what it publishes under its name, and the agent the answer.
	_, js := connect(t, s)
	makeStream(t, js)
	ann := as(t, s, filepath.Join(creds, "agent.creds"))
	if m, err := ann.Request("in.ann.1", []byte("one"), 5*time.Second); err != nil ||
		!strings.Contains(string(m.Data), `"seq":1`) {
		t.Errorf("a publish that is granted: %v, %v", m, err)
	}
	for _, subject := range []string{"in.bob.1", "$JS.API.STREAM.INFO.IN", "$JS.API.STREAM.PURGE.IN", "ev.default.1"} {
		m, err := ann.Request(subject, nil, 5*time.Second)
		if !errors.Is(err, nats.ErrNoResponders) && (err != nil ||
			!strings.Contains(string(m.Data), "not enabled for account")) {
			t.Errorf("%s: %v, %v; want %v", subject, m, err, nats.ErrNoResponders)
		}
	}
	// One who comes later is known at once.
	path, err := MakeCreds(creds, access.Principal{Role: access.Agent, Name: "bob"})
	must.OK(t, err)
	bob := as(t, s, path)
	if _, err := bob.Request("in.bob.1", nil, 5*time.Second); err != nil {
		t.Errorf("credentials that were made later: %v", err)
	}
	// Answers that come through reply subjects stay with whoever asks.
	must.OK(t, ann.PublishRequest("in.ann.2", "in.bob.2", []byte("two")))
	must.OK(t, ann.Flush())
	if _, err := ann.Request("in.ann.3", nil, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "IN")
	must.OK(t, err)
	if m, err := stream.GetLastMsgForSubject(t.Context(), "in.bob.2"); !errors.Is(err, jetstream.ErrMsgNotFound) {
		t.Errorf("an answer was stored as another's: %v, %v", m, err)
	}
	c, err := ReadCreds(path)
	if p, ours := c.Principal(); err != nil || !ours || p != (access.Principal{Role: access.Agent, Name: "bob"}) {
		t.Errorf("whose: %v, %v", p, err)
	}
}

func TestCredentialsStay(t *testing.T) {
	dir := t.TempDir()
	first := startServer(t, Options{StoreDir: dir, Listen: "127.0.0.1:0", Access: asking(dir)})
	creds, _ := first.Creds()
	before := must.Read(t, filepath.Join(creds, "agent.creds"))
	_, js := connect(t, first)
	makeStream(t, js)
	first.Shutdown()
	second := startServer(t, Options{StoreDir: dir, Listen: "127.0.0.1:0", Access: asking(dir)})
	if _, untold := second.Creds(); !untold {
		t.Error("credentials that nobody has been told of are old ones")
	}
	must.OK(t, second.Told())
	if _, untold := second.Creds(); untold {
		t.Error("the second start says that it made credentials")
	}
	after, err := os.ReadFile(filepath.Join(creds, "agent.creds"))
	if err != nil || string(after) != string(before) {
		t.Errorf("the credentials have changed (%v)", err)
	}
	ann := as(t, second, filepath.Join(creds, "agent.creds"))
	if _, err := ann.Request("in.ann.1", nil, 5*time.Second); err != nil {
		t.Error(err)
	}
}

// makeStream makes a stream of what agents send.
func makeStream(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "IN",
		Subjects: []string{"in.>"}}); err != nil {
		t.Fatal(err)
	}
}

// storeOne stores the first message of that stream, and oneIsThere checks that it is still there.
func storeOne(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	if _, err := js.Publish(t.Context(), "in.ann.1", []byte("one")); err != nil {
		t.Fatal(err)
	}
}

func oneIsThere(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	stream, err := js.Stream(t.Context(), "IN")
	if err != nil {
		t.Fatalf("what was stored: %v", err)
	}
	if m, err := stream.GetMsg(t.Context(), 1); err != nil || string(m.Data) != "one" {
		t.Errorf("the message of before: %v, %v", m, err)
	}
}

// A store of a server that asked for no credentials is taken over.
func TestStoreWithoutAccountsIsTakenOver(t *testing.T) {
	dir := t.TempDir()
	first := startServer(t, Options{StoreDir: dir})
	_, js := connect(t, first)
	makeStream(t, js)
	storeOne(t, js)
	first.Shutdown()
	second := startServer(t, Options{StoreDir: dir, Listen: "127.0.0.1:0", Access: asking(dir)})
	_, js = connect(t, second)
	oneIsThere(t, js)
}

// TestKeysThatAreLost: where a key is damaged, the error says what to do. Whoever does it has new credentials, and what
// was stored.
func TestKeysThatAreLost(t *testing.T) {
	dir := t.TempDir()
	options := Options{StoreDir: dir, Listen: "127.0.0.1:0", Access: asking(dir)}
	first := startServer(t, options)
	_, js := connect(t, first)
	makeStream(t, js)
	storeOne(t, js)
	creds, _ := first.Creds()
	first.Shutdown()
	keys, err := matching(filepath.Join(creds, keysDir), keyPlatform+".*")
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	must.OK(t, os.WriteFile(keys[0], nil, 0o600))
	_, err = Start(t.Context(), options)
	if err == nil {
		t.Fatal("a server starts without the key of its streams")
	}
	_, said, _ := strings.Cut(err.Error(), "remove all of ")
	gone, _, ok := strings.Cut(said, " for new ")
	if !ok || !strings.HasPrefix(gone, creds) {
		t.Fatalf("error %v; want one that says what to remove", err)
	}
	must.OK(t, os.RemoveAll(gone))
	second := startServer(t, options)
	_, js = connect(t, second)
	oneIsThere(t, js)
	ann := as(t, second, filepath.Join(creds, "agent.creds"))
	if _, err := ann.Request("in.ann.2", nil, 5*time.Second); err != nil {
		t.Errorf("with the new credentials: %v", err)
	}
	second.Shutdown()
	other := filepath.Join(dir, "jetstream", noAccount)
	must.OK(t, errors.Join(os.RemoveAll(gone), os.Mkdir(other, 0o700)))
	if s, err := Start(t.Context(), options); err == nil || !strings.Contains(err.Error(), other) {
		if err == nil {
			s.Shutdown()
		}
		t.Errorf("with the streams of two servers: %v; want an error that names them", err)
	}
}

// oddName is the name of a directory with brackets, which mean something in a pattern of file names.
const oddName = "[a] b"

// TestDirectoriesWithOddNames: any name of the directory will do, also one that would be a pattern: keys are found
// again, and what is removed is gone.
func TestDirectoriesWithOddNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), oddName)
	first := startServer(t, Options{StoreDir: dir, Listen: "127.0.0.1:0", Access: asking(dir)})
	creds, _ := first.Creds()
	_, js := connect(t, first)
	makeStream(t, js)
	first.Shutdown()
	second := startServer(t, Options{StoreDir: dir, Listen: "127.0.0.1:0", Access: asking(dir)})
	bob, err := MakeCreds(creds, access.Principal{Role: access.Agent, Name: "bob"})
	must.OK(t, err)
	if m, err := as(t, second, bob).Request("in.bob.1", []byte("one"), 5*time.Second); err != nil ||
		!strings.Contains(string(m.Data), `"seq":1`) {
		t.Errorf("what another agent stores after a restart: %s, %v", m.Data, err)
	}

	auth := filepath.Join(t.TempDir(), oddName)
	must.OK(t, cluster(auth, agent("ann")).Write(auth))
	accounts := func() string {
		content := must.Read(t, filepath.Join(auth, "nodes", "node-2", "accounts.conf"))
		return string(content)
	}
	if !strings.Contains(accounts(), "# agent.ann\n") {
		t.Errorf("there is no account of an agent in\n%s", accounts())
	}
	remove := cluster(auth)
	remove.Removed = []access.Principal{agent("ann")}
	if err := remove.Update(auth); err != nil || strings.Contains(accounts(), "# agent.ann\n") {
		t.Errorf("after an agent was removed (%v):\n%s", err, accounts())
	}
}

func TestNobodyListensOpenByAccident(t *testing.T) {
	if _, err := Start(t.Context(), Options{StoreDir: t.TempDir(), Listen: "127.0.0.1:0"}); err == nil ||
		!strings.Contains(err.Error(), "credentials") {
		t.Errorf("error %v; want one about credentials", err)
	}
}

// TestAnswersAreNotImported: the server does not carry an answer that came into an account on into another account,
// though the account may write there itself. Nothing here rests on that: each agent and each pool has an account of its
// own, which may write only what is its own. But whoever puts several into one account has to know that.
func TestAnswersAreNotImported(t *testing.T) {
	dir := t.TempDir()
	a := asking(dir)
	a.Grants = func(access.Principal) []access.Grant {
		return []access.Grant{{Subject: "get.ann", Way: access.AskMany}, {Subject: "in.ann.*"}, {Subject: "ev.bob.*"}}
	}
	s := startServer(t, Options{StoreDir: dir, Listen: "127.0.0.1:0", Access: a})
	nc, js := connect(t, s)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "IN", Subjects: []string{"in.>", "ev.>"}})
	must.OK(t, err)
	if _, err := nc.Subscribe("get.ann", func(m *nats.Msg) { _ = m.Respond([]byte("an answer")) }); err != nil {
		t.Fatal(err)
	}
	must.OK(t, nc.Flush())
	creds, _ := s.Creds()
	both := as(t, s, filepath.Join(creds, "agent.creds"))
	heard, err := both.SubscribeSync("ev.bob.1")
	must.OK(t, err)
	for _, through := range []string{"get.ann", "in.ann.1"} {
		must.OK(t, both.PublishRequest(through, "ev.bob.1", nil))
		if _, err := heard.NextMsg(20 * time.Second); err != nil {
			t.Fatalf("the answer through %s did not come: %v", through, err)
		}
		if m, err := stream.GetLastMsgForSubject(t.Context(), "ev.bob.1"); !errors.Is(err, jetstream.ErrMsgNotFound) {
			t.Errorf("the answer through %s was stored: %v, %v", through, m, err)
		}
	}
}

// TestCredentialsThatSeveralMakeAtOnce: workers of a pool that start together for the first time all find the same
// credentials. Whoever connects reads the file twice, for the token and for the key: it must not change in between.
func TestCredentialsThatSeveralMakeAtOnce(t *testing.T) {
	for n := range 20 {
		dir := filepath.Join(t.TempDir(), "creds")
		a := Access{Dir: dir}
		if _, err := a.open(t.TempDir(), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		var together sync.WaitGroup
		begin, found := make(chan struct{}), make([]string, 8)
		for i := range found {
			together.Go(func() {
				<-begin
				path, err := MakeCreds(dir, access.Principal{Role: access.Worker, Name: "p"})
				content, readErr := os.ReadFile(path)
				if err := errors.Join(err, readErr); err != nil {
					t.Error(err)
				}
				found[i] = string(content)
			})
		}
		close(begin)
		together.Wait()
		for i, content := range found {
			if content != found[0] || content == "" {
				t.Fatalf("round %d: maker %d has read other credentials than the first one", n, i)
			}
		}
	}
}
