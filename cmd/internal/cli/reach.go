package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/spf13/pflag"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/place"
)

// Reach are the flags that say as whom a command connects to NATS.
type Reach struct {
	// Creds is a file of credentials, or a directory of them.
	Creds string
	// Data is where a dispatcher of this machine keeps its streams, and beside them credentials. Empty: the default.
	Data string
	// Context is the name of a context of the nats command.
	Context string
	// NKey is a file with the seed of an NKey.
	NKey string
	// CA is a file of certificates that the server's is checked against. Empty: the system's.
	CA string
	// Cert and Key are files with the client's own certificate and its key.
	Cert, Key string
}

// Add adds the flags.
func (r *Reach) Add(f *pflag.FlagSet) {
	defer Topic(f, TopicSystem)()
	r.AddCreds(f)
	f.StringVar(&r.Data, "data", "", "where a dispatcher on this machine has its streams: its credentials are found "+
		"there (default: toolyard in the user's state directory)")
}

// AddCreds adds the flags but --data.
func (r *Reach) AddCreds(f *pflag.FlagSet) {
	defer Topic(f, TopicSystem)()
	f.StringVar(&r.Creds, "creds", "", "connect to NATS with the credentials in `FILE`, or with those for this "+
		"command in a directory (default: those that a dispatcher of this user on this machine has made)")
	f.StringVar(&r.Context, "nats-context", "",
		"connect as the context `NAME` of the nats command says, in place of --nats and --creds")
	f.StringVar(&r.NKey, "nats-nkey", "", "connect to NATS with the NKey whose seed is in `FILE`, in place of --creds")
	f.StringVar(&r.CA, "nats-ca", "", "check the NATS server's certificate against those in `FILE`")
	f.StringVar(&r.Cert, "nats-client-cert", "",
		"show the NATS server the certificate in `FILE`; with --nats-client-key")
	f.StringVar(&r.Key, "nats-client-key", "", "the key of --nats-client-cert, in `FILE`")
	Alternatives(f, "creds", "nats-nkey", "nats-context")
	if f.Lookup("nats") != nil {
		Alternatives(f, "nats", "nats-context")
	}
}

// credsDir is where an embedded server keeps its credentials, below its streams.
const credsDir = "creds"

// Elsewhere reports whether a NATS system is named, by its URL or by a context: a command that could do without one
// uses it. A nil Reach names none.
func (r *Reach) Elsewhere(url string) bool { return url != "" || r != nil && r.Context != "" }

// CredsDir is where the credentials of an embedded server are.
func CredsDir(data string) string { return filepath.Join(data, credsDir) }

// DataDir is where an embedded server keeps its streams.
func DataDir(dir string) (string, error) {
	if dir != "" {
		return dir, nil
	}
	state, err := StateDir()
	if err != nil {
		return "", Usagef("--data: there is no home directory to keep the streams in; name a directory")
	}
	return state, nil
}

// Avoid are the places of credentials that the flags name: a workspace that holds them gives them to the model.
func (r *Reach) Avoid() []place.Avoided {
	var out []place.Avoided
	for _, p := range []struct{ path, what string }{
		{r.Data, "where a dispatcher keeps its streams and credentials"},
		{r.Creds, "where the credentials for NATS are"},
		{r.NKey, "where the NKey for NATS is"},
		{r.Key, "where the key of the certificate for NATS is"},
	} {
		if abs, err := filepath.Abs(p.path); p.path != "" && err == nil {
			out = append(out, place.Avoided{Path: abs, What: p.what})
		}
	}
	return out
}

// Connect connects to NATS, and from then on for as long as it takes.
func (r *Reach) Connect(url string, p access.Principal, name string, log *slog.Logger) (*nats.Conn, error) {
	dial, at, err := r.dialer(url, p, name, log)
	if err != nil {
		return nil, err
	}
	nc, err := dial()
	if err != nil {
		err = fmt.Errorf("connect to NATS at %s: %w", at, err)
		if !Refused(err) && !errors.Is(err, nats.ErrTLS) {
			err = fmt.Errorf("%w; is the server there? (dispatcher serve starts one)", err)
		}
		return nil, err
	}
	return nc, nil
}

