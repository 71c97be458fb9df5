// Package worker puts a program's own tools into a pool.
//
//	greet, err := tool.New(...)
//	nc, err := worker.Connect(ctx, "nats://127.0.0.1:4222", nil, nats.UserCredentials("words.creds"))
//	err = worker.Run(ctx, nc, worker.Options{Tools: []tool.Tool{greet}, Allow: []string{"greet"}})
//
// The worker takes calls of its tools from the dispatchers on a NATS system and runs them in this process. It cannot
// isolate them: UNSAFE calls end as setup_required, except those of tools that only ask a service ([tool.InService]).
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/redact"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/scan"
	"github.com/toolyard/toolyard/internal/traceparent"
	"github.com/toolyard/toolyard/internal/tracing"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// Options configure a worker. Only Tools is required.
type Options struct {
	// Pool is the pool whose calls it takes. All workers of a pool must have the same tools and workspaces, so choose a
	// pool of your own beside the one with the built-in tools. Empty: [toolyard.DefaultPool].
	Pool toolyard.Pool
	// Tools are the tools that it runs.
	Tools []tool.Tool
	// Workspaces maps the workspaces that it serves to directories. None: it serves every workspace, and tools get no
	// directory.
	Workspaces map[toolyard.Workspace]string
	// Allow, Deny and Ask are permission rules: tool or tool(specifier). Mode says what happens to calls that no rule
	// decides. Empty: [Default].
	Allow, Deny, Ask []string
	Mode             Mode
	// Confirm has a person asked about whatever may not be undone, also where the mode, the tool or a rule without
	// specifier allows it.
	Confirm bool
	// Hooks run around calls. None: none.
	Hooks []Hook
	// Repair mends inputs that do not fit their tool's schema, in batches with the option repair, where Toolyard's own
	// repair does not help. It has ten seconds for a call. A repair that is late, fails or panics changes nothing: the
	// call ends as schema_validation_failed. Nil: nothing more is mended.
	Repair func(ctx context.Context, m Malformed) (Repaired, error)
	// Secrets names environment variables whose values are removed from outputs and events. Variables whose names look
	// secret, and well-known kinds of tokens, are removed in any case.
	Secrets []string
	// Credentials has values by name for each tool, which gets them by [tool.Env.Secret]. They count as secrets.
	Credentials map[string]map[string]string
	// Scan are the scanners that look through outputs from outside (see [toolyard.Origin]), SCANNER=ACTION each:
	// invisible=mark, invisible=strip, invisible=withhold, secrets=strip or secrets=withhold. None: none look.
	Scan []string
	// Fence puts such outputs between delimiters that no output can forge, also where the batch does not ask for it.
	Fence bool
	// ReadSlots is how many READ_ONLY calls run at a time, and WriteSlots how many of each other class. 0: 16 and 4.
	ReadSlots, WriteSlots int
	// Shards are those of the system's shards whose calls it takes. One that is added later is then served by others.
	// None: all.
	Shards []int
	// DrainGrace is how long running calls may continue after ctx ends. 0: 10 s.
	DrainGrace time.Duration
	// Ready is called once, when the worker begins to take calls. Nil: not called.
	Ready func(id string)
	// Tracing gets an OpenTelemetry span for each attempt of a call, in the trace of its batch. The tool's context has
	// that span. Nil: nothing is traced, and [tool.Env.TraceParent] is the batch's.
	Tracing trace.TracerProvider
	// Log gets warnings and errors. Nil: [slog.Default].
	Log *slog.Logger
}

// Mode says what happens to calls that no rule decides.
type Mode = policy.Mode

// The modes.
const (
	Default     = policy.Default     // ask a person; the empty Mode means this
	AcceptEdits = policy.AcceptEdits // allow tools that only edit files of the workspace
	Plan        = policy.Plan        // deny whatever is not read-only, also what an allow rule allows
	DontAsk     = policy.DontAsk     // deny where Default would ask
	Bypass      = policy.Bypass      // allow; deny and ask rules still hold
)

// Connect connects to NATS with the settings that a worker needs. It waits until the server answers or ctx ends. After
// a lost connection it reconnects every tenth of a second for as long as it takes, and logs both. With the defaults of
// nats.Connect, which waits two seconds, a worker would lose its right to the calls that it runs when the server
// restarts. Use opts for credentials (nats.UserCredentials), which the server that is embedded in a dispatcher
// requires. A nil log is [slog.Default].
func Connect(ctx context.Context, url string, log *slog.Logger, opts ...nats.Option) (*nats.Conn, error) {
	if log == nil {
		log = slog.Default()
	}
	nc, err := natsbroker.Connect(ctx, url, "toolyard worker", log, opts...)
	if errors.Is(err, nats.ErrAuthorization) {
		err = fmt.Errorf("%w: give it the credentials of its pool, nats.UserCredentials(FILE), which \"dispatcher "+
			"creds --pool NAME\" makes", err)
	}
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	return nc, nil
}

