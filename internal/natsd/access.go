package natsd

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/durable"
)

// Access says who may connect to the server, and what for.
type Access struct {
	// Dir has the credentials, and below it the keys that sign them. What is missing is made, for this user only.
	Dir string
	// First are the principals that have credentials from the start, beside operators and dispatchers.
	First []access.Principal
	// Exports are what the platform's account offers to the others, and Grants what one principal may use of that.
	Exports []access.Grant
	Grants  func(access.Principal) []access.Grant
}

// The limits of principals with accounts of their own.
const (
	// MaxConnections is how many connections an agent, or the workers of a pool together, may have.
	MaxConnections = 4_096
	// MaxLeafNodes is how many servers beside workers of a pool may be connected: see [Cluster.Edges].
	MaxLeafNodes = 64
	// MaxNameBytes is how long the name of one may be, as a token of a subject: it is part of a file's name.
	MaxNameBytes = 150
)

// keysDir is where the keys are, below the credentials.
const keysDir = "keys"

// untoldFile is there, beside the keys, until somebody has been told of the credentials.
const untoldFile = "untold"

// noAccount is where a server has the streams of clients that have no account.
const noAccount = "$G"

// The accounts that are nobody's but the server's.
const (
	keyOperator = "server.operator" // signs accounts
	keySystem   = "server.system"   // the server's own account
	keyPlatform = "server.platform" // has the streams
)

// credsExt and keyExt end the names of files.
const (
	credsExt = ".creds"
	keyExt   = ".nk"
)

// keyring is the directory of keys: each is a file of its own, whose name says whose it is and which public key it has.
type keyring struct{ dir string }

// find returns the key of a name; nil when there is none.
func (r keyring) find(name string) (nkeys.KeyPair, error) { return r.match(name + ".*") }

// age is when the key of a name was made.
func (r keyring) age(name string) (time.Time, error) {
	paths, err := matching(r.dir, name+".*"+keyExt)
	if err != nil || len(paths) == 0 {
		return time.Time{}, errors.Join(err, fs.ErrNotExist)
	}
	info, err := os.Stat(paths[0])
	if err != nil {
		return time.Time{}, fmt.Errorf("natsd: look at a key: %w", err)
	}
	return info.ModTime(), nil
}

// byPublic returns the key of a public key, and whose it is; nil when there is none.
func (r keyring) byPublic(public string) (name string, err error) {
	if !nkeys.IsValidPublicAccountKey(public) {
		return "", fmt.Errorf("%q is no account's public key", public)
	}
	paths, err := matching(r.dir, "*."+public+keyExt)
	if err != nil || len(paths) != 1 {
		return "", errors.Join(err, fs.ErrNotExist)
	}
	return strings.TrimSuffix(filepath.Base(paths[0]), "."+public+keyExt), nil
}

func (r keyring) match(pattern string) (nkeys.KeyPair, error) {
	paths, err := matching(r.dir, pattern+keyExt)
	if err != nil || len(paths) == 0 {
		return nil, err
	}
	seed, err := os.ReadFile(paths[0]) // the first one, where two processes have made one each
	if err != nil {
		return nil, fmt.Errorf("natsd: read a key: %w", err)
	}
	k, err := nkeys.FromSeed(seed)
	if err != nil {
		return nil, fmt.Errorf("natsd: %s holds no key (%w); put it back, or remove all of %s for new keys and "+
			"credentials", paths[0], err, filepath.Dir(r.dir))
	}
	return k, nil
}

// ensure returns the key of a name, and makes it when it is missing.
func (r keyring) ensure(name string, make func() (nkeys.KeyPair, error)) (nkeys.KeyPair, error) {
	if k, err := r.find(name); k != nil || err != nil {
		return k, err
	}
	k, err := make()
	if err != nil {
		return nil, fmt.Errorf("natsd: make a key: %w", err)
	}
	seed, err := k.Seed()
	if err != nil {
		return nil, fmt.Errorf("natsd: make a key: %w", err)
	}
	public, err := k.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("natsd: make a key: %w", err)
	}
	return k, writeSecret(filepath.Join(r.dir, name+"."+public+keyExt), seed)
}

// writeSecret writes a file for this user only, whole or not at all. What is there already stays: somebody else has
// made it at the same time, and others may be reading it.
func writeSecret(path string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return fmt.Errorf("natsd: write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("natsd: write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
		}
	}()
	if _, err = f.Write(content); err != nil {
		return errors.Join(err, f.Close())
	}
	if err = errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// The name lasts too: what is handed out and stored relies on it.
	return errors.Join(os.Remove(f.Name()), durable.SyncDir(filepath.Dir(path)))
}

