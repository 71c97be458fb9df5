package dispatchercmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
)

// natsFlags say which NATS system a command is for.
type natsFlags struct {
	nats  string
	reach cli.Reach
}

func (f *natsFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.nats, "nats", defaultURL, "the NATS system, as `URL`")
	f.reach.Add(flags)
}

// named reports whether a NATS system is named, for commands that need none.
func (f *natsFlags) named() bool { return f.reach.Elsewhere(f.nats) }

// overNATS runs something on a connection to a NATS system, as an operator.
func (s *std) overNATS(ctx context.Context, f *natsFlags, command string, do func(*nats.Conn) error) error {
	log, err := s.log.Logger(s.err)
	if err != nil {
		return err
	}
	nc, err := f.reach.Connect(f.nats, operator, "toolyard "+command, log)
	if err != nil {
		return err
	}
	defer nc.Close()
	return ended(ctx, do(nc))
}

// overBroker runs something on what a system stores, as an operator, who alone may read all of it.
func (s *std) overBroker(ctx context.Context, f *natsFlags, command string, do func(*natsbroker.Broker) error) error {
	return s.overNATS(ctx, f, command, func(nc *nats.Conn) error {
		b, err := attachAs(ctx, nc, command)
		if err != nil {
			return err
		}
		return do(b)
	})
}

func attachAs(ctx context.Context, nc *nats.Conn, command string) (*natsbroker.Broker, error) {
	setup, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	return natsbroker.Attach(setup, nc, "/"+command+"/"+broker.NewID())
}

// systemFlags say which running system a command is for: the NATS system itself, or a server's HTTP API in front of it.
type systemFlags struct {
	natsFlags
	server, token string
	serverCA      string
	cmd           *cobra.Command
}

func (f *systemFlags) add(cmd *cobra.Command) {
	defer cli.Topic(cmd.Flags(), cli.TopicSystem)()
	f.cmd = cmd
	f.natsFlags.add(cmd.Flags())
	f.addServer(cmd)
}

// addServer adds what is for HTTP.
func (f *systemFlags) addServer(cmd *cobra.Command) {
	defer cli.Topic(cmd.Flags(), cli.TopicSystem)()
	cmd.Flags().StringVar(&f.server, "server", "", "the HTTP API of a dispatcher, as `URL`, instead of --nats")
	cmd.Flags().StringVar(&f.serverCA, "server-ca", "", "check the certificate of --server against those in `FILE`")
	cmd.Flags().StringVar(&f.token, "token", "",
		"the bearer `TOKEN` for --server; other users of this machine see a command line, so set "+cli.EnvName("token")+
			" instead")
	for _, name := range []string{"nats", "nats-context"} {
		if cmd.Flags().Lookup(name) != nil {
			cli.Alternatives(cmd.Flags(), "server", name)
		}
	}
}

// operator is as whom a command looks at a system, and acts on it.
var operator = access.Principal{Role: access.Operator}

// byToken reports whether the token says whose something is: where a server knows it, and nobody is named.
func (f *systemFlags) byToken(named bool) bool { return f.server != "" && f.token != "" && !named }

// where names the system, for messages.
func (f *systemFlags) where() string {
	if f.server != "" {
		return f.server
	}
	if f.reach.Context != "" {
		return "the context " + f.reach.Context
	}
	return natsbroker.ShownURL(f.nats)
}

func (f *systemFlags) check() error {
	if f.server != "" && f.reach.Context != "" {
		return cli.Usagef("--server and --nats-context exclude each other; leave one out (on the command line, in %s or "+
			"%s, and in --config)", cli.EnvName("server"), cli.EnvName("nats-context"))
	}
	if f.server != "" && f.cmd.Flags().Changed("nats") {
		return cli.Usagef("--server and --nats exclude each other; leave one out (on the command line, in %s or %s, "+
			"and in --config)", cli.EnvName("server"), cli.EnvName("nats"))
	}
	return nil
}

// ask is [std.attach] for what a system answers soon.
func (s *std) ask(ctx context.Context, f *systemFlags, command string,
	do func(context.Context, *client.Client) error) error {
	return s.attach(ctx, f, command, func(c *client.Client) error {
		return within(ctx, func(ctx context.Context) error { return do(ctx, c) })
	})
}