// Run takes calls until ctx ends, and returns nil when the last call is done. It waits until a dispatcher has set up
// the NATS system. The caller closes the connection; [Connect] makes one. It fails if the options are invalid, or the
// worker cannot continue.
func Run(ctx context.Context, nc *nats.Conn, o Options) error {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	switch {
	case len(o.Tools) == 0:
		return errors.New("worker: Tools is empty; give the tools that it runs")
	case nc == nil:
		return errors.New("worker: the connection is nil; make one with Connect")
	}
	cfg := worker.Config{
		ID: broker.WorkerID(o.Pool), Pool: o.Pool, Tools: o.Tools, Origin: registry.Toolset, Workspaces: o.Workspaces,
		DrainGrace: o.DrainGrace, Log: o.Log, Fence: o.Fence, Credentials: o.Credentials,
		Slots: map[toolyard.Class]int{toolyard.ReadOnly: o.ReadSlots, toolyard.WriteExclusive: o.WriteSlots,
			toolyard.Unsafe: o.WriteSlots},
	}
	if o.Tracing != nil {
		tracer := tracing.New(o.Tracing)
		cfg.Trace = func(ctx context.Context, parent traceparent.Context, d *events.Requested,
			call *events.RequestedCall, id string,
		) (context.Context, worker.CallSpan) {
			return tracer.Call(ctx, parent, d, call, id)
		}
	}
	var err error
	if cfg.Mode, err = policy.ParseMode(string(o.Mode)); err != nil {
		return fmt.Errorf("worker: mode: %w", err)
	}
	cfg.Rules.Confirm = o.Confirm
	secrets, err := o.redactor()
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	cfg.Redact, cfg.Unfinished = secrets.Redact, secrets.Unfinished
	if cfg.Scan, err = scan.Parse(o.Scan); err != nil {
		return fmt.Errorf("worker: scan: %w", err)
	}
	cfg.Repair = repairOf(o.Repair)
	if cfg.Hooks, err = hookSet(o.Hooks, cfg.Mode, o); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	for _, list := range []struct {
		name  string
		texts []string
		to    *[]policy.Rule
	}{{"allow", o.Allow, &cfg.Rules.Allow}, {"deny", o.Deny, &cfg.Rules.Deny}, {"ask", o.Ask, &cfg.Rules.Ask}} {
		if *list.to, err = policy.ParseRules(list.texts); err != nil {
			return fmt.Errorf("worker: %s: %w", list.name, err)
		}
	}
	if err := cfg.Rules.CheckNames(policy.NamesOf(o.Tools)); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	for i := range o.Tools {
		if err := checkTool(o.Tools[i]); err != nil {
			return fmt.Errorf("worker: %w", err)
		}
		if err := cfg.Rules.Check(&o.Tools[i].Declaration); err != nil {
			return fmt.Errorf("worker: %w", err)
		}
	}
	if err := worker.Check(cfg); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	b, err := natsbroker.Join(ctx, nc, broker.SourceWorker+
		cfg.ID, func(why error) { o.Log.Warn("waiting for the system", "error", why) })
	if err != nil && ctx.Err() != nil { // it was stopped while it waited
		return nil
	}
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	if len(o.Shards) > 0 {
		if b, err = b.Serve(slices.Compact(slices.Sorted(slices.Values(o.Shards)))); err != nil {
			return fmt.Errorf("worker: shards: %w", err)
		}
	}
	w, err := worker.New(b, cfg)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	if o.Ready != nil {
		done := make(chan struct{})
		defer close(done)
		go func() {
			select {
			case <-w.Ready():
				o.Ready(w.ID())
			case <-done:
			}
		}()
	}
	if err := w.Run(ctx); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	return nil
}

// checkTool says what is wrong with a tool, before anything is waited for: a program may have made it without package
// tool's help.
func checkTool(t tool.Tool) error {
	if _, err := tool.Raw(t); err != nil {
		return err
	}
	_, err := registry.Registry{}.Register(registry.Entry{Declaration: t.Declaration, Origin: registry.Toolset})
	return err
}

// redactor makes what takes secrets out of texts. A credential that is too short to be found is refused: it would be
// shown.
func (o *Options) redactor() (*redact.Redactor, error) {
	secrets, err := redact.Named(o.Secrets, os.LookupEnv)
	if err != nil {
		return nil, fmt.Errorf("secrets: %w", err)
	}
	for name, values := range o.Credentials {
		for variable, value := range values {
			if len(strings.TrimSpace(value)) < redact.MinValueBytes {
				return nil,
					fmt.Errorf("credentials: %s of the tool %q has less than %d bytes, too few to be told from "+
						"ordinary text", variable, name, redact.MinValueBytes)
			}
			secrets = append(secrets, redact.Secret{Name: variable, Value: value})
		}
	}
	return redact.New(append(secrets, redact.Environ(os.Environ())...)), nil
}
