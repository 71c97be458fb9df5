package dispatchercmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/worker"
)

const (
	benchWarmup   = 5         // batches before each measurement, which do not count
	maxBenchAt    = 256       // batches under way at a time
	maxBenchTimes = 1_000_000 // batches whose times are kept
	benchAgent    = "bench"
)

// benchFlags say what is measured.
type benchFlags struct {
	systemFlags
	agent, tool, input, workspace string
	batch, inflight, rounds       int
	span                          time.Duration
	json                          bool
}

// benched is what bench prints as JSON.
type benched struct {
	On         string      `json:"on"`
	Tool       string      `json:"tool"`
	Batch      int         `json:"calls_per_batch"`
	Inflight   int         `json:"batches_at_a_time"`
	Processors int         `json:"processors"`
	Toolyard   benchTimes  `json:"toolyard"`
	Floor      *benchTimes `json:"floor,omitempty"`
	// NoFloor is why there is no floor.
	NoFloor string `json:"no_floor,omitempty"`
}

// benchTimes is what batches took.
type benchTimes struct {
	Batches   int     `json:"batches"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	CallsPerS float64 `json:"calls_per_second"`
}

// benchPeer runs a batch of k calls, as the n-th of those at a time, and checks its results.
type benchPeer func(ctx context.Context, n, k int) error

func (s *std) benchCommand() *cobra.Command {
	var o benchFlags
	cmd := &cobra.Command{
		Use:   "bench [flags]",
		Short: "Measure how fast batches are here, beside a floor on the same JetStream",
		Long: `bench measures batches of calls that only read: from submission to the last result, each result checked. Without --nats
or --server it does so on a server, a dispatcher and a worker in this process, with streams in files of a temporary
directory. On a running system it is one more agent, and its batches stay there as others do.

In turns with them it measures a floor on the same NATS server: a pool that only stores a batch, its calls, their
results and one reply, each acknowledged. It has no permissions, locks, claims, events or takeover, so the ratio says
what those cost here. Its streams begin with ` + floorPrefix + ` and are removed at the end. Over --server there is no floor.

Half of the batches are within p50, 99 of 100 within p99. Read the ratios; other work on the machine changes the times.
docs/performance.md has figures and how they came about.`,
		Example: `  dispatcher bench
  dispatcher bench --nats nats://n1:4222 --at-a-time 32 --for 20s --json
  dispatcher bench --server https://tools.example.com --tool tool_search --input '{"query": "x"}'`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			got, err := s.bench(cmd.Context(), &o)
			if err != nil {
				return ended(cmd.Context(), err)
			}
			if o.json {
				return printJSON(s.out, got)
			}
			_, err = io.WriteString(s.out, got.text(s.paint(), cli.Columns(s.out)))
			return err
		},
	}
	f := cmd.Flags()
	o.cmd = cmd
	end := cli.Topic(f, cli.TopicSystem)
	f.StringVar(&o.nats, "nats", "", "measure the NATS system at `URL`, in place of one in this process")
	o.reach.Add(f)
	o.addServer(cmd)
	end()
	f.StringVar(&o.agent, "agent", benchAgent, "whose batches they are (with an agent's credentials or "+
		"token: that agent's, unless you say otherwise)")
	f.StringVar(&o.workspace, "workspace", string(toolyard.DefaultWorkspace), "the name of their workspace")
	f.StringVar(&o.tool, "tool", "glob", "the tool of all calls, which is READ_ONLY with this input")
	f.StringVar(&o.input, "input", `{"pattern": "toolyard-bench-*"}`, "the input of all calls, as `JSON`")
	f.IntVar(&o.batch, "calls", 10, "how many calls each batch has")
	f.IntVar(&o.inflight, "at-a-time", 1, "how many batches are under way at a time")
	f.DurationVar(&o.span, "for", 4*time.Second, "how long each round measures each")
	f.IntVar(&o.rounds, "rounds", 2, "how many rounds; in each the floor comes first")
	f.BoolVar(&o.json, "json", false, "print one JSON document")
	return cmd
}

func (o *benchFlags) check() error {
	for _, n := range []struct {
		flag    string
		v, most int
	}{{"--calls", o.batch, toolyard.MaxCallsPerBatch}, {"--at-a-time", o.inflight, maxBenchAt}, {"--rounds",
		o.rounds, 100}} {
		if n.v < 1 || n.v > n.most {
			return cli.Usagef("%s %d: use 1 to %d", n.flag, n.v, n.most)
		}
	}
	if o.span <= 0 {
		return cli.Usagef("--for %s: use a positive time", o.span)
	}
	if !json.Valid([]byte(o.input)) {
		return cli.Usagef("--input is not JSON: %.100s", o.input)
	}
	for _, n := range []struct{ flag, name string }{{"--agent", o.agent}, {"--workspace", o.workspace}} {
		if err := toolyard.CheckName(n.flag, n.name); err != nil {
			return &cli.UsageError{Err: err}
		}
	}
	return nil
}

