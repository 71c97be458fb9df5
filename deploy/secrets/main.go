// Command secrets makes the secrets of deploy/compose.yaml in volumes: one directory for each kind of container, which
// gets nothing else. It runs before everything else, and makes only what is missing, so it may run at each start. It
// removes only what it is told to.
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

// nodeConf is a node's own configuration.
const nodeConf = "nats.conf"

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
		fmt.Fprint(errw, "secrets makes what is missing of the secrets in --dir, and removes what it is told to.\n"+
			"secrets print FILE prints one of those for people and agents, such as agent.token.\n\n")
		f.PrintDefaults()
	}
	dir := f.String("dir", "/secrets", "where the volumes of secrets are")
	var nodes, agents, pools, noAgents, noPools list
	f.Var(&nodes, "node", "the host `NAME` of a node of the NATS cluster; repeat it for each. The first run counts")
	f.Var(&agents, "agent", "make credentials and a token for the agent `NAME` too; may be repeated")
	f.Var(&pools, "pool", "make credentials for the workers of the pool `NAME` too; may be repeated")
	f.Var(&noAgents, "remove-agent", "remove the credentials and the tokens of the agent `NAME`; may be repeated. With "+
		"-agent NAME it gets new ones")
	f.Var(&noPools, "remove-pool", "remove the credentials of the workers of the pool `NAME`; may be repeated. With "+
		"-pool NAME they get new ones")
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
	principals, err := named("--", append([]string{string(toolyard.DefaultPool)}, pools...),
		append([]string{string(toolyard.DefaultAgent)}, agents...))
	if err != nil {
		return err
	}
	removed, err := named("--remove-", noPools, noAgents)
	if err != nil {
		return err
	}
	tokens := append([]string{operator, string(toolyard.DefaultAgent)}, agents...)
	s := secrets{dir: *dir, log: slog.New(slog.NewTextHandler(errw, nil))}
	none := s.cluster(nodes, principals, removed)
	if none != nil && !errors.Is(none, natsd.ErrNoCreds) {
		return none
	}
	had, err := s.remove(removed)
	if err != nil {
		return err
	}
	if had { // a run before this one has ended half-way
		none = nil
	}
	return errors.Join(s.handOut(), s.tokens(tokens), s.once(dispatcherDir, "mcp-key"), none)
}

// named are the workers of pools and the agents that flags name; those begin with prefix.
func named(prefix string, pools, agents []string) (out []access.Principal, err error) {
	for _, name := range pools {
		if err := broker.CheckPool(toolyard.Pool(name)); err != nil {
			return nil, fmt.Errorf("%spool: %w", prefix, err)
		}
		out = append(out, access.Principal{Role: access.Worker, Name: name})
	}
	for _, name := range agents {
		if err := toolyard.CheckName(prefix+"agent", name); err != nil {
			return nil, err
		}
		// No dispatcher starts with a token file that it cannot read, and blanks divide its lines.
		if name == operator || strings.ContainsFunc(name, unicode.IsSpace) {
			return nil, fmt.Errorf("%sagent %q: a token file has no such agent; use a name without blanks that is not %q",
				prefix, name, operator)
		}
		out = append(out, access.Principal{Role: access.Agent, Name: broker.Escape(name)})
	}
	return out, nil
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
// except for the certificates of nodes, which are renewed, and for what is to be removed. [natsd.ErrNoCreds] says that
// all is done, and that there was nothing to remove.
func (s *secrets) cluster(nodes []string, principals, removed []access.Principal) error {
	dir := filepath.Join(s.dir, keysDir, clusterDir)
	if _, err := os.Stat(dir); err == nil {
		c := described(dir, nil, principals)
		c.Removed = removed
		return c.Update(dir)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(removed) > 0 {
		return errors.New("there is no cluster yet, so that nobody has credentials to remove")
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

// handOut copies the files of the cluster to those who need them. The configuration of a node that has one stays: it is
// written once, and an operator may have changed it where the node reads it.
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
		// A name that begins with a dot is of a write that was cut off.
		copies[node.Name()] = []string{"nodes/" + node.Name() + "/[^.]*"}
	}
	for to, patterns := range copies {
		for _, pattern := range patterns {
			paths, err := fs.Glob(os.DirFS(dir), pattern) // the name of dir is no part of the pattern
			if err != nil {
				return err
			}
			for _, path := range paths {
				if filepath.Base(path) == nodeConf {
					if _, err := os.Stat(filepath.Join(s.dir, to, nodeConf)); err == nil {
						continue
					} else if !errors.Is(err, fs.ErrNotExist) {
						return err
					}
				}
				content, err := os.ReadFile(filepath.Join(dir, path))
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

// tokensFile has the tokens that dispatchers take, and tokenFile is the file that an agent's own is in.
const tokensFile = "tokens"

func tokenFile(agent string) string {
	switch agent {
	case operator:
		return "operator.token"
	case string(toolyard.DefaultAgent):
		return "agent.token"
	}
	return "agent." + broker.Escape(agent) + ".token"
}

// remove takes away what was handed out to pools and agents, and all tokens of the agents. It reports whether there was
// anything.
func (s *secrets) remove(who []access.Principal) (had bool, err error) {
	gone := map[string]bool{}
	for _, p := range who {
		files := []string{filepath.Join(workerDir, natsd.CredsFile("", p, false))}
		if p.Role == access.Agent {
			agent, err := broker.Unescape(p.Name)
			if err != nil {
				return had, err
			}
			gone[agent] = true
			files = []string{filepath.Join(cliDir, natsd.CredsFile("", p, false)),
				filepath.Join(cliDir, tokenFile(agent))}
		}
		for _, file := range files {
			err := os.Remove(filepath.Join(s.dir, file))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return had, err
			}
			had = true
			s.log.Info("removed", "file", file)
		}
	}
	content, err := os.ReadFile(filepath.Join(s.dir, dispatcherDir, tokensFile))
	if errors.Is(err, fs.ErrNotExist) {
		return had, nil
	}
	if err != nil {
		return had, err
	}
	var left strings.Builder
	for line := range strings.Lines(string(content)) {
		words := strings.Fields(line)
		if len(words) > 1 && !strings.HasPrefix(words[0], "#") && gone[words[1]] {
			had = true
			continue
		}
		left.WriteString(line)
	}
	return had, s.write(dispatcherDir, tokensFile, left.String())
}

// tokens makes a bearer token for each agent that has none, beside those in the token file.
func (s *secrets) tokens(agents []string) error {
	content, err := os.ReadFile(filepath.Join(s.dir, dispatcherDir, tokensFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	lines := string(content)
	if lines != "" && !strings.HasSuffix(lines, "\n") { // somebody has added a line
		lines += "\n"
	}
	for _, agent := range agents {
		name := tokenFile(agent)
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
	return s.write(dispatcherDir, tokensFile, lines)
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