// Await is [Reach.Connect] for programs that run for long: they wait until the server is there, or ctx ends.
func (r *Reach) Await(ctx context.Context, url string, p access.Principal, name string, log *slog.Logger) (*nats.Conn,
	error) {
	dial, at, err := r.dialer(url, p, name, log)
	if err != nil {
		return nil, err
	}
	nc, err := natsbroker.Dial(ctx, at, log, dial)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("%w while it waited: %w", ErrInterrupted, err)
	}
	return nc, err
}

// dialer returns what connects, and where to, for messages.
func (r *Reach) dialer(url string, p access.Principal, name string, log *slog.Logger) (dial func() (*nats.Conn, error),
	at string, err error) {
	if err := r.exclusive(); err != nil {
		return nil, "", err
	}
	opts, err := r.tls()
	if err != nil {
		return nil, "", err
	}
	opts = append(natsbroker.ConnectOptions(name, log), opts...)
	connect := func(opts ...nats.Option) (*nats.Conn, error) { return nats.Connect(url, opts...) }
	at = natsbroker.ShownURL(url)
	who := identity{reach: r}
	switch {
	case r.Context != "":
		at = "the context " + r.Context
		connect = func(opts ...nats.Option) (*nats.Conn, error) {
			nc, _, err := natscontext.Connect(r.Context, opts...)
			return nc, err
		}
	case r.NKey != "":
		sign, err := nats.NkeyOptionFromSeed(r.NKey)
		if err != nil {
			return nil, "", Usagef("--nats-nkey %s: it has no seed of a user's NKey (SU...): %w", r.NKey, err)
		}
		opts = append(opts, sign)
	default:
		if who.creds, err = r.credentials(url, p); err != nil {
			return nil, "", err
		}
		opts = append(opts, nats.UserJWT(who.creds.jwt, who.creds.sign))
	}
	if r.Context == "" {
		if err := checkURL(url); err != nil {
			return nil, "", err
		}
	}
	opts = append(opts, who.whenRefusedLater(log))
	return func() (*nats.Conn, error) {
		nc, err := connect(opts...)
		if err == nil {
			go who.sayWhyNot(nc, log)
		}
		return nc, who.explain(err)
	}, at, nil
}

// exclusive refuses flags that say different things about who connects.
func (r *Reach) exclusive() error {
	var given []string
	for _, f := range []struct{ flag, value string }{{"--creds", r.Creds}, {"--nats-nkey", r.NKey},
		{"--nats-context", r.Context}} {
		if f.value != "" {
			given = append(given, f.flag)
		}
	}
	if len(given) > 1 {
		return Usagef("%s exclude each other; leave one out", strings.Join(given, " and "))
	}
	if (r.Cert == "") != (r.Key == "") {
		return Usagef("--nats-client-cert and --nats-client-key go together; give both")
	}
	return nil
}

