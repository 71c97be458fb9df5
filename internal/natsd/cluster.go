package natsd

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/durable"
)

// The ports of a node, as its configuration has them at first.
const (
	clientPort  = 4222
	routePort   = 6222
	monitorPort = 8222
	leafPort    = 7422
)

// MaxNodes is how many nodes a cluster has at most.
const MaxNodes = 64

// The files of a cluster's directory.
const (
	nodesDir     = "nodes"
	edgeDir      = "edge"
	accountsFile = "accounts.conf"
	caFile       = "ca.pem"
	certFile     = "cert.pem"
	keyFile      = "key.pem"
	caKeyFile    = "ca-key.pem"   // below keysDir
	operatorFile = "operator.jwt" // below keysDir
	systemCreds  = "system" + credsExt
)

var (
	//go:embed cluster/nats.conf.tmpl
	confText string
	//go:embed cluster/leafnodes.conf.tmpl
	leafnodesText string
	//go:embed cluster/README.md.tmpl
	readmeText string
	//go:embed cluster/README.edge.md.tmpl
	readmeEdgeText string
	//go:embed cluster/edge.conf.tmpl
	edgeText string
)

// Cluster says what the configuration of a NATS cluster has.
type Cluster struct {
	// Access has the directory of credentials and the table of grants; First is not used.
	Access
	// Nodes are the host names of the servers, under which clients and the others reach them.
	Nodes []string
	// Principals are the pools and agents that get credentials.
	Principals []access.Principal
	// Removed are the pools and agents that lose what they have. One that is among Principals too gets new ones.
	Removed []access.Principal
	// Edges are pools, all of them among Principals, whose workers are far away and have NATS servers of their own
	// beside them. If there are any, the nodes listen for those.
	Edges []string
	// At is where a node has its directory, and Store where it has its streams.
	At, Store string
}

// LameDuck is what a node of a cluster takes to let its clients go when it is told to end by SIGUSR2. It is the least
// that nats-server allows; its own default is two minutes.
const LameDuck = 30 * time.Second

// CheckNode says what is wrong with the name of a node: it is a host name and the name of a directory.
func CheckNode(name string) error {
	if name == "" || len(name) > 253 || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "-") ||
		strings.ContainsFunc(name, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.'
		}) {
		return fmt.Errorf("%q is no host name; use letters, digits, dots and -", name)
	}
	return nil
}

// check says why a principal cannot have credentials, before anything is written or removed for another one.
func (c Cluster) check() error {
	for _, p := range slices.Concat(c.Principals, c.Removed) {
		if err := CheckPrincipal(p); err != nil {
			return fmt.Errorf("natsd: %w", err)
		}
	}
	return nil
}

// ErrNotEmpty says that there is something in the directory that a new cluster would be written to.
var ErrNotEmpty = errors.New("the directory is not empty")

// Write writes the directory of a new cluster: its keys, credentials, certificates and configuration.
func (c Cluster) Write(dir string) error {
	if err := c.check(); err != nil {
		return err
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s: %w", dir, ErrNotEmpty)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("natsd: %w", err)
	}
	if err := secretDir(dir); err != nil {
		return err
	}
	acc, err := c.keys(slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if err := acc.ring.systemCreds(filepath.Join(c.Dir, systemCreds)); err != nil {
		return err
	}
	authority, err := NewAuthority("Toolyard " + acc.platform[:8])
	if err != nil {
		return err
	}
	cert, key, err := authority.PEM()
	if err != nil {
		return err
	}
	if err := errors.Join(writeSecret(filepath.Join(acc.ring.dir, caKeyFile), key),
		os.WriteFile(filepath.Join(dir, caFile), cert, 0o644)); err != nil {
		return err
	}
	for _, node := range c.Nodes {
		at := filepath.Join(dir, nodesDir, node)
		if err := secretDir(at); err != nil {
			return err
		}
		conf, err := c.conf(node)
		if err != nil {
			return err
		}
		if err := errors.Join(os.WriteFile(filepath.Join(at, "nats.conf"), conf, 0o644),
			os.WriteFile(filepath.Join(at, caFile), cert, 0o644)); err != nil {
			return err
		}
	}
	if err := c.update(dir, acc); err != nil {
		return err
	}
	for _, pool := range c.Edges {
		if err := c.edge(filepath.Join(dir, edgeDir, pool), pool, cert); err != nil {
			return err
		}
	}
	readme, err := c.readme()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "README.md"), readme, 0o644)
}

// ErrNoCreds says that a principal has no credentials that could be removed.
var ErrNoCreds = errors.New("there are no credentials")

