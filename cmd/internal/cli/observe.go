package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"
	"golang.org/x/net/netutil"

	"github.com/toolyard/toolyard/internal/metrics"
	"github.com/toolyard/toolyard/internal/tracing"
	"github.com/toolyard/toolyard/internal/worker"
)

// The limits of the listener for supervisors.
const (
	observeTimeout     = 10 * time.Second // of reading a request, and of writing its answer
	maxObserveHeader   = 8 << 10
	observeConnections = 64
)

// Observe is the flag of a listener for supervisors and Prometheus.
type Observe struct{ Listen string }

// Add adds the flag.
func (o *Observe) Add(f *pflag.FlagSet) {
	defer Topic(f, TopicResources)()
	f.StringVar(&o.Listen, "metrics-listen", "", "serve /metrics, /healthz and /readyz without a token at "+
		"`HOST:PORT`, such as 127.0.0.1:9464; port 0 takes a free one. Whoever reaches it reads them (default: off)")
}

// Open listens, and serves until the returned function is called. ready says why the process cannot do its work now; it
// returns nil when it can. The text is a line for people that says where it listens; it is empty when nothing does.
func (o *Observe) Open(ctx context.Context, m *metrics.Metrics, ready func() error, log *slog.Logger) (text string,
	done func() error, err error) {
	if o.Listen == "" {
		return "", func() error { return nil }, nil
	}
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return "", nil, ListenError("--metrics-listen", o.Listen, err)
	}
	s := &http.Server{
		Handler: observed(m, ready), ReadTimeout: observeTimeout, WriteTimeout: observeTimeout,
		IdleTimeout: time.Minute, MaxHeaderBytes: maxObserveHeader, ErrorLog: slog.NewLogLogger(log.Handler(),
			slog.LevelDebug),
	}
	CloseUnused(s)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(netutil.LimitListener(l, observeConnections)) }()
	return fmt.Sprintf("metrics: http://%s/metrics\n", l.Addr()), func() error {
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), observeTimeout)
		defer cancel()
		err := s.Shutdown(bye)
		if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, fmt.Errorf("serve metrics: %w", served))
		}
		return err
	}, nil
}

// ListenError says why a flag's address cannot be listened on, and what to do.
func ListenError(flag, address string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return Usagef("%s %s: another process listens there; stop it, name another address, or port 0 for any free one",
			flag, address)
	}
	return Usagef("%s %s: %w", flag, address, err)
}

// observed answers supervisors and Prometheus.
func observed(m *metrics.Metrics, ready func() error) http.Handler {
	mux := http.NewServeMux()
	answer := func(path string, of func() (status int, kind string, body []byte)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			status, kind, body := of()
			w.Header().Set("Content-Type", kind)
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(status)
			_, _ = w.Write(body) // who asked is gone, and asks again
		})
	}
	const text = "text/plain; charset=utf-8"
	answer("/metrics", func() (int, string, []byte) {
		var b bytes.Buffer
		if err := m.Write(&b); err != nil {
			return http.StatusInternalServerError, text, []byte(OneLine(err.Error()) + "\n")
		}
		return http.StatusOK, metrics.ContentType, b.Bytes()
	})
	answer("/healthz", func() (int, string, []byte) { return http.StatusOK, text, []byte("ok\n") })
	answer("/readyz", func() (int, string, []byte) {
		if err := ready(); err != nil {
			return http.StatusServiceUnavailable, text, []byte(OneLine(err.Error()) + "\n")
		}
		return http.StatusOK, text, []byte("ok\n")
	})
	return mux
}

// Observed is one process as its metrics and its supervisors see it, from before it is connected on.
type Observed struct {
	Metrics *metrics.Metrics
	// Meter counts what the worker of this process does; nil while nobody asked for it.
	Meter *metrics.Worker

	nc     atomic.Pointer[nats.Conn]
	worker atomic.Pointer[worker.Worker]
	tracer *tracing.Tracer // nil: nobody watches
}

// NewObserved makes the metrics of a process.
func NewObserved() *Observed {
	o := &Observed{}
	o.Metrics = metrics.New(func() bool { return o.Connected() == nil })
	return o
}

// Count adds the metrics of a worker: its sandbox's, and those of what a configuration gets as its Meter.
func (o *Observed) Count(flags *Worker) {
	o.Meter = o.Metrics.Worker(func() metrics.WorkerLoad {
		if w := o.worker.Load(); w != nil {
			return metrics.WorkerLoad(w.Load())
		}
		return metrics.WorkerLoad{}
	})
	flags.Sandbox.Started = o.Meter.SandboxStarted
}

// Connection says which connection the process has.
func (o *Observed) Connection(nc *nats.Conn) { o.nc.Store(nc) }

// Worker says which worker the process has.
func (o *Observed) Worker(w *worker.Worker) { o.worker.Store(w) }

// Connected is why nothing can be asked of NATS now; nil when it can.
func (o *Observed) Connected() error {
	if nc := o.nc.Load(); nc == nil || !nc.IsConnected() {
		return errors.New("not connected to NATS")
	}
	return nil
}

// WorkerReady is why the worker takes no calls now; nil when it does.
func (o *Observed) WorkerReady() error {
	if err := o.Connected(); err != nil {
		return err
	}
	if w := o.worker.Load(); w == nil || !w.Load().Registered {
		return errors.New("the worker is not registered: none of its heartbeats was stored lately")
	}
	return nil
}
