package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/breaker"
	"github.com/toolyard/toolyard/tool"
)

// waits is a tool that reports a piece of output and runs until its context ends.
func waits(t *tool.Tool) {
	t.Run = func(ctx context.Context, _ tool.Env, _ json.RawMessage) (tool.Output, error) {
		<-ctx.Done()
		return tool.Output{Text: "half of it"}, ctx.Err()
	}
}

// ignores is a tool that runs for an hour and ignores its context.
func ignores(t *tool.Tool) {
	t.Run = func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) {
		time.Sleep(time.Hour)
		return tool.Output{Text: "late"}, nil
	}
}

func timeoutMS(ms int64) func(*tool.Tool) { return func(t *tool.Tool) { t.TimeoutMS = ms } }

func TestTimeoutsSayWhichTheyWere(t *testing.T) {
	for _, tt := range []struct {
		name      string
		opts      []func(*rig)
		after     time.Duration
		says      string
		retryable bool
	}{
		{"the tool's default", []func(*rig){with(waits)}, tool.DefaultTimeout, "2m0s", true},
		{"the tool's own", []func(*rig){with(waits), with(timeoutMS(3_000))}, 3 * time.Second, "3s", true},
		{"the batch's cap", []func(*rig){with(waits), func(r *rig) { r.job.CallTimeout = time.Second }}, time.Second,
			"1s", true},
		{"a cap that is longer", []func(*rig){with(waits), with(timeoutMS(3_000)),
			func(r *rig) { r.job.CallTimeout = time.Minute }}, 3 * time.Second, "3s", true},
		{"a write", []func(*rig){classed(toolyard.WriteExclusive), with(waits), with(timeoutMS(3_000))},
			3 * time.Second, "It may or may not have taken effect", false},
		{"a tool that does not listen", []func(*rig){with(ignores), with(timeoutMS(3_000))},
			3*time.Second + DefaultStopGrace, "it may still act", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(tt.opts...)
				began := time.Now()
				res := r.result(t)
				if got := time.Since(began); got != tt.after {
					t.Errorf("took %s, want %s", got, tt.after)
				}
				if res.Code != toolyard.Timeout || phaseOf(res) != toolyard.PhaseExecute ||
					!strings.Contains(res.Error, tt.says) || res.Retryable != tt.retryable {
					t.Errorf("%q in %s, retryable %t: %s", res.Code, phaseOf(res), res.Retryable, res.Error)
				}
				time.Sleep(2 * time.Hour) // for what was left behind
				if res.ExecuteMS != float64(tt.after.Milliseconds()) || r.released() != 1 {
					t.Errorf("execute_ms %g, released %d times", res.ExecuteMS, r.released())
				}
			})
		})
	}
}

func TestCancelWhileExecuting(t *testing.T) {
	for _, tt := range []struct {
		cause error
		want  toolyard.Code
		says  string
	}{
		{ErrCanceled, toolyard.Canceled, "canceled"},
		{fmt.Errorf("%w: by ann", ErrCanceled), toolyard.Canceled, "canceled"},
		{nil, toolyard.Canceled, "canceled"}, // context.Canceled
		{errors.New("drain"), toolyard.Canceled, "canceled"},
		{ErrSiblingCanceled{Culprit: "c1 (bash)"}, toolyard.SiblingCanceled, "c1 (bash)"},
		{ErrDeadline, toolyard.DeadlineExceeded, "time limit"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(with(waits))
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(tt.cause) })
			res := r.resultIn(t, ctx)
			if res.Code != tt.want || phaseOf(res) != toolyard.PhaseExecute || !strings.Contains(res.Error, tt.says) {
				t.Errorf("%v: %q in %s: %s", tt.cause, res.Code, phaseOf(res), res.Error)
			}
			if res.Output != "half of it" {
				t.Errorf("the partial output is %q", res.Output)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // a deadline of the caller's own
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if res := newRig(with(waits)).resultIn(t, ctx); res.Code != toolyard.DeadlineExceeded {
			t.Errorf("%q", res.Code)
		}
	})
}