// secretDir makes a directory for this user only, or sees that it is one.
func secretDir(dir string) error {
	_, before := os.Stat(dir)
	err := os.MkdirAll(dir, 0o700)
	if err == nil && before != nil {
		err = durable.SyncDir(filepath.Dir(dir))
	}
	if err != nil {
		return fmt.Errorf("natsd: make the directory of credentials: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("natsd: the directory of credentials: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return fmt.Errorf("natsd: others can get into %s, which has credentials (mode %o); chmod 700 it", dir,
			info.Mode().Perm())
	}
	return nil
}

// label is a principal in one word.
func label(p access.Principal) string {
	if p.Name == "" {
		return string(p.Role)
	}
	return string(p.Role) + "." + p.Name
}

// labeled is the principal of a label.
func labeled(name string) (access.Principal, bool) {
	role, token, _ := strings.Cut(name, ".")
	p := access.Principal{Role: access.Role(role), Name: token}
	return p, p.Check() == nil
}

// keyName is the name of a principal's key.
func keyName(p access.Principal) string {
	if p.Platform() {
		return keyPlatform
	}
	return label(p)
}

// CredsFile is where a principal's credentials are, below the directory of credentials. Those that are made at the
// first start have the name of their role alone.
func CredsFile(dir string, p access.Principal, first bool) string {
	name := string(p.Role)
	if !first && !p.Platform() {
		name += "." + p.Name
	}
	return filepath.Join(dir, name+credsExt)
}

// ErrNoKeys says that a directory has no keys to sign credentials with.
var ErrNoKeys = errors.New("there are no keys to sign credentials with")

// CheckPrincipal says why a principal cannot have credentials.
func CheckPrincipal(p access.Principal) error {
	if err := p.Check(); err != nil {
		return err
	}
	if len(p.Name) > MaxNameBytes {
		return fmt.Errorf("the name of %s has %d bytes, with those that stand for other characters than letters, digits, "+
			"- and _; credentials are made for names of at most %d", p, len(p.Name), MaxNameBytes)
	}
	return nil
}

// MakeCreds makes credentials for a principal, unless they are there, and returns their file. The running server takes
// them at once. [ErrNoKeys] says that the server has not been started yet, or has its keys elsewhere.
func MakeCreds(dir string, p access.Principal) (path string, err error) {
	if err := CheckPrincipal(p); err != nil {
		return "", fmt.Errorf("natsd: %w", err)
	}
	ring := keyring{filepath.Join(dir, keysDir)}
	operator, err := ring.find(keyOperator)
	if err != nil {
		return "", err
	}
	if operator == nil {
		return "", fmt.Errorf("natsd: %s: %w", dir, ErrNoKeys)
	}
	path = CredsFile(dir, p, false)
	return path, ring.creds(path, p)
}

// creds makes a file of credentials, unless it is there.
func (r keyring) creds(path string, p access.Principal) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	account, err := r.ensure(keyName(p), nkeys.CreateAccount)
	if err != nil {
		return err
	}
	return userCreds(path, label(p), account)
}

// remove takes the key and the credentials of a pool or an agent away. Its account, which is made of the key, goes with
// the next configuration. It reports whether there was anything.
func (r keyring) remove(creds string, p access.Principal) (removed bool, err error) {
	if err := p.Check(); err != nil {
		return false, fmt.Errorf("natsd: %w", err)
	}
	if p.Platform() {
		return false, fmt.Errorf("natsd: the account of %s has the streams, and stays", p)
	}
	paths, err := matching(r.dir, keyName(p)+".*"+keyExt)
	if err != nil {
		return false, err
	}
	for _, path := range append(paths, CredsFile(creds, p, false)) { // the key first: it is what counts
		switch err := os.Remove(path); {
		case err == nil:
			removed = true
		case !errors.Is(err, fs.ErrNotExist):
			return removed, fmt.Errorf("natsd: remove credentials: %w", err)
		}
	}
	return removed, errors.Join(durable.SyncDir(r.dir), durable.SyncDir(creds))
}

// userCreds makes a file of credentials for a new user of an account, unless it is there.
func userCreds(path, name string, account nkeys.KeyPair) error {
	user, err := nkeys.CreateUser()
	if err != nil {
		return fmt.Errorf("natsd: make a key: %w", err)
	}
	public, err := user.PublicKey()
	if err != nil {
		return fmt.Errorf("natsd: make a key: %w", err)
	}
	claims := jwt.NewUserClaims(public)
	claims.Name = name
	signed, err := claims.Encode(account)
	if err != nil {
		return fmt.Errorf("natsd: sign credentials: %w", err)
	}
	seed, err := user.Seed()
	if err != nil {
		return fmt.Errorf("natsd: make a key: %w", err)
	}
	content, err := jwt.FormatUserConfig(signed, seed)
	if err != nil {
		return fmt.Errorf("natsd: write credentials: %w", err)
	}
	return writeSecret(path, content)
}

