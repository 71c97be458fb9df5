package cli

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// sameSignal is how long after the first signal others are taken for the same: a supervisor stops all processes of a
// service, a terminal that is closed all of its group, and what has started this program, such as npm's script, passes
// on to it what it was sent itself.
const sameSignal = time.Second

// hangupKey has in a context whether somebody takes SIGHUP for something else than the end, as an *atomic.Bool.
type hangupKey struct{}

// withSignals returns a context that ends with the first SIGINT or SIGTERM, and with SIGHUP: what a command has begun
// is tidied up also when its terminal is closed. Until the channel of same has something, further signals do nothing.
// From then on, and after stop, they have their default meaning.
func withSignals(parent context.Context, same func() <-chan time.Time) (_ context.Context, stop func()) {
	taken := new(atomic.Bool)
	ctx, cancel := context.WithCancel(context.WithValue(parent, hangupKey{}, taken))
	ends, hup := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(ends, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signal.Notify(hup, syscall.SIGHUP)
	}
	stopped := make(chan struct{})
	go func() {
		defer signal.Stop(hup)
		defer signal.Stop(ends)
		for ctx.Err() == nil {
			select {
			case <-ends:
				cancel()
			case <-hup:
				if !taken.Load() {
					cancel()
				}
			case <-stopped:
				return
			}
		}
		select {
		case <-same():
		case <-stopped:
		}
	}()
	return ctx, func() {
		close(stopped)
		cancel()
	}
}
