// Command bench measures Toolyard beside other ways to run the calls of an agent. Each submits batches of K calls that
// do nothing, runs them on the same number of slots, and waits for the K results in the order of the calls. Every
// result is checked. It prints one line of JSON.
//
//	bench <peer> [flags]
//	bench table [file ...]   a Markdown table of such lines
//
// The script beside it starts the servers and runs all peers in turns.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/toolyard/toolyard/internal/heap"
)

// config is what a peer is set up with.
type config struct {
	workers    int           // calls that may run at the same time
	batch      int           // K, the calls in a batch
	inflight   int           // batches under way at the same time
	payload    int           // bytes of arguments in each call
	mode       string        // which variant of the peer; empty is its first
	defaults   bool          // leave the peer's polling as it comes
	server     string        // the address of the peer's server
	replicas   int           // copies of each stream
	shards     int           // sets of streams; Toolyard only
	compress   string        // how the servers keep full blocks; Toolyard only
	dir        string        // for files of the peer
	dispatcher string        // the program of Toolyard's dispatcher
	script     string        // the program of BullMQ
	calls      int           // calls in all, unless span is set
	span       time.Duration // start batches for this long
	gap        time.Duration // the mean pause before a batch
	rate       float64       // batches that begin each second, whoever is done; 0: one when another is done
	warmup     int           // batches that are run first and not counted
	idle       int           // open batches without a call that are there meanwhile
	limit      time.Duration // give up after this long
	brokers    []int         // processes of the server
	level      string        // what the server's durability is called in the output
}

// peer runs batches. Several goroutines call runBatch at a time.
type peer interface {
	// runBatch submits k calls and returns their results in the order of the calls. The input of call i is
	// config.call(batch, i).
	runBatch(ctx context.Context, batch string, k int) ([]string, error)
	close() error
}

// known has every peer by its name, with its modes. The first mode is the default.
var known = map[string]struct {
	modes []string
	start func(context.Context, config) (peer, error)
}{
	"inprocess": {[]string{"channel"}, newInprocess},
	"wal":       {[]string{"fsync"}, newWAL},
	"nats":      {[]string{"js5", "js4", "js3", "js"}, newNATS},
	"asynq":     {[]string{"push", "native"}, newAsynq},
	"bullmq":    {[]string{"bulk", "flow"}, newBullMQ},
	"toolyard":  {[]string{"free", "read", "write"}, newToolyard},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// gcPercent is the garbage collector's setting in the command worker. Workers, whoever's they are, run in this process.
const gcPercent = 200

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if _, set := os.LookupEnv("GOGC"); !set {
		heap.Adapt(gcPercent)
	}
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	if name == "table" {
		return table(args[1:], in, out)
	}
	k, ok := known[name]
	if !ok {
		names := slices.Sorted(maps.Keys(known))
		return fmt.Errorf("usage: bench %s|table [flags]", strings.Join(names, "|"))
	}
	c, err := parse(name, k.modes, args[1:])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	l, err := measure(ctx, name, c, k.start)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return json.NewEncoder(out).Encode(l)
}

func parse(name string, modes, args []string) (config, error) {
	var c config
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.IntVar(&c.calls, "calls", 1000, "calls in all, rounded up to whole batches")
	fs.DurationVar(&c.span, "for", 0, "start batches for this long, whatever -calls says")
	fs.DurationVar(&c.gap, "gap", 0, "a pause of 0 to twice this before each batch, not counted in its time")
	fs.Float64Var(&c.rate, "rate", 0, "batches that begin each second at random times, at most -inflight under way; "+
		"their time counts from when they were due")
	fs.IntVar(&c.batch, "batch", 10, "calls in a batch")
	fs.IntVar(&c.workers, "workers", 10, "calls that may run at the same time")
	fs.IntVar(&c.inflight, "inflight", 1, "batches under way at the same time")
	fs.IntVar(&c.payload, "payload", 150, "bytes of arguments in each call; its JSON has about 60 more")
	fs.StringVar(&c.mode, "mode", modes[0], "one of "+strings.Join(modes, ", "))
	fs.BoolVar(&c.defaults, "defaults", false, "leave the peer's polling as it comes, not tuned for latency")
	fs.StringVar(&c.server, "server", "", "the address of the peer's server")
	fs.IntVar(&c.replicas, "replicas", 1, "copies of each stream")
	fs.IntVar(&c.shards, "shards", 1, "sets of streams; Toolyard only")
	fs.StringVar(&c.compress, "compression", "none", "how the servers keep full blocks, none or s2; Toolyard only")
	fs.StringVar(&c.dir, "dir", os.TempDir(), "the directory for files of the peer")
	fs.StringVar(&c.dispatcher, "dispatcher", "dispatcher", "the program of Toolyard's dispatcher")
	fs.StringVar(&c.script, "script", "bullmq.mjs", "the program of BullMQ")
	fs.IntVar(&c.warmup, "warmup", 5, "batches that are run first and not counted")
	fs.IntVar(&c.idle, "idle", 0, "open batches without a call that are there meanwhile, each of an agent of its own; "+
		"Toolyard only")
	fs.DurationVar(&c.limit, "limit", 5*time.Minute, "give up after this long")
	fs.StringVar(&c.level, "level", "", "what the durability of the server is called in the output")
	pids := fs.String("pids", "", "processes of the server, with commas, whose CPU is counted")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	for p := range strings.SplitSeq(*pids, ",") {
		if p == "" {
			continue
		}
		pid, err := strconv.Atoi(p)
		if err != nil {
			return c, fmt.Errorf("-pids: %w", err)
		}
		c.brokers = append(c.brokers, pid)
	}
	if c.calls < 1 || c.batch < 1 || c.workers < 1 || c.inflight < 1 || c.replicas < 1 {
		return c, errors.New("-calls, -batch, -workers, -inflight and -replicas are at least 1")
	}
	if c.idle < 0 || c.idle > 0 && name != "toolyard" {
		return c, errors.New("-idle is positive, and for toolyard only")
	}
	if c.shards < 1 || c.shards > 1 && name != "toolyard" {
		return c, errors.New("-shards is at least 1, and for toolyard only")
	}
	if c.rate < 0 || c.rate > 0 && (c.span <= 0 || c.gap > 0) {
		return c, errors.New("-rate is positive, needs -for and goes without -gap")
	}
	if !slices.Contains(modes, c.mode) {
		return c, fmt.Errorf("the modes of %s are %s, not %q", name, strings.Join(modes, ", "), c.mode)
	}
	return c, nil
}