// accounts is a server's accounts: it signs each when the server asks for it, from the table of grants of this version.
type accounts struct {
	Access
	ring             keyring
	operator         nkeys.KeyPair
	platform, system string // public keys
	made             bool   // there were no keys before
	untold           bool   // nobody has been told of the credentials
	since            time.Time
}

// open makes what is missing of keys and credentials, and takes over the streams of a server that asked for none.
func (a Access) open(storeDir string, log *slog.Logger) (*accounts, error) {
	acc, err := a.keys(log)
	if err != nil {
		return nil, err
	}
	untold := filepath.Join(acc.ring.dir, untoldFile)
	if acc.made {
		if err := writeSecret(untold, nil); err != nil {
			return nil, err
		}
	}
	switch _, err := os.Stat(untold); {
	case err == nil:
		acc.untold = true
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("natsd: look at the keys: %w", err)
	}
	for _, p := range a.First {
		if err := acc.ring.creds(CredsFile(a.Dir, p, true), p); err != nil {
			return nil, err
		}
	}
	return acc, acc.adopt(storeDir)
}

// keys makes what is missing of keys, and of the credentials of the platform.
func (a Access) keys(log *slog.Logger) (*accounts, error) {
	acc := &accounts{Access: a, ring: keyring{filepath.Join(a.Dir, keysDir)}}
	if err := secretDir(a.Dir); err != nil {
		return nil, err
	}
	if err := secretDir(acc.ring.dir); err != nil {
		return nil, err
	}
	first, err := acc.ring.find(keyOperator)
	if err != nil {
		return nil, err
	}
	acc.made = first == nil
	for name, to := range map[string]*string{keyPlatform: &acc.platform, keySystem: &acc.system} {
		k, err := acc.ring.ensure(name, nkeys.CreateAccount)
		if err != nil {
			return nil, err
		}
		if *to, err = k.PublicKey(); err != nil {
			return nil, fmt.Errorf("natsd: read a key: %w", err)
		}
	}
	// last: who finds it finds the others
	if acc.operator, err = acc.ring.ensure(keyOperator, nkeys.CreateOperator); err != nil {
		return nil, err
	}
	if acc.since, err = acc.ring.age(keyOperator); err != nil {
		return nil, err
	}
	for _, p := range []access.Principal{{Role: access.Operator}, {Role: access.Dispatcher}} {
		if err := acc.ring.creds(CredsFile(a.Dir, p, true), p); err != nil {
			return nil, err
		}
	}
	if acc.made {
		log.Info("made credentials for this server", "dir", a.Dir)
	}
	return acc, nil
}

// apply has a server ask for credentials.
func (a *accounts) apply(o *server.Options) error {
	claims, err := a.operatorClaims()
	if err != nil {
		return err
	}
	o.TrustedOperators = []*jwt.OperatorClaims{claims}
	o.SystemAccount = a.system
	o.AccountResolver = a
	return nil
}

// operatorClaims are of whoever signs the accounts.
func (a *accounts) operatorClaims() (*jwt.OperatorClaims, error) {
	public, err := a.operator.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("natsd: read a key: %w", err)
	}
	claims := jwt.NewOperatorClaims(public)
	claims.Name, claims.SystemAccount = "toolyard", a.system
	return claims, nil
}

// adopt takes over the streams of a server that asked for no credentials, which were of no account, or of one whose
// keys are lost. No other account has streams: see [accounts.Fetch].
func (a *accounts) adopt(storeDir string) error {
	stores := filepath.Join(storeDir, server.JetStreamStoreDir)
	to := filepath.Join(stores, a.platform)
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	entries, err := os.ReadDir(stores)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("natsd: look for streams: %w", err)
	}
	var from []string
	for _, e := range entries {
		if name := e.Name(); name == noAccount || nkeys.IsValidPublicAccountKey(name) {
			from = append(from, filepath.Join(stores, name))
		}
	}
	switch {
	case len(from) == 0:
		return nil
	case len(from) > 1:
		return fmt.Errorf("natsd: the keys of this server's streams are lost, and there are streams in %q: "+
			"put %s back, or move all but one of these away", from, a.ring.dir)
	}
	err = os.Rename(from[0], to)
	if err == nil {
		err = durable.SyncDir(stores)
	}
	if err != nil {
		return fmt.Errorf("natsd: take over the streams of a server that had other credentials, or none: %w", err)
	}
	return nil
}