// TestCancelInEachPhaseThatWaits: every phase that waits ends with the cause, and nothing runs after it.
func TestCancelInEachPhaseThatWaits(t *testing.T) {
	block := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for phase, opt := range map[toolyard.Phase]func(*rig){
		toolyard.PhaseValidateValues: with(func(t *tool.Tool) {
			t.Check = func(ctx context.Context, _ tool.Env, _ json.RawMessage) error { return block(ctx) }
		}),
		toolyard.PhasePreHooks: func(r *rig) {
			r.pre = func(ctx context.Context, _ HookInput) (HookVerdict, error) { return HookVerdict{}, block(ctx) }
		},
		toolyard.PhasePermission: func(r *rig) {
			r.decide = func(ctx context.Context, _ PermissionInput) (PermissionDecision, error) {
				return PermissionDecision{}, block(ctx)
			}
		},
		toolyard.PhaseSchedule: func(r *rig) {
			r.start = func(ctx context.Context) (func(), error) {
				return nil,
					block(ctx)
			}
		},
	} {
		t.Run(string(phase), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(ErrSiblingCanceled{Culprit: "c1"}) })
				if res := newRig(opt).resultIn(t, ctx); res.Code != toolyard.SiblingCanceled || phaseOf(res) != phase ||
					res.Attempts != 0 {
					t.Errorf("%q in %s", res.Code, phaseOf(res))
				}
			})
		})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ErrCanceled)
	ran := false
	res := newRig(with(func(t *tool.Tool) {
		t.Check = func(context.Context, tool.Env, json.RawMessage) error { ran = true; return nil }
	})).resultIn(t, ctx)
	if res.Code != toolyard.Canceled || phaseOf(res) != toolyard.PhaseValidateValues || ran {
		t.Errorf("canceled before it began: %q in %s, the check ran: %t", res.Code, phaseOf(res), ran)
	}
}

func TestCheckIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(with(func(t *tool.Tool) {
			t.Check = func(context.Context, tool.Env, json.RawMessage) error { time.Sleep(time.Hour); return nil }
		}))
		res := r.result(t)
		if res.Code != toolyard.Timeout || phaseOf(res) != toolyard.PhaseValidateValues || !res.Retryable ||
			r.Leaked() != 1 {
			t.Errorf("%q in %s, %d left behind", res.Code, phaseOf(res), r.Leaked())
		}
		time.Sleep(time.Hour)
		if r.Leaked() != 0 {
			t.Errorf("%d left behind after it has returned", r.Leaked())
		}
	})
}

func TestLostCallsEmitNothing(t *testing.T) {
	lost := func(t *testing.T, r *rig, ctx context.Context) {
		t.Helper()
		if res, err := r.Run(ctx, r.job); !errors.Is(err, ErrLost) || res.CallID != "" || res.Phases != nil {
			t.Errorf("%+v, %v", res, err)
		}
	}
	lost(t, newRig(starts(fmt.Errorf("claim: %w", ErrLost))), t.Context())
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(ErrLost) })
		r := newRig(with(waits))
		lost(t, r, ctx)
		if r.released() != 1 {
			t.Errorf("released %d times", r.released())
		}
	})
	// A tool that returns the error of its commit point, or another error because of it, was lost: it is unknown what
	// it did.
	refused := func(r *rig) { r.job.CommitPoint = func() error { return fmt.Errorf("the lease lapsed: %w", ErrLost) } }
	for _, run := range []func(context.Context, tool.Env, json.RawMessage) (tool.Output, error){
		func(_ context.Context, env tool.Env, _ json.RawMessage) (tool.Output, error) {
			return tool.Output{Text: "half of it"}, fmt.Errorf("save the file: %w", env.CommitPoint())
		},
		func(_ context.Context, env tool.Env, _ json.RawMessage) (tool.Output, error) {
			if env.CommitPoint() != nil {
				return tool.Output{}, tool.Failed(nil, "The file could not be saved.")
			}
			return tool.Output{}, nil
		},
	} {
		lost(t, newRig(refused, with(func(t *tool.Tool) { t.Run = run })), t.Context())
	}
}

// TestLostBehindExecuteKeepsTheResult: the tool had returned while the call was ours. The log decides whether its
// result counts.
func TestLostBehindExecuteKeepsTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		res := newRig(func(r *rig) {
			r.post = func(context.Context, HookInput) (HookVerdict, error) {
				cancel(ErrLost)
				return HookVerdict{},
					nil
			}
		}).resultIn(t, ctx)
		if res.Code != toolyard.OK || res.Output != "hi" {
			t.Errorf("%q, %q", res.Code, res.Output)
		}
	})
}

// TestTheSlotIsTheTools until it returns, however late that is.
func TestTheSlotIsTheTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(with(ignores), with(timeoutMS(3_000)))
		res := r.result(t)
		if res.Code != toolyard.Timeout || r.released() != 0 || !strings.Contains(res.Detail,
			"did not return within 2s") {
			t.Errorf("%q, released %d times, detail %q", res.Code, r.released(), res.Detail)
		}
		time.Sleep(2 * time.Hour)
		if r.released() != 1 {
			t.Errorf("when the tool has returned the slot was released %d times", r.released())
		}
	})
}

func TestCancelBehindExecuteKeepsTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		res := newRig(func(r *rig) {
			r.post = func(hook context.Context, _ HookInput) (HookVerdict, error) {
				cancel(ErrCanceled)
				return HookVerdict{}, hook.Err()
			}
		}).resultIn(t, ctx)
		if res.Code != toolyard.OK || res.Output != "hi" {
			t.Errorf("%q, %q", res.Code, res.Output)
		}
	})
	synctest.Test(t, func(t *testing.T) { // but a hook that hangs does not hold it for ever
		began := time.Now()
		res := newRig(func(r *rig) {
			r.post = func(ctx context.Context, _ HookInput) (HookVerdict, error) {
				<-ctx.Done()
				return HookVerdict{}, ctx.Err()
			}
		}).result(t)
		if res.Code != toolyard.PostHookFailed || res.Output != "hi" || time.Since(began) != DefaultFinishTimeout {
			t.Errorf("%q, %q after %s", res.Code, res.Output, time.Since(began))
		}
	})
}

// TestLeftBehindToolsAreBounded: a tool that ignores the end of its context does not delay its result, and its commit
// points are refused. If too many such tools run, no new call starts.
func TestLeftBehindToolsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left atomic.Pointer[tool.Env] // what runs on is not synchronised with the result
		var progress atomic.Int64
		r := newRig(with(timeoutMS(1_000)), with(func(t *tool.Tool) {
			t.Run = func(_ context.Context, e tool.Env, _ json.RawMessage) (tool.Output, error) {
				left.Store(&e)
				e.Progress(tool.Progress{})
				time.Sleep(time.Hour)
				return tool.Output{}, nil
			}
		}), func(r *rig) { r.MaxLeaked = 3; r.job.Progress = func(tool.Progress) { progress.Add(1) } })
		for i := range 3 {
			if res := r.result(t); res.Code != toolyard.Timeout || r.Leaked() != i+1 {
				t.Fatalf("%q, %d left behind", res.Code, r.Leaked())
			}
		}
		env := left.Load()
		if err := env.CommitPoint(); err == nil {
			t.Error("a tool that was left behind may commit")
		}
		env.Progress(tool.Progress{})
		if n := progress.Load(); n != 3*3 { // its start, its own and its end
			t.Errorf("%d reports, want those until the end", n)
		}
		res := r.result(t)
		if res.Code != toolyard.DependencyUnavailable || phaseOf(res) != toolyard.PhaseValidateValues ||
			!res.Retryable || res.RetryAfterMS == 0 || res.Attempts != 0 {
			t.Errorf("%+v", res)
		}
		time.Sleep(2 * time.Hour)
		if res := r.result(t); res.Code != toolyard.Timeout {
			t.Errorf("%q after they have returned", res.Code)
		}
		time.Sleep(2 * time.Hour)
	})
}

// TestCancelWhileTheClaimIsRecorded: the call has its slot by then, and must not start; the slot and the breaker's
// probe are released.
func TestCancelWhileTheClaimIsRecorded(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	released, reported := 0, breaker.Outcome("")
	r := newRig(func(r *rig) {
		r.start = func(context.Context) (func(), error) {
			cancel(ErrCanceled)
			return func() { released++ }, nil
		}
		r.allow = func(string) (func(breaker.Outcome), time.Duration, error) {
			return func(o breaker.Outcome) { reported = o }, 0, nil
		}
	})
	res := r.resultIn(t, ctx)
	if res.Code != toolyard.Canceled || phaseOf(res) != toolyard.PhaseSchedule || res.Attempts != 0 || released != 1 ||
		reported != breaker.Unrelated {
		t.Errorf("%q in %s, released %d times, reported %q", res.Code, phaseOf(res), released, reported)
	}
}

// TestNothingStartsWhenOthersWereLeftBehindMeanwhile: approval may have taken hours.
func TestNothingStartsWhenOthersWereLeftBehindMeanwhile(t *testing.T) {
	r := newRig()
	r.decide = func(context.Context, PermissionInput) (PermissionDecision, error) {
		r.leaks().Store(DefaultMaxLeaked)
		return PermissionDecision{Behavior: Allow}, nil
	}
	if res := r.result(t); res.Code != toolyard.DependencyUnavailable || phaseOf(res) != toolyard.PhaseSchedule ||
		res.Attempts != 0 {
		t.Errorf("%q in %s", res.Code, phaseOf(res))
	}
}

func TestGoexitIsAResult(t *testing.T) {
	res := newRig(with(func(tt *tool.Tool) {
		tt.Run = func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) {
			runtime.Goexit()
			return tool.Output{}, nil
		}
	})).result(t)
	if res.Code != toolyard.ExecutionFailed {
		t.Errorf("%q", res.Code)
	}
}

func TestSuccessWhileBeingStoppedIsSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		res := newRig(with(timeoutMS(1_000)), with(func(t *tool.Tool) {
			t.Run = func(ctx context.Context, _ tool.Env, _ json.RawMessage) (tool.Output, error) {
				<-ctx.Done()
				return tool.Output{Text: "done"}, nil
			}
		})).result(t)
		if res.Code != toolyard.OK || res.Output != "done" {
			t.Errorf("%q, %q", res.Code, res.Output)
		}
	})
}

// TestBreakerHearsOnlyOfInfrastructure runs the real breakers against calls that end in different ways.
func TestBreakerHearsOnlyOfInfrastructure(t *testing.T) {
	depends := with(func(t *tool.Tool) { t.Dependency = "db" })
	for _, tt := range []struct {
		name  string
		trips bool
		opts  []func(*rig)
	}{
		{"unavailable", true, []func(*rig){returns("", tool.Unavailable(errBoom, "down"))}},
		{"own timeout of a tool that depends on something", true, []func(*rig){with(waits), depends}},
		{"own timeout of a tool that names nothing", false, []func(*rig){with(waits)}},
		{"the batch is in a hurry", false, []func(*rig){with(waits), depends,
			func(r *rig) { r.job.CallTimeout = time.Millisecond }}},
		{"the tool fails", false, []func(*rig){returns("", errBoom)}},
		{"wrong values", false, []func(*rig){returns("", tool.Invalid("no"))}},
		{"a panic", false, []func(*rig){with(func(t *tool.Tool) {
			t.Run = func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) { panic("x") }
		})}},
		{"never started", false, []func(*rig){starts(errBoom)}},
		{"good", false, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := breaker.New(breaker.Options{})
				r := newRig(append(tt.opts, func(r *rig) { r.Breakers = b })...)
				for range breaker.DefaultTripAfter {
					r.result(t)
				}
				res := r.result(t)
				if tripped := strings.Contains(res.Error, "it was not tried"); tripped != tt.trips {
					t.Errorf("tripped: %t; %s", tripped, res.Error)
				}
				if tt.trips && (res.RetryAfterMS != breaker.DefaultOpenFor.Milliseconds() || !res.Retryable ||
					res.Attempts != 0) {
					t.Errorf("%+v", res)
				}
			})
		})
	}
}

// TestDeadAddressesOfOneHostStopNoOtherHost: for a tool whose input names the host, the breaker watches each host
// separately.
func TestDeadAddressesOfOneHostStopNoOtherHost(t *testing.T) {
	fetch := func(r *rig) {
		t := echo()
		t.Name, t.Aliases, t.Specifier = "fetch", nil, tool.Specifier{URL: "text"}
		t.Run = func(_ context.Context, _ tool.Env, input json.RawMessage) (tool.Output, error) {
			if strings.Contains(strings.ToLower(string(input)), "dead") {
				return tool.Output{}, tool.Unavailable(errBoom, "down")
			}
			return tool.Output{Text: "alive"}, nil
		}
		r.setTool(t)
		r.Breakers = breaker.New(breaker.Options{})
	}
	r := newRig(fetch)
	ask := func(address string) toolyard.Result {
		r.job.Call = toolyard.Call{ID: "c", Tool: "fetch", Input: json.RawMessage(fmt.Sprintf(`{"text":%q}`, address))}
		return r.result(t)
	}
	for _, address := range []string{"http://dead.example/1", "http://dead.example/2?q", "http://DEAD.example/",
		"http://dead.example.:80/", "http://dead.example:80"} {
		if res := ask(address); res.Error == "" || strings.Contains(res.Error, "it was not tried") {
			t.Fatalf("%s: %q", address, res.Error)
		}
	}
	if res := ask("http://dead.example/3"); !strings.Contains(res.Error, "it was not tried") ||
		!strings.Contains(res.Error, "dead.example:80") {
		t.Errorf("the host that is down: %q", res.Error)
	}
	for _, address := range []string{"http://alive.example/", "https://alive.dead.example/", "https://dead.example/",
		"http://dead.example:8080/", "http://[2001:db8::1]/", "nonsense", "http://"} {
		if res := ask(address); strings.Contains(res.Error, "it was not tried") {
			t.Errorf("%s: %q", address, res.Error)
		}
	}
	// A name that cannot be a host is not watched separately.
	long := "http://dead." + strings.Repeat("x", 1_000)
	for i := range breaker.DefaultTripAfter {
		ask(fmt.Sprintf("%s%d/", long, i))
	}
	if res := ask(long + "y/"); !strings.Contains(res.Error, "it was not tried") {
		t.Errorf("a name that is too long: %q", res.Error)
	}
	if res := ask("http://alive.example/"); res.Error != "" {
		t.Errorf("another host after that: %q", res.Error)
	}
}
