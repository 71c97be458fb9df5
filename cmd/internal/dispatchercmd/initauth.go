package dispatchercmd

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/natsd"
)

// initAuthFlags are the flags of init-auth.
type initAuthFlags struct {
	nodes, agents, pools, edges []string
	removeAgents, removePools   []string
	at, store                   string
	update, json                bool
}

func (s *std) initAuthCommand() *cobra.Command {
	var o initAuthFlags
	cmd := &cobra.Command{
		Use:   "init-auth [flags] DIR",
		Short: "Write keys, credentials and configuration for a NATS cluster",
		Long: `init-auth writes a directory with all that a NATS cluster needs for Toolyard: a configuration for each
node, with accounts for the platform, for each pool of workers and for each agent; certificates of a new CA, which
nodes show each other and their clients; credentials; and a README.md that says which file goes where. It refuses a
directory that is not empty.

--edge is for a pool that is far away: its workers connect to a nats-server on their own machine, which carries what
they say over one connection.

--update adds credentials for more agents and pools to such a directory. It writes the accounts again, as this version
grants them, and new certificates for the nodes. Keys, credentials and the nodes' own configuration stay as they are.
With --remove-agent and --remove-pool it takes credentials away: nodes that have read the new accounts refuse them, and
close connections that have them. Who is named with --agent or --pool too gets new ones.

An agent with its credentials hands in batches under its name, and reads their results. A worker with its pool's
credentials runs the calls of that pool. Neither reads or writes anything else.`,
		Example: `  dispatcher init-auth secrets --node nats-1 --node nats-2 --node nats-3 --pool default --agent reviewer
  dispatcher init-auth secrets --update --agent planner
  dispatcher init-auth secrets --update --remove-agent reviewer`,
		Args: cli.OneArg("one DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := o.cluster(args[0])
			if err != nil {
				return err
			}
			if err := toBeDir("DIR", args[0]); err != nil {
				return err
			}
			if o.update {
				err = c.Update(args[0])
			} else {
				err = c.Write(args[0])
			}
			switch {
			case errors.Is(err, natsd.ErrNotEmpty):
				return cli.Usagef("%s is not empty, and nothing in it is overwritten: name another directory, or say "+
					"--update if init-auth has written it", args[0])
			case errors.Is(err, natsd.ErrNoKeys):
				return cli.Usagef("--update: %s has no keys that init-auth has written; leave --update out for a new "+
					"directory", args[0])
			case errors.Is(err, natsd.ErrNoCreds):
				return cli.Usagef("--remove-agent, --remove-pool: %w; the rest is done", err)
			case err != nil:
				return err
			}
			if o.json {
				return printJSON(s.out, struct {
					Dir     string `json:"dir"`
					Updated bool   `json:"updated"`
				}{args[0], o.update})
			}
			next := filepath.Join(args[0], "README.md")
			if o.update {
				next = filepath.Join(args[0], "nodes") + "/*/accounts.conf to each node, and reload it"
			}
			_, err = fmt.Fprintln(s.out, next)
			return err
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.nodes, "node", nil, "the host `NAME` of a node, under which the others and the clients reach "+
		"it; may be repeated (default: nats-1, nats-2 and nats-3)")
	f.StringArrayVar(&o.pools, "pool", nil,
		"a pool of workers that gets credentials, by its `NAME`; may be repeated (default: default)")
	f.StringArrayVar(&o.agents, "agent", nil,
		"an agent that gets credentials, by its `NAME`; may be repeated (default: default)")
	f.StringArrayVar(&o.removeAgents, "remove-agent", nil,
		"with --update: an agent that loses its credentials, by its `NAME`; may be repeated")
	f.StringArrayVar(&o.removePools, "remove-pool", nil,
		"with --update: a pool whose workers lose their credentials, by its `NAME`; may be repeated")
	f.StringArrayVar(&o.edges, "edge", nil, "a `POOL` whose workers are far away, with a nats-server beside them that "+
		"connects to the nodes as a leaf node; writes its configuration too; may be repeated")
	f.StringVar(&o.at, "at", "/etc/nats", "the `DIR` where a node has its configuration")
	f.StringVar(&o.store, "store", "/data", "the `DIR` where a node has its streams")
	f.BoolVar(&o.json, "json", false, "print one JSON document: the directory, and whether it was updated")
	f.BoolVar(&o.update, "update", false, "add to a directory that init-auth has written, and write its accounts again")
	return cmd
}

// cluster checks the flags.
func (o *initAuthFlags) cluster(dir string) (c natsd.Cluster, err error) {
	c = natsd.Cluster{Access: *cli.Access(dir), At: o.at, Store: o.store}
	if o.update && len(o.nodes) > 0 {
		return c, cli.Usagef("--node: --update changes no node's configuration; write a new directory, or copy one " +
			"below nodes and change it")
	}
	if o.update && len(o.edges) > 0 {
		return c, cli.Usagef("--edge: --update changes no node's configuration, and nodes have to listen for edges; " +
			"write a new directory")
	}
	if !o.update && len(o.removeAgents)+len(o.removePools) > 0 {
		return c, cli.Usagef("--remove-agent, --remove-pool: a new directory has no credentials; say --update to change " +
			"one that is there")
	}
	c.Edges = slices.Compact(slices.Sorted(slices.Values(o.edges)))
	pools, agents := o.pools, o.agents
	if !o.update {
		if c.Nodes = o.nodes; len(c.Nodes) == 0 {
			c.Nodes = []string{"nats-1", "nats-2", "nats-3"}
		}
		if len(pools) == 0 {
			pools = []string{string(toolyard.DefaultPool)}
		}
		if len(agents) == 0 {
			agents = []string{string(toolyard.DefaultAgent)}
		}
	}
	for i, n := range c.Nodes {
		if err := natsd.CheckNode(n); err != nil {
			return c, cli.Usagef("--node: %w", err)
		}
		if slices.Contains(c.Nodes[:i], n) {
			return c, cli.Usagef("--node %s is there twice", n)
		}
	}
	if len(c.Nodes) > natsd.MaxNodes {
		return c, cli.Usagef("--node: there are %d; at most %d", len(c.Nodes), natsd.MaxNodes)
	}
	for _, p := range []struct{ flag, path string }{{"--at", o.at}, {"--store", o.store}} {
		if !filepath.IsAbs(p.path) {
			return c, cli.Usagef("%s %s: use an absolute path", p.flag, p.path)
		}
	}
	for _, p := range c.Edges {
		if !slices.Contains(pools, p) {
			pools = append(pools, p)
		}
	}
	for _, named := range []struct {
		flag          string
		pools, agents []string
		to            *[]access.Principal
	}{{"--", pools, agents, &c.Principals}, {"--remove-", o.removePools, o.removeAgents, &c.Removed}} {
		for _, p := range named.pools {
			who, err := poolNamed(named.flag+"pool", p)
			if err != nil {
				return c, err
			}
			*named.to = append(*named.to, who)
		}
		for _, a := range named.agents {
			who, err := agentNamed(named.flag+"agent", a)
			if err != nil {
				return c, err
			}
			*named.to = append(*named.to, who)
		}
	}
	return c, nil
}

// poolNamed are the workers of the pool that a flag names.
func poolNamed(flag, name string) (access.Principal, error) {
	if err := broker.CheckPool(toolyard.Pool(name)); err != nil {
		return access.Principal{}, cli.Usagef("%s: %w", flag, err)
	}
	return access.Principal{Role: access.Worker, Name: name}, nil
}

// agentNamed is the agent that a flag names.
func agentNamed(flag, name string) (access.Principal, error) {
	p := access.Principal{Role: access.Agent, Name: broker.Escape(name)}
	if err := toolyard.CheckName(flag, name); err != nil {
		return p, err
	}
	if err := natsd.CheckPrincipal(p); err != nil {
		return p, cli.Usagef("%s: %w", flag, err)
	}
	return p, nil
}
