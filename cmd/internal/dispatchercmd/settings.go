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
	"github.com/toolyard/toolyard/internal/shard"
)

const (
	// settingsEvery is how often a dispatcher reads the system's settings again, which somebody may have changed.
	settingsEvery = 5 * time.Second
	// changeTimeout bounds a change of the settings: each stream is changed by itself, on a cluster by an agreement.
	changeTimeout = 2 * time.Minute
	// raiseTimeout bounds a raise of the number of shards. It waits for the processes that run, and then the same
	// command again goes on.
	raiseTimeout = 10 * time.Minute
)

// The settings that a running system may change, by the names of the flags of serve.
const (
	keyLifetime    = "batch-lifetime"
	keyStore       = "max-store-bytes"
	keyCompression = "store-compression"
	keyShards      = "shards"
)

// printedSettings are what --json prints.
type printedSettings struct {
	Replicas int `json:"replicas"`
	Shards   int `json:"shards"`
	// NextShards is how many there will be, while they are raised.
	NextShards    int    `json:"next_shards,omitempty"`
	BatchLifetime string `json:"batch_lifetime"`
	AckWait       string `json:"ack_wait"`
	MaxStoreBytes int64  `json:"max_store_bytes"`
	Compression   string `json:"store_compression"`
	// Epochs are the numbers of shards that the system had and has, with when each began.
	Epochs []shard.Epoch `json:"epochs,omitempty"`
	// Unserved says which shards have no dispatcher, or no worker of a pool that has workers.
	Unserved []string `json:"unserved,omitempty"`
}

func (s *std) settingsCommand() *cobra.Command {
	var sys natsFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "settings [flags] [KEY=VALUE ...]",
		Short: "Show the settings of a running system, or change its batch lifetime, store and shards",
		Long: `settings shows what the streams of a system say about it. With batch-lifetime=TIME,
max-store-bytes=BYTES, store-compression=WAY or shards=N it changes that while the system runs.
Batches under way go on.
Dispatchers that run work by the new values within seconds; give their flags and files the same
values, since one that is started with others is refused.

Both may grow at any time; batches that are planned from then on live longer. A smaller store is
refused unless every stream uses at most half of what it will have. A shorter lifetime is refused
while a dispatcher or a worker runs, while a batch is under way, and when it would delete something
now.

With store-compression=s2 the NATS servers compress each full block of submissions, events, replies
and objects on disk, and with none they keep it as it is. A server that runs does so from its next
start on, and leaves alone what it has. Every server must be nats-server 2.15.2 or later. The bytes
of store count what is there before compression, so they may be more than the disk holds.

Shards only grow, to 16 at most. Each has an equal part of the store, so a larger number may need
max-store-bytes too. The command waits until every dispatcher and worker that runs serves the new
shards, and for a minute at least. When it ends before, the same command again goes on; until then
the system works as before.

Replicas and ack wait stay as the system was made.`,
		Example: `  dispatcher settings
  dispatcher settings batch-lifetime=168h max-store-bytes=64GiB
  dispatcher settings shards=4`,
		RunE: func(cmd *cobra.Command, args []string) error {
			want, err := settingsOf(args)
			if err != nil {
				return err
			}
			return s.overNATS(cmd.Context(), &sys, "settings", func(nc *nats.Conn) error {
				timeout := changeTimeout
				if want.Shards != 0 {
					timeout = raiseTimeout
				}
				ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
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
			if want.MaxStoreBytes, err = cli.ParseBytes(value); err != nil || want.MaxStoreBytes <= 0 {
				return want, cli.Usagef("%s: use a number of bytes, like 64GiB", cli.OneLine(arg))
			}
		case keyCompression:
			if want.Compression = value; value != broker.CompressionNone && value != broker.CompressionS2 {
				return want, cli.Usagef("%s: use %s or %s", cli.OneLine(arg), broker.CompressionNone,
					broker.CompressionS2)
			}
		case keyShards:
			if want.Shards, err = strconv.Atoi(value); err != nil || want.Shards < 1 || want.Shards > shard.Max {
				return want, cli.Usagef("%s: use a number from 1 to %d", cli.OneLine(arg), shard.Max)
			}
		default:
			return want, cli.Usagef("%s: a running system may change %s=TIME, %s=BYTES, %s=WAY and %s=N",
				cli.OneLine(arg), keyLifetime, keyStore, keyCompression, keyShards)
		}
	}
	switch {
	case want.Shards != 0 && want.Lifetime != 0:
		return want, cli.Usagef("change %s and %s by two commands", keyShards, keyLifetime)
	case want.Shards != 0 && want.Compression != "":
		return want, cli.Usagef("change %s and %s by two commands", keyShards, keyCompression)
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
	was.Shards = b.Shards().Shards()
	switch {
	case want.Shards != 0:
		_, now, err = natsbroker.Raise(ctx, nc, want, shard.Grace, s.sayRaising())
	case want != (broker.Settings{}):
		_, now, err = natsbroker.Change(ctx, nc, want)
	}
	if err == nil {
		_, _, err = b.Renew(ctx)
	}
	if err != nil {
		return err
	}
	m := b.Shards()
	now.Shards = m.Shards()
	served, err := b.Served(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		shown := printedSettings{Replicas: now.Replicas, Shards: now.Shards, NextShards: m.Next,
			BatchLifetime: now.Lifetime.String(), AckWait: now.CallAckWait.String(), MaxStoreBytes: now.MaxStoreBytes,
			Compression: now.Compression, Unserved: broker.Gaps(served)}
		if len(m.Epochs) > 1 {
			shown.Epochs = m.Epochs
		}
		return printJSON(s.out, shown)
	}
	return showSettings(s.out, was, now, m, served)
}

// sayRaising returns what says on standard error for what a raise waits, when that has changed.
func (s *std) sayRaising() func(natsbroker.Raising) {
	said := ""
	return func(r natsbroker.Raising) {
		text := r.Waits
		if text == "" && r.Left > 0 {
			text = "until everybody has read that there will be more"
		}
		if text != said && text != "" {
			fmt.Fprintf(s.err, "%d shards are prepared; waiting: %s\n", r.Want, text)
		}
		said = text
	}
}

// showSettings shows settings, by the names of the flags of serve, with what changed ones were.
func showSettings(w io.Writer, was, now broker.Settings, m shard.Map,
	served []broker.ServedShard) error {
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
	if m.Next != 0 {
		p.printf("  being raised to %d: dispatcher settings %s=%d goes on with that\n", m.Next, keyShards, m.Next)
	}
	for i, e := range m.Epochs[min(1, len(m.Epochs)):] {
		p.printf("  %d since %s, %d before\n", e.Shards, e.Opened.UTC().Format(time.RFC3339), m.Epochs[i].Shards)
	}
	for _, gap := range broker.Gaps(served) {
		p.printf("  %s\n", cli.OneLine(gap))
	}
	line(keyLifetime, was.Lifetime, now.Lifetime)
	line("ack-wait", was.CallAckWait, now.CallAckWait)
	line(keyStore, was.MaxStoreBytes, now.MaxStoreBytes)
	line(keyCompression, was.Compression, now.Compression)
	if was.Compression != now.Compression {
		p.printf("  a NATS server that runs works by that from its next start on\n")
	}
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
				now.MaxStoreBytes, "store_compression", now.Compression, "shards", now.ShardCount())
		}
	}
	return nil
}