// Fetch returns an account's claims: [server.AccountResolver].
func (a *accounts) Fetch(public string) (string, error) {
	claims := jwt.NewAccountClaims(public)
	name, err := a.ring.byPublic(public)
	if err != nil {
		return "", fmt.Errorf("no key of the account %s: %w", public, err)
	}
	claims.Name = name
	p, ours := labeled(name)
	switch {
	case ours && !p.Platform():
		claims.Limits.Conn, claims.Limits.LeafNodeConn = MaxConnections, 0
		if p.Role == access.Worker { // all of a pool's workers are one party; agents have names of their own
			claims.Limits.LeafNodeConn = MaxLeafNodes
		}
		for i, g := range a.Grants(p) {
			in := &jwt.Import{
				Name: fmt.Sprintf("%d", i), Account: a.platform, Subject: jwt.Subject(g.Subject),
				LocalSubject: jwt.RenamingSubject(g.Local), Type: jwt.Service,
			}
			if g.Way == access.Hear {
				in.Type = jwt.Stream
			}
			claims.Imports.Add(in)
		}
	case public == a.platform:
		claims.Limits.JetStreamLimits = jwt.JetStreamLimits{
			MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit,
			MaxAckPending: jwt.NoLimit, MemoryMaxStreamBytes: jwt.NoLimit, DiskMaxStreamBytes: jwt.NoLimit,
		}
		for _, g := range a.Exports {
			out := &jwt.Export{Name: g.Subject, Subject: jwt.Subject(g.Subject), Type: jwt.Service}
			switch g.Way {
			case access.Hear:
				out.Type = jwt.Stream
			case access.AskMany:
				out.ResponseType = jwt.ResponseTypeStream
			}
			claims.Exports.Add(out)
		}
	}
	signed, err := claims.Encode(a.operator)
	if err != nil {
		return "", fmt.Errorf("sign the account %s: %w", name, err)
	}
	return signed, nil
}

// Store, IsReadOnly, Start, IsTrackingUpdate, Reload and Close complete [server.AccountResolver]: there is nothing to
// do.
func (a *accounts) Store(string, string) error {
	return errors.New("accounts are made of the table of grants")
}

// IsReadOnly is for [server.AccountResolver].
func (a *accounts) IsReadOnly() bool { return true }

// Start is for [server.AccountResolver].
func (a *accounts) Start(*server.Server) error { return nil }

// IsTrackingUpdate is for [server.AccountResolver].
func (a *accounts) IsTrackingUpdate() bool { return false }

// Reload is for [server.AccountResolver].
func (a *accounts) Reload() error { return nil }

// Close is for [server.AccountResolver].
func (a *accounts) Close() {}

// Creds is the directory of the server's credentials, and whether nobody has been told of them yet; "" when it asks for
// none. A start that failed may have made them.
func (s *Server) Creds() (dir string, untold bool) {
	if s.access == nil {
		return "", false
	}
	return s.access.Dir, s.access.untold
}

// Told notes that somebody has been told of the credentials.
func (s *Server) Told() error {
	if s.access == nil {
		return nil
	}
	s.access.untold = false
	if err := os.Remove(filepath.Join(s.access.ring.dir, untoldFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("natsd: note that credentials were shown: %w", err)
	}
	return nil
}

// GuardedSince is when the server's accounts were made; the zero time when it has none.
func (s *Server) GuardedSince() time.Time {
	if s.access == nil {
		return time.Time{}
	}
	return s.access.since
}

// Creds are what a file of credentials says about itself.
type Creds struct {
	// Name is the user's.
	Name string
	// Issued is when the credentials were made, and Expires when they run out: never if it is zero.
	Issued, Expires time.Time
}

// ReadCreds reads a file of credentials.
func ReadCreds(path string) (Creds, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return Creds{}, fmt.Errorf("read credentials: %w", err)
	}
	token, err := nkeys.ParseDecoratedJWT(content)
	if err != nil {
		return Creds{}, fmt.Errorf("read credentials from %s: %w", path, err)
	}
	c, err := DecodeCreds(token)
	if err != nil {
		return Creds{}, fmt.Errorf("read credentials from %s: %w", path, err)
	}
	return c, nil
}

// DecodeCreds reads the JWT of credentials.
func DecodeCreds(token string) (Creds, error) {
	claims, err := jwt.DecodeUserClaims(token)
	if err != nil {
		return Creds{}, err
	}
	c := Creds{Name: claims.Name, Issued: time.Unix(claims.IssuedAt, 0)}
	if claims.Expires != 0 {
		c.Expires = time.Unix(claims.Expires, 0)
	}
	return c, nil
}

// Principal is who has the credentials; false if they were not made by this package.
func (c Creds) Principal() (access.Principal, bool) { return labeled(c.Name) }