// tls are the options for TLS. The files are read again for each connection: a certificate can be renewed.
func (r *Reach) tls() (opts []nats.Option, err error) {
	if r.CA != "" {
		pem, err := os.ReadFile(r.CA)
		if err != nil {
			return nil, Usagef("--nats-ca: %w", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return nil, Usagef("--nats-ca %s: it has no certificate in PEM", r.CA)
		}
		opts = append(opts, nats.RootCAs(r.CA))
	}
	if r.Cert != "" {
		if _, err := tls.LoadX509KeyPair(r.Cert, r.Key); err != nil {
			return nil, Usagef("--nats-client-cert, --nats-client-key: %w", err)
		}
		opts = append(opts, nats.ClientCert(r.Cert, r.Key))
	}
	return opts, nil
}

// credentials finds those for a principal, as far as they are there already.
func (r *Reach) credentials(url string, p access.Principal) (c *credentials, err error) {
	c = &credentials{whose: p}
	switch {
	case r.Creds != "":
		c.path = r.Creds
		info, err := os.Stat(r.Creds)
		if err != nil {
			return nil, Usagef("--creds %s: %w; \"dispatcher creds\" makes credentials and prints their file", r.Creds,
				errors.Unwrap(err))
		}
		if info.IsDir() {
			if c.path, err = natsd.FindCreds(r.Creds, p); err != nil {
				return nil, Usagef("--creds %s: it has no credentials for %s: %w; name a file, or the directory creds of "+
					"its dispatcher's --data (\"dispatcher creds\" makes more)", r.Creds, p, err)
			}
		}
		if _, err := natsd.ReadCreds(c.path); err != nil {
			return nil, Usagef("--creds: %w; \"dispatcher creds\" makes credentials and prints their file", err)
		}
	case r.Data != "" || onThisMachine(url):
		dir, err := DataDir(r.Data)
		if err != nil {
			return nil, err
		}
		c.dir = CredsDir(dir)
	}
	return c, nil
}

// onThisMachine reports whether a URL names loopback addresses only: credentials that nobody has named go nowhere else.
func onThisMachine(url string) bool {
	for _, one := range strings.Split(url, ",") {
		u, err := neturl.Parse(strings.TrimSpace(one))
		if err != nil {
			return false
		}
		ip := net.ParseIP(u.Hostname())
		if u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}

// credentials are looked up each time when a connection is made: the server that makes them may not have been started
// yet, and they may be replaced.
type credentials struct {
	whose access.Principal
	path  string // that was named; "" looks in dir
	dir   string

	mu   sync.Mutex
	used string
}

func (c *credentials) find() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = c.path
	if c.path != "" || c.dir == "" {
		return c.used, nil
	}
	path, err := natsd.FindCreds(c.dir, c.whose)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return "", nil // a server that asks for none may be there
	}
	c.used = path
	return path, err
}

func (c *credentials) jwt() (string, error) {
	path, err := c.find()
	if err != nil || path == "" {
		return "", err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read credentials: %w", err)
	}
	return nkeys.ParseDecoratedJWT(content)
}

func (c *credentials) sign(nonce []byte) ([]byte, error) {
	c.mu.Lock()
	path := c.used
	c.mu.Unlock()
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	k, err := nkeys.ParseDecoratedNKey(content)
	if err != nil {
		return nil, fmt.Errorf("read credentials from %s: %w", path, err)
	}
	defer k.Wipe()
	return k.Sign(nonce)
}

// Access is who may connect to an embedded server whose streams are in a directory.
func Access(data string) *natsd.Access {
	return &natsd.Access{
		Dir: CredsDir(data), Exports: natsbroker.Exports(), Grants: natsbroker.Grants,
		First: []access.Principal{{Role: access.Worker, Name: string(toolyard.DefaultPool)},
			{Role: access.Agent, Name: string(toolyard.DefaultAgent)}},
	}
}

// Shown says as whom a command would connect to NATS, without connecting, and when that runs out: never if it is zero.
func (r *Reach) Shown(url string, p access.Principal) (as string, expires time.Time, err error) {
	if err := r.exclusive(); err != nil {
		return "", expires, err
	}
	if _, err := r.tls(); err != nil {
		return "", expires, err
	}
	switch {
	case r.Context != "":
		return "the context " + r.Context, expires, nil
	case r.NKey != "":
		return "the NKey in " + r.NKey, expires, nil
	}
	c, err := r.credentials(url, p)
	if err != nil {
		return "", expires, err
	}
	path := c.path
	for _, first := range []bool{true, false} {
		if at := natsd.CredsFile(c.dir, p, first); path == "" && c.dir != "" {
			if _, err := os.Stat(at); err == nil {
				path = at
			}
		}
	}
	if path == "" {
		return "", expires, nil
	}
	have, err := natsd.ReadCreds(path)
	return path, have.Expires, err
}
