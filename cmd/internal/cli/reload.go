package cli

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
)

// Reload reads a program's files again when it gets SIGHUP. The zero value is ready to use.
type Reload struct {
	mu    sync.Mutex // held while steps run
	steps []reloadStep
	// log is that of the runs; nil before the first one.
	log *slog.Logger
}

type reloadStep struct {
	what string
	read func() error
}

// On adds a step. A step that fails leaves what was there in force and does not stop the later ones. If the signal has
// come before, it runs at once: a program that waits for NATS has read its files long before it can take others in.
func (r *Reload) On(what string, read func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := reloadStep{what, read}
	r.steps = append(r.steps, s)
	if r.log != nil {
		s.run(r.log)
	}
}

// Follow makes SIGHUP run the steps until ctx ends, one after the other and in the order in which they were added.
// Call it early: until then the signal ends ctx. It returns at once. Several signals that arrive during one
// run cause one more run. After ctx has ended the signal does nothing: a program that lets its calls finish then would
// lose them.
func (r *Reload) Follow(ctx context.Context, log *slog.Logger) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	if taken, ok := ctx.Value(hangupKey{}).(*atomic.Bool); ok {
		taken.Store(true)
	}
	go func() { // it does not stop the signal, which would end the process from then on
		for {
			select {
			case <-ctx.Done():
				return
			case <-hup:
				r.run(log)
			}
		}
	}()
}

func (r *Reload) run(log *slog.Logger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = log
	for _, s := range r.steps {
		s.run(log)
	}
}

func (s *reloadStep) run(log *slog.Logger) {
	if err := s.read(); err != nil {
		log.Error("SIGHUP: not reloaded; what was read before stays in force", "what", s.what, "error", err)
		return
	}
	log.Info("SIGHUP: reloaded", "what", s.what)
}