// bench measures the system that the flags name.
func (s *std) bench(ctx context.Context, o *benchFlags) (got benched, err error) {
	log, err := s.log.Logger(s.err)
	if err != nil {
		return got, err
	}
	got = benched{Tool: o.tool, Batch: o.batch, Inflight: o.inflight, Processors: runtime.GOMAXPROCS(0)}
	if !o.named() && o.server == "" {
		got.On = "a server in this process, streams in files"
		err = s.benchHere(ctx, o, &got, log)
		return got, err
	}
	got.On = o.where()
	err = s.attach(ctx, &o.systemFlags, "bench", func(c *client.Client) error {
		if o.server != "" {
			got.NoFloor = "it is measured over NATS only"
			return o.measure(ctx, c, nil, &got)
		}
		replicas := 0
		err := s.overBroker(ctx, &o.natsFlags, "bench", func(b *natsbroker.Broker) error {
			replicas = b.Settings().Replicas
			who := b.Who()
			if who.Role != access.Agent || o.cmd.Flags().Changed("agent") {
				return nil
			}
			var err error
			o.agent, err = broker.Unescape(who.Name)
			return err
		})
		if err != nil {
			return err
		}
		floor, err := newFloor(ctx, func() (*nats.Conn, error) {
			return o.reach.Connect(o.nats, operator, "toolyard bench floor", log)
		}, replicas, worker.DefaultReadSlots)
		if err != nil {
			got.NoFloor = cli.OneLine(err.Error())
			return o.measure(ctx, c, nil, &got)
		}
		return errors.Join(o.measure(ctx, c, floor.batch, &got), floor.close())
	})
	return got, err
}

// benchHere measures a system that has everything in this process.
func (s *std) benchHere(ctx context.Context, o *benchFlags, got *benched, log *slog.Logger) error {
	dir, remove, err := tempDir("toolyard-bench-", log)
	if err != nil {
		return fmt.Errorf("make a temporary workspace: %w", err)
	}
	defer remove()
	var perms cli.Permissions
	w := cli.Worker{ReadSlots: worker.DefaultReadSlots, WriteSlots: worker.DefaultWriteSlots, Drain: runDrainGrace}
	cfg := aloneConfig{workspace: toolyard.Workspace(o.workspace), dir: dir, onDisk: true,
		maxConcurrency: toolyard.DefaultMaxConcurrency, perms: &perms, worker: &w}
	return withAlone(ctx, log, cfg, func(ctx context.Context, a *alone) error {
		floor, err := newFloor(ctx, func() (*nats.Conn, error) { return a.server.Connect() }, 1,
			worker.DefaultReadSlots)
		if err != nil {
			return err
		}
		return errors.Join(o.measure(ctx, a.client, floor.batch, got), floor.close())
	})
}

// measure measures batches and floor in turns; a nil floor is left out.
func (o *benchFlags) measure(ctx context.Context, c *client.Client, floor benchPeer, got *benched) error {
	ty := &benchAgents{o: o, c: c}
	var times, floors benchSum
	for range o.rounds {
		if floor != nil {
			if err := floors.measure(ctx, o, floor); err != nil {
				return err
			}
		}
		if err := times.measure(ctx, o, ty.batch); err != nil {
			return err
		}
	}
	got.Toolyard = times.times(o.batch)
	if floor != nil {
		t := floors.times(o.batch)
		got.Floor = &t
	}
	return nil
}

// benchAgents hands in batches as agents do. All outputs of the calls are those of the first one.
type benchAgents struct {
	o *benchFlags
	c *client.Client

	mu    sync.Mutex
	first *string
}

func (a *benchAgents) batch(ctx context.Context, n, k int) error {
	b := toolyard.Batch{Agent: toolyard.Agent(a.o.agent), Session: toolyard.Session(fmt.Sprint(benchAgent, "-", n)),
		Workspace: toolyard.Workspace(a.o.workspace), Calls: make([]toolyard.Call, k)}
	if a.o.byToken(a.o.cmd.Flags().Changed("agent")) {
		b.Agent = ""
	}
	for i := range b.Calls {
		b.Calls[i] = toolyard.Call{ID: fmt.Sprint("c", i), Tool: a.o.tool, Input: json.RawMessage(a.o.input)}
	}
	s, err := a.c.Submit(ctx, b)
	if err != nil {
		return err
	}
	next := 0
	for r, err := range s.Results(ctx) {
		if err != nil {
			return err
		}
		if err := a.check(&r, next); err != nil {
			return fmt.Errorf("batch %s: %w", s.Key().ID, err)
		}
		next++
	}
	if next != k {
		return fmt.Errorf("batch %s has %d results of %d", s.Key().ID, next, k)
	}
	return nil
}

