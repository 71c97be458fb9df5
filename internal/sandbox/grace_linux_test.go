//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestACommandIsToldToStop: a command whose time is over, or that is canceled, gets SIGTERM and a grace in which it can
// clean up, and so does what it has started.
func TestACommandIsToldToStop(t *testing.T) {
	const begun = "touch begun; "
	each(t, func(t *testing.T, box Sandbox) {
		for _, tt := range []struct {
			name, command string
			readOnly      bool
			cleaned       bool
		}{
			{"the shell cleans up", "trap 'echo cleaned > cleaned; exit 3' TERM; " + begun +
				"while :; do sleep 0.02; done", false, true},
			{"it says that all is well", "trap 'echo cleaned > cleaned; exit 0' TERM; " + begun +
				"while :; do sleep 0.02; done", false, true},
			{"a build below it cleans up", "bash -c \"trap 'sleep 0.2; echo cleaned > cleaned; exit 0' TERM; " + begun +
				"while :; do sleep 0.02; done\" & wait", false, true},
			{"it does not listen", "trap '' TERM; " + begun + "while :; do sleep 0.02; done", false, false},
			{"it has nothing to leave behind", "trap 'sleep 20' TERM; while :; do sleep 0.02; done", true, false},
		} {
			for _, how := range []Reason{Timeout, Canceled} {
				t.Run(tt.name+", "+string(how), func(t *testing.T) {
					dir := newPlace(t)
					p := Policy{Workspace: &Workspace{Dir: dir, Writable: !tt.readOnly},
						Limits: Limits{Wall: 20 * time.Second}}
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					if how == Canceled {
						go func() { // when it runs, or soon where it cannot say so
							for end := time.Now().Add(700 * time.Millisecond); time.Now().Before(end) ||
								!tt.readOnly; time.Sleep(5 * time.Millisecond) {
								if _, err := os.Stat(filepath.Join(dir, "begun")); err == nil || ctx.Err() != nil {
									break
								}
							}
							cancel(errors.New("by the test"))
						}()
					}
					var began time.Time
					var res Result
					err := os.ErrNotExist
					// a busy machine gets to its trap later
					for wall := 400 * time.Millisecond; errors.Is(err, os.ErrNotExist); wall *= 2 {
						if how == Timeout {
							p.Limits.Wall = wall
						}
						began = time.Now()
						res, err = box.Run(ctx, p, Command{Argv: []string{"bash", "-c", tt.command}}, Streams{})
						if err == nil && !tt.readOnly {
							_, err = os.Stat(filepath.Join(dir, "begun"))
						}
					}
					if err != nil || res.Reason != how {
						t.Errorf("%+v, %v", res, err)
					}
					if _, err := os.Stat(filepath.Join(dir, "cleaned")); (err == nil) != tt.cleaned {
						t.Errorf("it cleaned up: %t, want %t", err == nil, tt.cleaned)
					}
					if took := time.Since(began); took > p.Limits.Wall+DefaultGrace+5*time.Second ||
						took > 15*time.Second {
						t.Errorf("it was waited for for %s", took)
					}
				})
			}
		}
	})
}

// TestATrespasserGetsNoGrace: a command that is stopped because it made what is protected has no time to do more.
func TestATrespasserGetsNoGrace(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		dir := newPlace(t)
		res, _ := sh(t, box, Policy{Workspace: &Workspace{Dir: dir, Writable: true},
			Limits: Limits{Wall: 20 * time.Second}},
			"trap 'echo late > late; exit 0' TERM; echo x > .envrc; while :; do sleep 0.02; done")
		if _, err := os.Stat(filepath.Join(dir, "late")); err == nil || res.Reason != Trespass {
			t.Errorf("it was told first (%v): %+v", err, res)
		}
	})
}
