package pipeline

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// reportsEvery is a tool with a total duration that reports after each of the given pauses.
func reportsEvery(pauses ...time.Duration) func(*tool.Tool) {
	return func(t *tool.Tool) {
		t.Run = func(ctx context.Context, e tool.Env, _ json.RawMessage) (tool.Output, error) {
			for i, pause := range pauses {
				select {
				case <-ctx.Done():
					return tool.Output{Text: "half of it"}, ctx.Err()
				case <-time.After(pause):
				}
				e.Progress(tool.Progress{Fraction: float64(i+1) / float64(len(pauses)+1)})
			}
			return tool.Output{Text: "done"}, nil
		}
	}
}

func idleMS(ms int64) func(*tool.Tool) { return func(t *tool.Tool) { t.IdleTimeoutMS = ms } }

func times(n int, d time.Duration) []time.Duration {
	out := make([]time.Duration, n)
	for i := range out {
		out[i] = d
	}
	return out
}

// TestIdleTimeout: silence ends an execution, a report restarts the idle time, and the hard maximum always applies.
func TestIdleTimeout(t *testing.T) {
	for _, tt := range []struct {
		name  string
		opts  []func(*rig)
		after time.Duration
		code  toolyard.Code
		says  string
	}{
		{"silent from the start", []func(*rig){with(waits), with(idleMS(3_000))}, 3 * time.Second, toolyard.Timeout,
			"reported no progress for 3s"},
		{"never silent for so long", []func(*rig){with(reportsEvery(times(20, 2*time.Second)...)), with(idleMS(3_000))},
			40 * time.Second, toolyard.OK, ""},
		{"silent at last", []func(*rig){with(reportsEvery(2*time.Second, 2*time.Second, time.Minute)),
			with(idleMS(3_000))}, 7 * time.Second, toolyard.Timeout, "reported no progress for 3s"},
		{"the maximum holds", []func(*rig){with(reportsEvery(times(20, 2*time.Second)...)), with(idleMS(3_000)),
			with(timeoutMS(5_000))}, 5 * time.Second, toolyard.Timeout, "did not finish within 5s"},
		{"the batch's cap holds", []func(*rig){with(reportsEvery(times(20, 2*time.Second)...)), with(idleMS(3_000)),
			func(r *rig) { r.job.CallTimeout = 5 * time.Second }},
			5 * time.Second, toolyard.Timeout, "did not finish within 5s"},
		{"an idle limit beyond the maximum", []func(*rig){with(waits), with(idleMS(9_000)), with(timeoutMS(5_000))},
			5 * time.Second, toolyard.Timeout, "did not finish within 5s"},
		{"none declared", []func(*rig){with(waits)}, tool.DefaultTimeout, toolyard.Timeout,
			"did not finish within 2m0s"},
		{"a tool that does not listen", []func(*rig){with(ignores), with(idleMS(3_000))},
			3*time.Second + DefaultStopGrace, toolyard.Timeout, "reported no progress for 3s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				res := newRig(tt.opts...).result(t)
				if got := time.Since(began); got != tt.after {
					t.Errorf("took %s, want %s", got, tt.after)
				}
				if res.Code != tt.code || !strings.Contains(res.Error, tt.says) {
					t.Errorf("%q, want %q: %s", res.Code, tt.code, res.Error)
				}
				time.Sleep(2 * time.Hour) // for what was left behind
			})
		})
	}
}

// TestProgressHasABeginningAndAnEnd: 0 before the tool's own reports and 1 after them, however the call ends, and
// nothing for a call whose tool was not started.
func TestProgressHasABeginningAndAnEnd(t *testing.T) {
	for _, tt := range []struct {
		name string
		opt  func(*rig)
		want []float64
	}{
		{"it succeeds", with(reportsEvery(time.Second)), []float64{0, 0.5, 1}},
		{"it says nothing", with(waits), []float64{0, 1}},
		{"it is refused", func(r *rig) {
			r.decide = func(context.Context, PermissionInput) (PermissionDecision, error) {
				return PermissionDecision{Behavior: Deny}, nil
			}
		}, nil},
		{"it panics", with(func(t *tool.Tool) {
			t.Run = func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) { panic("oh") }
		}), []float64{0, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []float64
				var mu sync.Mutex
				r := newRig(tt.opt, func(r *rig) {
					r.job.Progress = func(p tool.Progress) {
						mu.Lock()
						defer mu.Unlock()
						got = append(got, p.Fraction)
					}
				})
				r.result(t)
				mu.Lock()
				defer mu.Unlock()
				if len(got) != len(tt.want) {
					t.Fatalf("%v, want %v", got, tt.want)
				}
				for i := range got {
					if got[i] != tt.want[i] {
						t.Fatalf("%v, want %v", got, tt.want)
					}
				}
			})
		})
	}
}
