//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// Enabled is true in this build.
const Enabled = true

// armed is what the environment asks for, read once.
var armed = func() *plan {
	p, err := parse(os.Getenv(Env), os.Getenv(EnvLog))
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", Env, err)
		os.Exit(2)
	}
	return p
}()

// Hit says that a place was reached.
func Hit(n Name) {
	do, ok := armed.hit(n)
	if !ok {
		return
	}
	if err := do.take(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s: %v\n", Env, n, err)
		os.Exit(2)
	}
}

// HitIf says that a place was reached, if cond holds.
func HitIf(cond bool, n Name) {
	if cond {
		Hit(n)
	}
}

// take announces the action and takes it.
func (d due) take() error {
	if d.log != "" {
		f, err := os.OpenFile(d.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(f, "%s %s %d %d\n", d.name, d.action.kind, d.hits, os.Getpid()); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	switch d.action.kind {
	case kill:
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			return err
		}
		select {} // the signal is on its way
	case stop:
		return stopHere()
	case delay:
		time.Sleep(d.action.delay)
	}
	return nil
}
