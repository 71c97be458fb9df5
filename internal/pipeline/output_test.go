package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/tool"
)

func maxChars(n int) func(*rig) { return with(func(t *tool.Tool) { t.MaxResultSizeChars = n }) }

func TestOutputSizes(t *testing.T) {
	for _, tt := range []struct {
		name      string
		text      string
		max       int
		code      toolyard.Code
		truncated bool
	}{
		{"at the tool's limit, in characters", strings.Repeat("ä", 1_000), 1_000, toolyard.OK, false},
		{"one past it", strings.Repeat("ä", 1_001), 1_000, toolyard.OK, true},
		{"at the default", strings.Repeat("x", tool.DefaultMaxResultSizeChars), 0, toolyard.OK, false},
		{"past the default", strings.Repeat("x", tool.DefaultMaxResultSizeChars+1), 0, toolyard.OK, true},
		{"opted out", strings.Repeat("x", MaxInlineResultBytes), -1, toolyard.OK, false},
		{"more than an event carries", strings.Repeat("\"", MaxInlineResultBytes/2+1), -1, toolyard.OK, true},
		{"the hard cap", strings.Repeat("x", MaxOutputBytes), -1, toolyard.OK, false},
		{"past the hard cap", strings.Repeat("x", MaxOutputBytes+1), -1, toolyard.ResultTooLarge, true},
		{"a tiny limit", "0123456789", 3, toolyard.OK, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(returns(tt.text, nil), maxChars(tt.max))
			res := r.result(t)
			if res.Code != tt.code || res.Truncated != tt.truncated || !utf8.ValidString(res.Output) {
				t.Fatalf("%q, truncated %t", res.Code, res.Truncated)
			}
			most := cmp.Or(max(tt.max, 0), tool.DefaultMaxResultSizeChars)
			if n := utf8.RuneCountInString(res.Output); tt.truncated && n > most {
				t.Errorf("a preview of %d characters", n)
			}
			if stored := len(r.stored) == 1 && r.stored[0] == tt.text &&
				res.Blob == "ref-1"; stored != (tt.truncated && tt.code == toolyard.OK) {
				t.Errorf("stored: %t, blob %q", stored, res.Blob)
			}
			if res.Blob != "" && tt.max != 3 && !strings.Contains(res.Output, `read_result and ref "ref-1"`) {
				t.Errorf("the preview does not say where the rest is: %.200s", res.Output)
			}
		})
	}
}

func TestWhatIsStoredIsRedacted(t *testing.T) {
	r := newRig(secretless, maxChars(100), returns(strings.Repeat("s3cret ", 100), nil))
	res := r.result(t)
	if res.Code != toolyard.ResultRedacted || res.IsError || !res.Truncated ||
		strings.Contains(r.stored[0]+res.Output, "s3cret") {
		t.Errorf("%+v", res)
	}
}

// TestARedactorThatBreaksShowsNothing: the second text it is given is the output.
func TestARedactorThatBreaksShowsNothing(t *testing.T) {
	r := newRig(returns("the s3cret", nil), func(r *rig) {
		r.Redact = func(s string) string {
			if strings.Contains(s, "s3cret") {
				panic("boom")
			}
			return s
		}
	})
	res := r.result(t)
	if res.Code != toolyard.InternalError || phaseOf(res) != toolyard.PhasePersistResult ||
		strings.Contains(fmt.Sprint(res), "s3cret") {
		t.Errorf("%+v", res)
	}
	r = newRig(returns("the s3cret", errors.New("the s3cret")),
		func(r *rig) { r.Redact = func(s string) string { return r.mustNot(s) } })
	if res := r.result(t); res.Code != toolyard.ExecutionFailed || strings.Contains(fmt.Sprint(res), "s3cret") ||
		!strings.Contains(res.Error, "Read the error") {
		t.Errorf("%+v", res)
	}
}

func (r *rig) mustNot(s string) string {
	if strings.Contains(s, "s3cret") {
		panic(s)
	}
	return s
}