func (a *benchAgents) check(r *toolyard.Result, next int) error {
	switch {
	case r.Index != next || r.CallID != fmt.Sprint("c", next):
		return fmt.Errorf("result %d is of call %d (%s)", next, r.Index, r.CallID)
	case r.IsError:
		return cli.Usagef("--tool %s: call %d ended as %s: %s", a.o.tool, next, r.Code, r.Text())
	case r.Class != toolyard.ReadOnly:
		return cli.Usagef("--tool %s: it is %s with this input, and bench only reads", a.o.tool, r.Class)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.first == nil {
		a.first = &r.Output
	}
	if r.Output != *a.first {
		return fmt.Errorf("the output of call %d differs from that of the first call", next)
	}
	return nil
}

// benchSum is what has been measured so far.
type benchSum struct {
	took []time.Duration
	wall time.Duration
}

// measure runs batches for a while.
func (m *benchSum) measure(ctx context.Context, o *benchFlags, run benchPeer) error {
	for range benchWarmup {
		if err := run(ctx, 0, o.batch); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var parts sync.WaitGroup
	var mu sync.Mutex
	begun := time.Now()
	for n := range o.inflight {
		parts.Go(func() {
			for ctx.Err() == nil && time.Since(begun) < o.span {
				started := time.Now()
				if err := run(ctx, n, o.batch); err != nil {
					cancel(err)
					return
				}
				mu.Lock()
				if m.took = append(m.took, time.Since(started)); len(m.took) >= maxBenchTimes {
					cancel(fmt.Errorf("more than %d batches: use a shorter --for", maxBenchTimes))
				}
				mu.Unlock()
			}
		})
	}
	parts.Wait()
	m.wall += time.Since(begun)
	return context.Cause(ctx)
}

// times are the quantiles, and the rate.
func (m *benchSum) times(calls int) benchTimes {
	slices.Sort(m.took)
	quantile := func(q float64) float64 {
		at := int(math.Ceil(q*float64(len(m.took)))) - 1
		return float64(m.took[max(at, 0)].Microseconds()) / 1000
	}
	return benchTimes{Batches: len(m.took), P50: quantile(0.5), P99: quantile(0.99),
		CallsPerS: math.Round(float64(len(m.took)*calls) / m.wall.Seconds())}
}

// text is what was measured, for a person.
func (b *benched) text(paint cli.Paint, columns int) string {
	head := fmt.Sprintf("%s of %s of %s, %d at a time, on %s (%s)", count(b.Toolyard.Batches, "batch", "batches"),
		count(b.Batch, "call"), cli.OneLine(b.Tool), b.Inflight, b.On, count(b.Processors, "processor"))
	row := func(name string, t benchTimes) []cli.Cell {
		return []cli.Cell{{Text: name}, {Text: fmt.Sprint(t.Batches)}, {Text: cli.HumanMS(t.P50)},
			{Text: cli.HumanMS(t.P99)}, {Text: thousands(int64(t.CallsPerS))}}
	}
	rows := [][]cli.Cell{{{Text: "", Paint: paint.Dim}, {Text: "batches", Paint: paint.Dim},
		{Text: "p50", Paint: paint.Dim}, {Text: "p99", Paint: paint.Dim}, {Text: "calls a second", Paint: paint.Dim}},
		row("toolyard", b.Toolyard)}
	foot := "no floor: " + b.NoFloor
	if b.Floor != nil {
		ratio := func(a, b float64) cli.Cell { return cli.Cell{Text: fmt.Sprintf("%.2f", a/b), Paint: paint.Bold} }
		rows = append(rows, row("floor", *b.Floor), []cli.Cell{{Text: "ratio", Paint: paint.Bold}, {},
			ratio(b.Toolyard.P50, b.Floor.P50), ratio(b.Toolyard.P99, b.Floor.P99),
			ratio(b.Toolyard.CallsPerS, b.Floor.CallsPerS)})
		foot = "the floor only stores: no permissions, locks, claims, events or takeover"
	}
	out := ""
	for _, line := range cli.Wrap(head, columns) {
		out += line + "\n"
	}
	out += "\n" + cli.Table(rows, "  ", columns) + "\n"
	for _, line := range cli.Wrap(foot, columns) {
		out += paint.Dim(line) + "\n"
	}
	return out
}