// within does what is answered soon, or not at all.
func within(ctx context.Context, do func(context.Context) error) error {
	short, stop := context.WithTimeout(ctx, setupTimeout)
	defer stop()
	err := do(short)
	if errors.Is(err, context.DeadlineExceeded) && short.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("no answer came within %s: %w", setupTimeout, err)
	}
	return err
}

// attach runs something on the system that is there.
func (s *std) attach(ctx context.Context, f *systemFlags, command string, do func(*client.Client) error) error {
	log, err := s.log.Logger(s.err)
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	setup, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	var c *client.Client
	if f.server != "" {
		with, cerr := cli.HTTPClient("--server-ca", f.serverCA)
		if cerr != nil {
			return cerr
		}
		loud := stdlog.Writer()
		stdlog.SetOutput(io.Discard) // net/http says there what a NATS server greets with
		c, err = client.ConnectHTTP(setup, f.server, client.HTTPOptions{Token: f.token, Client: with})
		stdlog.SetOutput(loud)
		if in, wrong := errors.AsType[*toolyard.InputError](err); wrong {
			return cli.Usagef("--%s: %s", in.Field, in.Problem)
		}
		_, answered := errors.AsType[*client.HTTPError](err)
		if err != nil && !answered && greetsAsNATS(setup, f.server) {
			return cli.Usagef("--server %s: a NATS server listens there, and no HTTP API; use --nats nats://%s", f.server,
				strings.TrimPrefix(strings.TrimPrefix(f.server, "http://"), "https://"))
		}
		if err != nil && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
			return cli.Usagef("--server %s: the server there speaks plain HTTP; use http://", f.server)
		}
	} else {
		nc, nerr := f.reach.Connect(f.nats, operator, "toolyard "+command, log)
		if nerr != nil {
			return nerr
		}
		defer nc.Close()
		c, err = client.Connect(setup, nc, client.Options{})
	}
	if err != nil {
		return ended(ctx, err)
	}
	err = do(c)
	if refused, ok := errors.AsType[*client.HTTPError](err); ok && refused.Status == http.StatusUnauthorized {
		err = fmt.Errorf("%s: %w; name a token of it with %s or --token", f.server, err, cli.EnvName("token"))
	}
	return ended(ctx, err)
}

// greetingWait is how long a server that does not answer as an HTTP API may take to greet as a NATS server does.
const greetingWait = time.Second

// greetsAsNATS reports whether a NATS server is at the address of an HTTP API: it speaks first. The errors of HTTP say
// it in several ways, as each of the two comes first.
func greetsAsNATS(ctx context.Context, server string) bool {
	const greeting = "INFO "
	u, err := url.Parse(server)
	if err != nil || u.Port() == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, greetingWait)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return false
	}
	defer conn.Close() //nolint:errcheck // nothing was written
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	first := make([]byte, len(greeting))
	_, err = io.ReadFull(conn, first)
	return err == nil && string(first) == greeting
}

// agentRef names what is an agent's on a system: one batch, or one session.
type agentRef struct {
	systemFlags
	agent string
}

// add adds the flags; what is the agent's.
func (r *agentRef) add(cmd *cobra.Command, what string) {
	r.systemFlags.add(cmd)
	also := ""
	if what == "batch" {
		also = ", as AGENT/BATCH in its place does"
	}
	cmd.Flags().StringVar(&r.agent, "agent", string(toolyard.DefaultAgent), "says whose "+what+" it is"+also+
		" (with --token: the token's, unless you say otherwise)")
}

// owner is whose it is: empty for the token's.
func (r *agentRef) owner() (toolyard.Agent, error) {
	if r.byToken(r.cmd.Flags().Changed("agent")) {
		return "", nil
	}
	return toolyard.Agent(r.agent), toolyard.CheckName("--agent", r.agent)
}

// session checks the names of a session.
func (r *agentRef) session(name string) (toolyard.Agent, toolyard.Session, error) {
	if err := toolyard.CheckName("SESSION", name); err != nil {
		return "", "", err
	}
	agent, err := r.owner()
	return agent, toolyard.Session(name), err
}

// whose names an agent in a message; an empty one is the token's.
func whose(a toolyard.Agent) string {
	if a == "" {
		return "the token's agent"
	}
	return string(a)
}