// Update makes credentials for further principals of the cluster in a directory, removes others, and writes new
// certificates for its nodes, and the accounts as this version grants them. Other keys and credentials, and what an
// operator may have changed, stay. [ErrNoCreds] says that all is done, and that somebody had nothing to remove.
func (c Cluster) Update(dir string) error {
	if err := c.check(); err != nil {
		return err
	}
	ring := keyring{filepath.Join(c.Dir, keysDir)}
	if operator, err := ring.find(keyOperator); err != nil || operator == nil {
		return errors.Join(err, fmt.Errorf("natsd: %s: %w", dir, ErrNoKeys))
	}
	acc, err := c.keys(slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	var none error
	for _, p := range c.Removed {
		removed, err := ring.remove(c.Dir, p)
		if err != nil {
			return err
		}
		if !removed {
			none = errors.Join(none, fmt.Errorf("%s: %w", p, ErrNoCreds))
		}
	}
	if err := c.update(dir, acc); err != nil {
		return err
	}
	return none
}

func (c Cluster) update(dir string, acc *accounts) error {
	for _, p := range c.Principals {
		if _, err := MakeCreds(c.Dir, p); err != nil {
			return err
		}
	}
	content, err := acc.config()
	if err != nil {
		return err
	}
	cert, err := os.ReadFile(filepath.Join(dir, caFile))
	if err != nil {
		return fmt.Errorf("natsd: %w", err)
	}
	key, err := os.ReadFile(filepath.Join(acc.ring.dir, caKeyFile))
	if err != nil {
		return fmt.Errorf("natsd: %w", err)
	}
	authority, err := ReadAuthority(cert, key)
	if err != nil {
		return err
	}
	if time.Until(authority.cert.NotAfter) < CertificateLifetime { // what it signs would not be valid for as long
		if authority, err = renewAuthority(dir, authority, cert); err != nil {
			return err
		}
	}
	nodes, err := os.ReadDir(filepath.Join(dir, nodesDir))
	if err != nil {
		return fmt.Errorf("natsd: %w", err)
	}
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name())
	}
	for _, node := range names {
		at := filepath.Join(dir, nodesDir, node)
		// Of all nodes: a client that hears of another node goes on checking for the name that it was given.
		hosts := append(slices.Clone(names), "localhost", "127.0.0.1", "::1")
		cert, key, err := authority.Issue(Certificate{Name: node, Hosts: hosts})
		if err != nil {
			return err
		}
		if err := errors.Join(replaceFile(filepath.Join(at, accountsFile), content, 0o644),
			replaceFile(filepath.Join(at, certFile), cert, 0o644),
			replaceFile(filepath.Join(at, keyFile), key, 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// renewAuthority makes a certificate that is valid for longer for a directory's CA, and puts it wherever the former one
// stands. An operator may have put another CA there.
func renewAuthority(dir string, a *Authority, former []byte) (*Authority, error) {
	a, err := a.Renewed()
	if err != nil {
		return nil, err
	}
	cert, _, err := a.PEM()
	if err != nil {
		return nil, err
	}
	// Of nodes and edges; the name of dir is no part of the pattern.
	copies, err := fs.Glob(os.DirFS(dir), "*/*/"+caFile)
	if err != nil {
		return nil, fmt.Errorf("natsd: %w", err)
	}
	for _, name := range append(copies, caFile) { // the directory's last: then it is done
		path := filepath.Join(dir, name)
		content, err := os.ReadFile(path)
		if err == nil && bytes.Equal(content, former) {
			err = replaceFile(path, cert, 0o644)
		}
		if err != nil {
			return nil, fmt.Errorf("natsd: %w", err)
		}
	}
	return a, nil
}

// replaceFile writes a file whole or not at all.
func replaceFile(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("natsd: write %s: %w", path, err)
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("natsd: write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	if err := durable.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("natsd: write %s: %w", path, err)
	}
	return nil
}

// systemCreds makes credentials for the servers' own account.
func (r keyring) systemCreds(path string) error {
	account, err := r.ensure(keySystem, nkeys.CreateAccount)
	if err != nil {
		return err
	}
	return userCreds(path, "system", account)
}

// signedOperator is who signs accounts, in the words that were used first: they say when they were signed, and a server
// that reloads its configuration refuses others.
func (a *accounts) signedOperator() (string, error) {
	path := filepath.Join(a.ring.dir, operatorFile)
	signed, err := os.ReadFile(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return string(signed), err
	}
	claims, err := a.operatorClaims()
	if err != nil {
		return "", err
	}
	token, err := claims.Encode(a.operator)
	if err != nil {
		return "", fmt.Errorf("natsd: sign the operator: %w", err)
	}
	return token, writeSecret(path, []byte(token))
}

// config is what a server's configuration includes: who signs accounts, and the accounts.
func (a *accounts) config() ([]byte, error) {
	signed, err := a.signedOperator()
	if err != nil {
		return nil, err
	}
	keys, err := matching(a.ring.dir, "*"+keyExt)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "# The accounts of Toolyard: \"dispatcher init-auth --update\" writes this file again.\n"+
		"operator: %q\nsystem_account: %q\nresolver: MEMORY\nresolver_preload: {\n", signed, a.system)
	for _, path := range keys {
		parts := strings.Split(strings.TrimSuffix(filepath.Base(path), keyExt), ".")
		public := parts[len(parts)-1]
		if !nkeys.IsValidPublicAccountKey(public) {
			continue // the operator's
		}
		token, err := a.Fetch(public)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "  # %s\n  %s: %q\n", strings.Join(parts[:len(parts)-1], "."), public, token)
	}
	out.WriteString("}\n")
	return out.Bytes(), nil
}

// edge writes what a server beside the workers of a pool has, but the pool's credentials.
func (c Cluster) edge(at, pool string, authority []byte) error {
	if err := secretDir(at); err != nil {
		return err
	}
	conf, err := fill(edgeText, map[string]string{
		"Pool": pool, "Remotes": c.urls("        \"tls://%s:%d\"\n", leafPort), "At": c.At,
		"ClientPort": strconv.Itoa(clientPort), "MaxPayload": strconv.FormatInt(DefaultMaxPayloadBytes, 10),
	})
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(at, "nats.conf"), conf, 0o644),
		os.WriteFile(filepath.Join(at, caFile), authority, 0o644))
}

