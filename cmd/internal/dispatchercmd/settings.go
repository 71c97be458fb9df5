package dispatchercmd

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/pause"
)

const (
	// settingsEvery is how often a dispatcher reads the system's settings again, which somebody may have changed.
	settingsEvery = 5 * time.Second
	// changeTimeout bounds a change of the settings: each stream is changed by itself, on a cluster by an agreement.
	changeTimeout = 2 * time.Minute
)

// The settings that a running system may change, by the names of the flags of serve.
const (
	keyLifetime = "batch-lifetime"
	keyStore    = "max-store-bytes"
	keyShards   = "shards" // shown only
)

// printedSettings are what --json prints.
type printedSettings struct {
	Replicas      int    `json:"replicas"`
	Shards        int    `json:"shards"`
	BatchLifetime string `json:"batch_lifetime"`
	AckWait       string `json:"ack_wait"`
	MaxStoreBytes int64  `json:"max_store_bytes"`
}

func (s *std) settingsCommand() *cobra.Command {
	var sys natsFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "settings [flags] [KEY=VALUE ...]",
		Short: "Show the settings of a running system, or change its batch lifetime and its bytes of store",
		Long: `settings shows what the streams of a system say about it. With batch-lifetime=TIME or
max-store-bytes=BYTES it changes that while the system runs. Batches under way go on. Dispatchers
that run work by the new values within seconds; give their flags and files the same values, since
one that is started with others is refused.

Both may grow at any time; batches that are planned from then on live longer. A smaller store is
refused unless every stream uses at most half of what it will have. A shorter lifetime is refused
while a dispatcher or a worker runs, while a batch is under way, and when it would delete something
now. Replicas, shards and ack wait stay as the system was made.`,
		Example: `  dispatcher settings
  dispatcher settings batch-lifetime=168h max-store-bytes=68719476736`,
		RunE: func(cmd *cobra.Command, args []string) error {
			want, err := settingsOf(args)
			if err != nil {
				return err
			}
			return s.overNATS(cmd.Context(), &sys, "settings", func(nc *nats.Conn) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), changeTimeout)
				defer cancel()
				return s.settings(ctx, nc, want, asJSON)
			})
		},
	}
	sys.add(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document: the settings as they are now")
	return cmd
}

// settingsOf reads what is to change.
func settingsOf(args []string) (want broker.Settings, err error) {
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case keyLifetime:
			if want.Lifetime, err = time.ParseDuration(value); err != nil || want.Lifetime <= 0 {
				return want, cli.Usagef("%s: use a time such as 168h", cli.OneLine(arg))
			}
		case keyStore:
			if want.MaxStoreBytes, err = strconv.ParseInt(value, 10, 64); err != nil || want.MaxStoreBytes <= 0 {
				return want, cli.Usagef("%s: use a number of bytes", cli.OneLine(arg))
			}
		case keyShards:
			return want, cli.Usagef("%s: the number of shards is chosen when a system is made (serve --shards); no "+
				"running system can change it yet", cli.OneLine(arg))
		default:
			return want, cli.Usagef("%s: a running system may change %s=TIME and %s=BYTES", cli.OneLine(arg),
				keyLifetime, keyStore)
		}
	}
	return want, nil
}

// settings shows a system's settings, and changes them before if there is something to change.
func (s *std) settings(ctx context.Context, nc *nats.Conn, want broker.Settings, asJSON bool) error {
	b, err := natsbroker.Attach(ctx, nc, "")
	if err != nil {
		return err
	}
	was, now := b.Settings(), b.Settings()
	if want != (broker.Settings{}) {
		if was, now, err = natsbroker.Change(ctx, nc, want); err != nil {
			return err
		}
	}
	shown := printedSettings{now.Replicas, now.ShardCount(), now.Lifetime.String(), now.CallAckWait.String(),
		now.MaxStoreBytes}
	if asJSON {
		return printJSON(s.out, shown)
	}
	return showSettings(s.out, was, now)
}

// showSettings shows settings, by the names of the flags of serve, with what changed ones were.
func showSettings(w io.Writer, was, now broker.Settings) error {
	p := &show{w: w, on: true}
	line := func(key string, was, now any) {
		p.printf("%s: %v", key, now)
		if was != now {
			p.printf(" (was %v)", was)
		}
		p.printf("\n")
	}
	line("replicas", was.Replicas, now.Replicas)
	line(keyShards, was.ShardCount(), now.ShardCount())
	line(keyLifetime, was.Lifetime, now.Lifetime)
	line("ack-wait", was.CallAckWait, now.CallAckWait)
	line(keyStore, was.MaxStoreBytes, now.MaxStoreBytes)
	if p.err != nil {
		return fmt.Errorf("print the settings: %w", p.err)
	}
	return nil
}

// followSettings reads the system's settings again and again, so that this dispatcher works by what somebody changes.
func (n *node) followSettings(ctx context.Context) error {
	for pause.For(ctx, settingsEvery) == nil {
		was, now, err := n.broker.Renew(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			n.log.Info("the system's settings could not be read again", "error", err)
		case was != now:
			n.log.Info("the system's settings were changed", "batch_lifetime", now.Lifetime, "max_store_bytes",
				now.MaxStoreBytes)
		}
	}
	return nil
}
