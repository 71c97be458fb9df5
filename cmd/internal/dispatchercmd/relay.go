package dispatchercmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/relay"
)

// The limits of the address at which a relay takes answers.
const (
	relayConnections = 64
	relayTimeout     = 30 * time.Second // of one request with its answer
	maxRelayHeader   = 16 << 10         // bytes
)

func (s *std) relayCommand() *cobra.Command {
	var sys systemFlags
	var to, listen, callback, agent, secretFile string
	cmd := &cobra.Command{
		Use:   "relay [flags]",
		Short: "Ask an HTTP service about calls that wait, and take its signed answers",
		Long: `relay asks an HTTP service, such as a bot with buttons in a chat, about each call that waits for a person, and
takes the service's answers. Questions and answers are signed with the secret of --relay-secret-file, as Standard
Webhooks 1.0 says. docs/approvals.md has their form, and examples/approval_service.py is such a service.

A relay keeps no state. Of several that run, each asks, and the first answer counts. In the log the person is whom the
service names; with --server it is the token's name.`,
		Example: `  echo "whsec_$(openssl rand -base64 32)" >relay.secret
  dispatcher relay --to http://127.0.0.1:8092/questions --relay-secret-file relay.secret`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := s.log.Logger(s.err)
			if err != nil {
				return err
			}
			if agent != "" {
				if err := toolyard.CheckName("--agent", agent); err != nil {
					return err
				}
			}
			secret, err := relaySecret(secretFile)
			if err != nil {
				return err
			}
			for flag, address := range map[string]string{"--to": to, "--callback": callback} {
				if err := checkRelayURL(flag, address, flag == "--callback"); err != nil {
					return err
				}
			}
			o := relay.Options{URL: to, Callback: callback, Agent: toolyard.Agent(agent), Secret: secret,
				Client: &http.Client{}, Log: log, Now: time.Now}
			served := false
			err = s.attach(cmd.Context(), &sys, "toolyard relay", func(c *client.Client) error {
				o.System = c
				err := s.relay(cmd.Context(), o, listen, log)
				served = err == nil
				return err
			})
			return tidy(served, err)
		},
	}
	sys.add(cmd)
	cmd.Flags().StringVar(&to, "to", "", "the approval service, as `URL`; https, or on this machine http")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8091", "take answers at this `ADDRESS`; it has no TLS: what "+
		"others reach stands behind a proxy that has")
	cmd.Flags().StringVar(&callback, "callback", "", "where the service reaches that address, as `URL` "+
		"(default: http and the address)")
	cmd.Flags().StringVar(&agent, "agent", "", "only calls of this agent (default: all)")
	cmd.Flags().StringVar(&secretFile, "relay-secret-file", "", "the `FILE` with the secret that the service has too")
	return cmd
}

// relaySecret reads the file of a secret.
func relaySecret(path string) (relay.Secret, error) {
	const flag, most = "--relay-secret-file", 4 << 10
	if path == "" {
		return nil, cli.Usagef("%s is required", flag)
	}
	text, err := cli.ReadFile(flag, path, most)
	if err != nil {
		return nil, err
	}
	secret, err := relay.ParseSecret(string(text))
	if err != nil {
		return nil, cli.Usagef("%s %s: %w", flag, path, err)
	}
	return secret, nil
}

// checkRelayURL refuses an address that questions cannot go to: they hold inputs of calls.
func checkRelayURL(flag, address string, optional bool) error {
	if address == "" && optional {
		return nil
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil:
		return cli.Usagef("%s %q: write https://HOST/PATH", flag, natsbroker.ShownURL(address))
	case u.Scheme == "http" && !loopbackHost(u.Hostname()):
		return cli.Usagef("%s %s: what is asked would be sent in the clear; use https", flag, address)
	}
	return nil
}

func loopbackHost(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// relay serves until the context ends.
func (s *std) relay(ctx context.Context, o relay.Options, listen string, log *slog.Logger) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return cli.ListenError("--listen", listen, err)
	}
	if o.Callback == "" {
		o.Callback = "http://" + l.Addr().String() + "/"
	}
	r := relay.New(o)
	server := &http.Server{Handler: r, ReadTimeout: relayTimeout, WriteTimeout: relayTimeout, IdleTimeout: time.Minute,
		MaxHeaderBytes: maxRelayHeader, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	cli.CloseUnused(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(netutil.LimitListener(l, relayConnections)) }()
	if _, err := fmt.Fprintf(s.out, "answers: http://%s/\n", l.Addr()); err != nil {
		return errors.Join(err, server.Close(), <-served)
	}
	asking, stop := context.WithCancel(ctx)
	defer stop()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		r.Run(asking)
	}()
	select {
	case err = <-served:
		err = fmt.Errorf("take answers: %w", err)
	case <-ctx.Done():
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), relayTimeout)
		defer cancel()
		err = server.Shutdown(bye)
		<-served
	}
	stop()
	<-asked
	return err
}