// TestKeptOutputIsFittedToo: the output of a failed call is redacted and cut in the same way.
func TestKeptOutputIsFittedToo(t *testing.T) {
	r := newRig(secretless, maxChars(100), returns(strings.Repeat("s3cret ", 100), nil), after(HookVerdict{}, errBoom))
	res := r.result(t)
	if res.Code != toolyard.PostHookFailed || !res.Truncated || res.Blob != "ref-1" ||
		strings.Contains(r.stored[0]+res.Output, "s3cret") {
		t.Errorf("%+v", res)
	}
	r = newRig(maxChars(100), returns(strings.Repeat("x", 1_000), errBoom), func(r *rig) { r.Blobs = nil })
	if res := r.result(t); res.Code != toolyard.ExecutionFailed || len(res.Output) > 400 || !res.Truncated {
		t.Errorf("%+v", res)
	}
}

func TestErrorsAreBounded(t *testing.T) {
	res := newRig(returns("", errors.New("begin "+strings.Repeat("ü", 100_000)+" end"))).result(t)
	if n := utf8.RuneCountInString(res.Error); n > MaxErrorChars+300 || !strings.HasPrefix(res.Error, "begin") ||
		!strings.Contains(res.Error, " end.\nRead the error") {
		t.Errorf("%d characters: %.50s", n, res.Error)
	}
	res = newRig(returns("", tool.Failed(errors.New(strings.Repeat("ü", 100_000)), "no"))).result(t)
	if len(res.Detail) > MaxDetailBytes {
		t.Errorf("%d bytes of detail", len(res.Detail))
	}
	for _, f := range res.Phases {
		if len(f.Detail) > MaxFactDetailBytes {
			t.Errorf("%d bytes in %s", len(f.Detail), f.Phase)
		}
	}
}

func TestHookContextIsBounded(t *testing.T) {
	long := strings.Repeat("x", MaxHookContextChars)
	res := newRig(before(HookVerdict{Context: long}, nil), func(r *rig) {
		r.post = func(context.Context, HookInput) (HookVerdict, error) { return HookVerdict{Context: long}, nil }
	}).result(t)
	if n := len(res.Output); n < MaxHookContextChars || n > MaxHookContextChars+200 {
		t.Errorf("%d characters", n)
	}
}

func TestPostHooksSeeWhatCameOut(t *testing.T) {
	var got HookInput
	watch := func(r *rig) {
		r.post = func(_ context.Context, in HookInput) (HookVerdict, error) { got = in; return HookVerdict{}, nil }
	}
	newRig(watch, secretless, returns("s3cret", nil)).result(t)
	if got.Outcome.Output != "[redacted]" || got.Outcome.IsError || got.Tool != "echo" || got.CallID != "c3" ||
		got.Judgement.Class != toolyard.ReadOnly {
		t.Errorf("%+v", got)
	}
	newRig(watch, returns("part", tool.Failed(nil, "exit 1"))).result(t)
	if got.Outcome.Code != toolyard.ExecutionFailed || !got.Outcome.IsError || got.Outcome.Error != "exit 1" ||
		got.Outcome.Output != "part" {
		t.Errorf("%+v", got)
	}
}

func TestEnv(t *testing.T) {
	var env tool.Env
	deny := errors.New("not yours")
	r := newRig(with(func(t *tool.Tool) {
		t.Run = func(_ context.Context, e tool.Env, _ json.RawMessage) (tool.Output, error) {
			env = e
			e.Progress(tool.Progress{Fraction: 1}) // nobody listens
			return tool.Output{}, e.CommitPoint()
		}
	}), func(r *rig) {
		r.job.Attempt, r.job.Earlier, r.job.FencingToken = 3, 2, 7
		r.job.CommitPoint = func() error { return deny }
	})
	res := r.result(t)
	if env.Agent != "a" || env.Batch != "b" || env.Session != "s" || env.Index != 2 || env.CallID != "c3" ||
		env.Workspace != "ws" ||
		env.WorkspaceDir != "/ws" || env.Attempt != 3 || env.FencingToken != 7 ||
		env.IdempotencyKey != IdempotencyKey(r.job.Key, 2) {
		t.Errorf("%+v", env)
	}
	if res.Attempts != 3 || res.Code != toolyard.ExecutionFailed || !strings.Contains(res.Error, deny.Error()) {
		t.Errorf("%+v", res)
	}
	third := func(r *rig) { r.job.Attempt, r.job.Earlier = 3, 2 }
	if res := newRig(third, starts(errBoom)).result(t); res.Attempts != 2 {
		t.Errorf("%d attempts, want the two before this one", res.Attempts)
	}
	unstarted := func(r *rig) { r.job.Attempt = 3 }
	if res := newRig(unstarted).result(t); res.IsError || res.Attempts != 1 {
		t.Errorf("%d attempts, want this one", res.Attempts)
	}
	if res := newRig(unstarted, starts(errBoom)).result(t); res.Attempts != 0 ||
		strings.Contains(res.Error, "attempted before") {
		t.Errorf("%d attempts and %q, and none was started", res.Attempts, res.Error)
	}
	if IdempotencyKey(toolyard.BatchKey{Agent: "a/b", ID: "c"}, 1) == IdempotencyKey(toolyard.BatchKey{Agent: "a",
		ID: "b/c"}, 1) {
		t.Error("two calls, one key")
	}
}

