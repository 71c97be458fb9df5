//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/sandbox/stage"
)

// TestACommandRunsOnce: whatever a command does to the sandbox's init, it is never started again, nobody says that
// nothing has run, and the init is there to say how it ended.
func TestACommandRunsOnce(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		for name, attack := range map[string]string{
			"a signal to the init":            "kill -TERM 1",
			"a fault's signal to the init":    "kill -SEGV 1; kill -ABRT 1; kill -QUIT 1",
			"the init's time":                 "prlimit --pid 1 --cpu=0:0",
			"the init's files":                "prlimit --pid 1 --nofile=0:0",
			"the init's processes":            "prlimit --pid 1 --nproc=1:1",
			"the init's memory":               "prlimit --pid 1 --data=1:1 --as=1:1",
			"every signal, to every one":      "trap '' TERM; kill -TERM -1; kill -INT 1; kill -HUP 1; kill -KILL 1",
			"a thread's limit, not a process": "for i in 2 3 4 5 6; do prlimit --pid $i --cpu=0:0; done",
		} {
			t.Run(name, func(t *testing.T) {
				dir := newPlace(t)
				p := Policy{Workspace: &Workspace{Dir: dir, Writable: true}, Limits: Limits{Wall: 20 * time.Second}}
				const runs = 25
				for n := range runs {
					if err := os.RemoveAll(filepath.Join(dir, "log")); err != nil {
						t.Fatal(err)
					}
					res, err := box.Run(t.Context(), p,
						Command{Argv: []string{"sh", "-c", "echo ran >> log; (" + attack +
							") 2>/dev/null; echo ended >> log"}}, Streams{})
					log, readErr := os.ReadFile(filepath.Join(dir, "log"))
					if err != nil || readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
						t.Fatalf("run %d: %v, %v, and it ran:\n%s", n, err, readErr, log)
					}
					if started := bytes.Count(log, []byte("ran\n")); started != 1 || res.Reason != Exited {
						t.Fatalf("run %d: it was started %d times: %+v", n, started, res)
					}
				}
			})
		}
	})
}

// TestALostInitIsNotStartedAgain: once the stage was told to start the command, its death means that nobody knows,
// however early it dies.
func TestALostInitIsNotStartedAgain(t *testing.T) {
	begun := &execution{ctx: t.Context(), name: Native, output: newBudget(1)}
	for name, tt := range map[string]struct {
		begun bool
		seen  reported
		want  error
	}{
		"no word, and it was not told to start": {false, reported{}, ErrNoIsolation},
		"a step failed before": {false, reported{failed: &stage.Failure{Step: "s", Err: "e"}},
			ErrNoIsolation},
		"it said that it was ready": {false, reported{ready: &stage.Ready{}}, ErrNoIsolation},
		"no word after it was told": {true, reported{ready: &stage.Ready{}}, nil},
		"a report that cannot be read": {true, reported{ready: &stage.Ready{}, err: errors.New("cut")},
			nil},
		"a step failed after": {true,
			reported{ready: &stage.Ready{}, failed: &stage.Failure{Step: "s", Err: "e"}}, nil},
		"the kernel could not start the command": {true,
			reported{ready: &stage.Ready{}, failed: &stage.Failure{NoCommand: true}}, ErrNotStarted},
		"the command was not found, before the word": {false, reported{failed: &stage.Failure{NoCommand: true}},
			ErrNotStarted},
	} {
		begun.begun.Store(tt.begun)
		res, err := begun.judge(stopped{seen: &tt.seen}, nil, nil, &process{})
		if !errors.Is(err, tt.want) || tt.want == nil && (err != nil || res.Reason != SandboxLost) {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
}

// TestACommandIgnoresNoSignal: what the stage ignores, the command does not.
func TestACommandIgnoresNoSignal(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		for range 2 { // a spare stage and a new one
			res, out := sh(t, box, Policy{}, "grep -E '^Sig(Ign|Blk):' /proc/self/status")
			if out != "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n" || res.Reason != Exited {
				t.Errorf("%q %+v", out, res)
			}
		}
	})
}
