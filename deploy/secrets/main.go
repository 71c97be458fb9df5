// Command secrets makes the secrets of deploy/compose.yaml in volumes: one directory for each kind of container, which
// gets nothing else. It runs before everything else, and makes only what is missing, so it may run at each start.
//
// It never runs twice at a time: Compose starts one container of it, and starts the others when that has ended.
package main

import (
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/natsd"
)

// The directories below --dir. Each is a volume, and the containers that it is mounted in are its name. Beside them is
// one for each node of the NATS cluster.
const (
	keysDir       = "keys"       // signs the others; only this program gets it
	dispatcherDir = "dispatcher" // credentials, bearer tokens and the key of MCP
	workerDir     = "worker"     // credentials
	cliDir        = "cli"        // credentials and tokens for people and agents
)

// clusterDir is where the cluster's keys and configuration are, below the keys.
const clusterDir = "cluster"

// credsDir is where the credentials are, below the cluster.
const credsDir = "creds"

// caFile has the certificate that every client of NATS checks the nodes against.
const caFile = "ca.pem"

// operator is the agent of an operator's token, in a token file.
const operator = "*"

// list is a flag that may be repeated.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "secrets:", err)
		os.Exit(1)
	}
}

func run(args []string, out, errw io.Writer) error {
	f := flag.NewFlagSet("secrets", flag.ContinueOnError)
	f.SetOutput(errw)
	f.Usage = func() {
		fmt.Fprint(errw, "secrets makes what is missing of the secrets in --dir.\n"+
			"secrets print FILE prints one of those for people and agents, such as agent.token.\n\n")
		f.PrintDefaults()
	}
	dir := f.String("dir", "/secrets", "where the volumes of secrets are")
	var nodes, agents, pools list
	f.Var(&nodes, "node", "the host `NAME` of a node of the NATS cluster; repeat it for each. The first run counts")
	f.Var(&agents, "agent", "make credentials and a token for the agent `NAME` too; may be repeated")
	f.Var(&pools, "pool", "make credentials for the workers of the pool `NAME` too; may be repeated")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() == 2 && f.Arg(0) == "print" {
		return show(out, *dir, f.Arg(1))
	}
	if f.NArg() != 0 {
		return fmt.Errorf("%q: use no arguments, or print FILE", f.Args())
	}
	for _, name := range nodes {
		if err := natsd.CheckNode(name); err != nil {
			return fmt.Errorf("--node: %w", err)
		}
	}
	principals := []access.Principal{{Role: access.Worker, Name: string(toolyard.DefaultPool)},
		{Role: access.Agent, Name: string(toolyard.DefaultAgent)}}
	for _, name := range pools {
		if err := broker.CheckPool(toolyard.Pool(name)); err != nil {
			return fmt.Errorf("--pool: %w", err)
		}
		principals = append(principals, access.Principal{Role: access.Worker, Name: name})
	}
	for _, name := range agents {
		if err := toolyard.CheckName("--agent", name); err != nil {
			return err
		}
		// No dispatcher starts with a token file that it cannot read, and blanks divide its lines.
		if name == operator || strings.ContainsFunc(name, unicode.IsSpace) {
			return fmt.Errorf("--agent %q: a token file has no such agent; use a name without blanks that is not %q", name,
				operator)
		}
		principals = append(principals, access.Principal{Role: access.Agent, Name: broker.Escape(name)})
	}
	tokens := append([]string{operator, string(toolyard.DefaultAgent)}, agents...)
	s := secrets{dir: *dir, log: slog.New(slog.NewTextHandler(errw, nil))}
	if err := s.cluster(nodes, principals); err != nil {
		return err
	}
	return errors.Join(s.handOut(), s.tokens(tokens), s.once(dispatcherDir, "mcp-key"))
}

// show prints a file for people and agents.
func show(out io.Writer, dir, name string) error {
	root, err := os.OpenRoot(filepath.Join(dir, cliDir))
	if err != nil {
		return err
	}
	content, err := root.ReadFile(name)
	if err = errors.Join(err, root.Close()); err != nil {
		return err
	}
	_, err = out.Write(content)
	return err
}

type secrets struct {
	dir string
	log *slog.Logger
}

// cluster makes what "dispatcher init-auth" makes: accounts, credentials and certificates. What is there already stays,
// except for the certificates of nodes, which are renewed.
func (s *secrets) cluster(nodes []string, principals []access.Principal) error {
	dir := filepath.Join(s.dir, keysDir, clusterDir)
	if _, err := os.Stat(dir); err == nil {
		return described(dir, nil, principals).Update(dir)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(nodes) == 0 {
		return errors.New("there is no cluster yet; name its nodes with --node")
	}
	begun := dir + ".new" // renamed when it is whole
	if err := os.RemoveAll(begun); err != nil {
		return err
	}
	if err := described(begun, nodes, principals).Write(begun); err != nil {
		return err
	}
	return os.Rename(begun, dir)
}

// described is a cluster whose files are in a directory.
func described(dir string, nodes []string, principals []access.Principal) natsd.Cluster {
	return natsd.Cluster{
		Access: natsd.Access{Dir: filepath.Join(dir, credsDir), Exports: natsbroker.Exports(),
			Grants: natsbroker.Grants},
		Nodes: nodes, Principals: principals, At: "/etc/nats", Store: "/data",
	}
}

// handOut copies the files of the cluster to those who need them.
func (s *secrets) handOut() error {
	dir := filepath.Join(s.dir, keysDir, clusterDir)
	copies := map[string][]string{
		dispatcherDir: {caFile, credsDir + "/dispatcher.creds"},
		workerDir:     {caFile, credsDir + "/worker.*.creds"},
		cliDir:        {caFile, credsDir + "/operator.creds", credsDir + "/agent.*.creds"},
	}
	nodes, err := os.ReadDir(filepath.Join(dir, "nodes"))
	if err != nil {
		return err
	}
	for _, node := range nodes {
		copies[node.Name()] = []string{"nodes/" + node.Name() + "/*"}
	}
	for to, patterns := range copies {
		for _, pattern := range patterns {
			paths, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil {
				return err
			}
			for _, path := range paths {
				content, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				if err := s.write(to, filepath.Base(path), string(content)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// tokens makes a bearer token for each agent that has none, beside those in the token file.
func (s *secrets) tokens(agents []string) error {
	const file = "tokens"
	content, err := os.ReadFile(filepath.Join(s.dir, dispatcherDir, file))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	lines := string(content)
	for _, agent := range agents {
		name := "operator.token"
		if agent != operator {
			name = "agent.token"
			if agent != string(toolyard.DefaultAgent) {
				name = "agent." + broker.Escape(agent) + ".token"
			}
		}
		if err := s.once(cliDir, name); err != nil {
			return err
		}
		token, err := os.ReadFile(filepath.Join(s.dir, cliDir, name))
		if err != nil {
			return err
		}
		line := string(token) + " " + agent
		if !strings.Contains("\n"+lines, "\n"+line) { // also where keys have been added behind it
			lines += line + "\n"
		}
	}
	return s.write(dispatcherDir, file, lines)
}

// once writes a file with a random secret, unless it is there.
func (s *secrets) once(dir, name string) error {
	if _, err := os.Stat(filepath.Join(s.dir, dir, name)); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.write(dir, name, rand.Text())
}

// write replaces a file whole, for this user only. A file that has the content already stays as it is.
func (s *secrets) write(dir, name, content string) (err error) {
	path := filepath.Join(s.dir, dir, name)
	if old, err := os.ReadFile(path); err == nil && string(old) == content {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	s.log.Info("written", "file", filepath.Join(dir, name))
	return nil
}