func (c Cluster) conf(node string) ([]byte, error) {
	values := map[string]string{
		"Name": node, "Routes": c.urls("    \"tls://%s:%d\"\n", routePort), "Leafnodes": "",
		"At": c.At, "Store": c.Store,
		"ClientPort": strconv.Itoa(clientPort), "RoutePort": strconv.Itoa(routePort),
		"LeafPort": strconv.Itoa(leafPort), "MonitorPort": strconv.Itoa(monitorPort),
		"MaxStore":   strconv.FormatInt(DefaultMaxStoreBytes, 10),
		"MaxMemory":  strconv.FormatInt(DefaultMaxMemoryBytes, 10),
		"MaxPayload": strconv.FormatInt(DefaultMaxPayloadBytes, 10),
		"LameDuck":   LameDuck.String(),
	}
	if len(c.Edges) > 0 {
		leafnodes, err := fill(leafnodesText, values)
		if err != nil {
			return nil, err
		}
		values["Leafnodes"] = string(leafnodes)
	}
	return fill(confText, values)
}

func (c Cluster) readme() ([]byte, error) {
	var nodes, edges, others strings.Builder
	for _, n := range c.Nodes {
		fmt.Fprintf(&nodes, "| `nodes/%s` | the NATS server of the host `%[1]s`, as `%s`. `key.pem` is a secret. Its "+
			"streams are in `%s`, on a disk of its own |\n", n, c.At, c.Store)
	}
	for _, pool := range c.Edges {
		fmt.Fprintf(&edges, "| `edge/%s` | a NATS server beside the workers of pool `%[1]s`, as `%s`; and "+
			"`creds/worker.%[1]s.creds` as `%[2]s/worker.creds`, a secret |\n", pool, c.At)
	}
	for _, p := range slices.SortedFunc(slices.Values(c.Principals), func(a, b access.Principal) int {
		return cmp.Compare(label(a), label(b))
	}) {
		who := "agent " + p.Name + ": it hands in batches under its name, and reads their results"
		if p.Role == access.Worker {
			who = "the workers of pool " + p.Name + ": they run the calls of that pool"
		}
		fmt.Fprintf(&others, "| `creds/%s` | %s |\n", label(p)+credsExt, who)
	}
	replicas := 1
	if len(c.Nodes) >= 3 {
		replicas = 3
	}
	now := time.Now().UTC()
	values := map[string]string{
		"Nodes": nodes.String(), "EdgeFiles": edges.String(), "Others": others.String(), "At": c.At, "Edges": "",
		"URLs": strings.TrimSuffix(c.urls("tls://%s:%d,", clientPort), ","), "Replicas": strconv.Itoa(replicas),
		"CertificatesUntil": now.Add(CertificateLifetime).Format(time.DateOnly),
		"AuthorityUntil":    now.Add(AuthorityLifetime).Format(time.DateOnly),
	}
	if len(c.Edges) > 0 {
		part, err := fill(readmeEdgeText, map[string]string{"At": c.At, "Pool": c.Edges[0]})
		if err != nil {
			return nil, err
		}
		values["Edges"] = string(part)
	}
	return fill(readmeText, values)
}

// urls has a text for each node, made of its name and a port.
func (c Cluster) urls(format string, port int) string {
	var out strings.Builder
	for _, n := range c.Nodes {
		fmt.Fprintf(&out, format, n, port)
	}
	return out.String()
}

// fill puts values into a text, where it has their names as ${Name}. text/template would do so too, but templates call
// methods by name: a program that has one keeps every method of every type, 5 MB in the dispatcher (ADR 0070).
func fill(text string, values map[string]string) ([]byte, error) {
	var missing []error
	out := os.Expand(text, func(name string) string {
		value, ok := values[name]
		if !ok {
			missing = append(missing, fmt.Errorf("natsd: a text has no value for %q", name))
		}
		return value
	})
	return []byte(out), errors.Join(missing...)
}