// TestIsolationIsNotClaimedInVain: a tool that runs in the worker's own process is stamped so, whatever the worker can
// do. Only calls that ran in a sandbox have its stamp, and one command outside of it removes the stamp.
func TestIsolationIsNotClaimedInVain(t *testing.T) {
	runs := func(in ...string) func(*rig) {
		return with(func(t *tool.Tool) {
			run := t.Run
			t.Run = func(ctx context.Context, env tool.Env, input json.RawMessage) (tool.Output, error) {
				for _, isolation := range in {
					sandbox.Mark(ctx, isolation)
				}
				return run(ctx, env, input)
			}
		})
	}
	can := func(r *rig) {
		r.Isolation = "bwrap"
		with(func(t *tool.Tool) { t.Execution = tool.InSandbox })(r)
	}
	asks := with(func(t *tool.Tool) { t.Execution = tool.InService })
	for _, tt := range []struct {
		want string
		opts []func(*rig)
	}{
		{"none", []func(*rig){can}},
		{"none", []func(*rig){can, classed(toolyard.Unsafe)}},
		{"none", []func(*rig){asks, classed(toolyard.Unsafe)}},
		{"native", []func(*rig){can, runs("native", "native")}},
		{"none", []func(*rig){can, runs("native", "none")}},
		{"none", []func(*rig){func(r *rig) { r.Unsandboxed = true }, classed(toolyard.Unsafe), runs("none")}},
	} {
		if res := newRig(tt.opts...).result(t); res.Isolation != tt.want || res.IsError {
			t.Errorf("%q, want %q; %s", res.Isolation, tt.want, res.Error)
		}
	}
}

func TestTimesAreMeasured(t *testing.T) {
	now := time.Unix(0, 0)
	r := newRig(func(r *rig) {
		r.Now = func() time.Time { now = now.Add(time.Millisecond); return now }
		r.job.QueueMS = 4.5
		r.job.WasConcurrent = true
	})
	res := r.result(t)
	sum := 0.0
	for _, f := range res.Phases {
		sum += f.MS
	}
	if res.DurationMS < sum || sum == 0 || res.ExecuteMS != 1 || res.QueueMS != 4.5 || !res.WasConcurrent {
		t.Errorf("duration %g, phases %g, execute %g, queue %g", res.DurationMS, sum, res.ExecuteMS, res.QueueMS)
	}
}

func TestConcurrentCalls(t *testing.T) {
	r := newRig(secretless, before(HookVerdict{Context: "c"}, nil))
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 50 {
				job := r.job
				job.Index = i
				want := fmt.Sprintf("text %d %d", i, j)
				job.Call.Input = json.RawMessage(fmt.Sprintf(`{"text":%q}`, want))
				res, err := r.Run(t.Context(), job)
				if err != nil || res.Index != i || !strings.HasPrefix(res.Output, want) {
					t.Errorf("%+v, %v", res, err)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkRun(b *testing.B) {
	r := newRig()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Run(b.Context(), r.job); err != nil {
			b.Fatal(err)
		}
	}
}
