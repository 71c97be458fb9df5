package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/breaker"
	"github.com/toolyard/toolyard/internal/cache"
	"github.com/toolyard/toolyard/internal/elicit"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// loaded has one tool, whose code stays the same as a worker's does.
type loaded struct {
	code  *tool.Tool
	entry *registry.Entry
}

func (l *loaded) Lookup(string) (*tool.Tool, *registry.Entry, bool) { return l.code, l.entry, true }

// cachedRig is a rig whose tool declares a cache and says how often it was run.
type cachedRig struct {
	*rig
	ran atomic.Int64
	// run replaces the tool's code, when it is set.
	run func(context.Context, tool.Env) (tool.Output, error)
}

func newCached(t *testing.T, declared tool.Cache, change ...func(*rig)) *cachedRig {
	t.Helper()
	c := &cachedRig{}
	c.rig = newRig(append([]func(*rig){with(func(t *tool.Tool) {
		t.Cache = &declared
		t.Run = func(ctx context.Context, env tool.Env, _ json.RawMessage) (tool.Output, error) {
			n := c.ran.Add(1)
			if c.run != nil {
				return c.run(ctx, env)
			}
			return tool.Output{Text: fmt.Sprintf("output %d", n)}, nil
		}
	})}, change...)...)
	c.reload(t)
	c.Cache = &Cache{}
	c.job.Turn = &cache.Turn{Generation: 7}
	return c
}

// reload loads the tool again, as a worker does whose toolsets or settings have changed.
func (c *cachedRig) reload(t *testing.T) {
	t.Helper()
	code, entry, _ := c.Lookup("echo")
	made, err := tool.Raw(*code)
	must.OK(t, err)
	c.Tools = &loaded{&made, entry}
}

// after runs the call again, with a change to what it is.
func (c *cachedRig) after(t *testing.T, change func(*Job)) toolyard.Result {
	t.Helper()
	job := c.job
	change(&job)
	res, err := c.Run(t.Context(), job)
	must.OK(t, err)
	return res
}

func TestAnEqualCallIsAnsweredFromTheCache(t *testing.T) {
	c := newCached(t, tool.Cache{TTLMS: 60_000})
	first := c.result(t)
	if first.Cache != toolyard.CacheMiss || first.Output != "output 1" || first.Attempts != 1 {
		t.Fatalf("the first call: %+v", first)
	}
	hit := c.after(t, func(j *Job) { j.Key.ID, j.Index, j.Attempt, j.Earlier = "later", 4, 2, 1 })
	if hit.Cache != toolyard.CacheHit || hit.Output != "output 1" || hit.Attempts != 1 || hit.ExecuteMS != 0 ||
		hit.Isolation != "" || c.ran.Load() != 1 {
		t.Errorf("the second call: %+v", hit)
	}
	fact := hit.Phases[7]
	if fact.Phase != toolyard.PhaseExecute || fact.Outcome != toolyard.OutcomeNoted ||
		!strings.Contains(fact.Detail, "from the cache: the output of call 2 of a/b, ") {
		t.Errorf("the fact says %+v", fact)
	}
	if c.released() != 2 {
		t.Errorf("%d of 2 slots were given back", c.released())
	}
}

// TestWhatEndsAnOutput: each difference that may change the output has the tool run, and what may not does not.
func TestWhatEndsAnOutput(t *testing.T) {
	minute := tool.Cache{TTLMS: 60_000}
	same := func(*Job) {}
	given := func(input string) func(*Job) {
		return func(j *Job) { j.Call.Input = json.RawMessage(input) }
	}
	under := func(turn *cache.Turn) func(*Job) { return func(j *Job) { j.Turn = turn } }
	by := func(agent toolyard.Agent) func(*Job) { return func(j *Job) { j.Key.Agent = agent } }
	for what, p := range map[string]struct {
		cache  tool.Cache
		change func(*Job)
		hit    bool
	}{
		"nothing":                {minute, same, true},
		"another order":          {minute, given(`{ "n":1, "text":"hi"}`), true},
		"another input":          {minute, given(`{"text":"ho","n":1}`), false},
		"an exclusive call":      {minute, under(&cache.Turn{Generation: 8}), false},
		"no generation":          {minute, under(nil), false},
		"another workspace":      {minute, func(j *Job) { j.Workspace = "other" }, false},
		"another agent":          {minute, by("other"), false},
		"another agent, shared":  {tool.Cache{TTLMS: 60_000, Scope: tool.CacheWorkspace}, by("other"), true},
		"a rule of the batch":    {minute, under(&cache.Turn{Generation: 7, Deny: []string{"x"}}), false},
		"the session's context":  {minute, func(j *Job) { j.Context = map[string]string{"dir": "x"} }, false},
		"another session":        {minute, func(j *Job) { j.Session = "other" }, true},
		"no TTL":                 {tool.Cache{Coalesce: true}, same, false},
		"judged to write":        {minute, func(j *Job) { j.Judgement.Class = toolyard.WriteExclusive }, false},
		"judged to be not twice": {minute, func(j *Job) { j.Judgement.Idempotent = false }, false},
	} {
		c := newCached(t, p.cache, input(`{"text":"hi","n":1}`))
		c.result(t)
		res := c.after(t, p.change)
		if hit := res.Cache == toolyard.CacheHit; hit != p.hit || res.IsError || (c.ran.Load() == 1) != p.hit {
			t.Errorf("%s: hit %t, ran %d times: %+v", what, hit, c.ran.Load(), res)
		}
	}
}

// TestTimeEndsAnOutput: it counts from when the tool began.
func TestTimeEndsAnOutput(t *testing.T) {
	now := time.Unix(100, 0)
	c := newCached(t, tool.Cache{TTLMS: 1_000}, func(r *rig) { r.Now = func() time.Time { return now } })
	c.run = func(context.Context, tool.Env) (tool.Output, error) {
		now = now.Add(300 * time.Millisecond)
		return tool.Output{}, nil
	}
	c.result(t)
	now = now.Add(699 * time.Millisecond)
	if res := c.result(t); res.Cache != toolyard.CacheHit {
		t.Errorf("after 999 ms: %+v", res)
	}
	now = now.Add(time.Millisecond)
	if res := c.result(t); res.Cache != toolyard.CacheMiss {
		t.Errorf("after 1,000 ms: %+v", res)
	}
}

// TestFailuresAreNotCached: neither the tool's own, nor those of what follows it.
func TestFailuresAreNotCached(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","required":["n"]}`)
	for what, p := range map[string]struct {
		change []func(*rig)
		run    func(context.Context, tool.Env) (tool.Output, error)
	}{
		"the tool fails": {nil, func(context.Context, tool.Env) (tool.Output, error) {
			return tool.Output{Text: "half"}, errBoom
		}},
		"it panics":      {nil, func(context.Context, tool.Env) (tool.Output, error) { panic("boom") }},
		"a hook objects": {[]func(*rig){after(HookVerdict{Block: true, Reason: "no"}, nil)}, nil},
		"no structure":   {[]func(*rig){with(func(t *tool.Tool) { t.OutputSchema = schema })}, nil},
		"it is too large": {nil, func(context.Context, tool.Env) (tool.Output, error) {
			return tool.Output{Text: strings.Repeat("x", MaxOutputBytes+1)}, nil
		}},
		"it changes the session": {nil, func(context.Context, tool.Env) (tool.Output, error) {
			return tool.Output{Session: &tool.SessionChange{Loads: []string{"x"}}}, nil
		}},
	} {
		c := newCached(t, tool.Cache{TTLMS: 60_000, Coalesce: true}, p.change...)
		c.run = p.run
		for n := int64(1); n < 3; n++ {
			if res := c.after(t, func(*Job) {}); res.Cache != toolyard.CacheMiss || c.ran.Load() != n {
				t.Errorf("%s: call %d: it ran %d times: %+v", what, n, c.ran.Load(), res)
			}
		}
		if n := c.Cache.Bytes(); n != 0 {
			t.Errorf("%s: %d bytes are kept", what, n)
		}
	}
}

// TestAnAnswerIsForOneCall: what a tool makes of a person's answer is that call's alone, and no other output answers
// it.
func TestAnAnswerIsForOneCall(t *testing.T) {
	c := newCached(t, tool.Cache{TTLMS: 60_000, Coalesce: true})
	c.job.Interactive = true
	asks := func(j *Job) { j.Answer = &elicit.Answer{Key: "k", Content: json.RawMessage(`{}`)} }
	if first := c.after(t, asks); first.Cache != "" || first.Output != "output 1" {
		t.Errorf("a call with an answer: %+v", first)
	}
	if other := c.result(t); other.Cache != toolyard.CacheMiss || other.Output != "output 2" {
		t.Errorf("an equal call without one: %+v", other)
	}
	if again := c.after(t, asks); again.Cache != "" || again.Output != "output 3" {
		t.Errorf("another with an answer: %+v", again)
	}
}

// TestAHitPassesAllElse: schema, check, hooks before the call, permission and a dependency that is down refuse what the
// cache has the output of, and hooks behind the call change it anew.
func TestAHitPassesAllElse(t *testing.T) {
	refuse := false
	var posts atomic.Int64
	for code, change := range map[toolyard.Code]func(*rig){
		toolyard.PermissionDenied: func(r *rig) {
			r.decide = func(context.Context, PermissionInput) (PermissionDecision, error) {
				if refuse {
					return PermissionDecision{Behavior: Deny}, nil
				}
				return PermissionDecision{Behavior: Allow}, nil
			}
		},
		toolyard.HookBlocked: func(r *rig) {
			r.pre = func(context.Context, HookInput) (HookVerdict, error) { return HookVerdict{Block: refuse}, nil }
		},
		toolyard.InvalidArguments: with(func(t *tool.Tool) {
			t.Check = func(context.Context, tool.Env, json.RawMessage) error {
				if refuse {
					return tool.Invalid("no")
				}
				return nil
			}
		}),
		toolyard.DependencyUnavailable: func(r *rig) {
			r.allow = func(string) (func(breaker.Outcome), time.Duration, error) {
				if refuse {
					return nil, 0, errBoom
				}
				return func(breaker.Outcome) {}, 0, nil
			}
		},
		toolyard.Canceled: func(r *rig) {
			r.start = func(context.Context) (func(), error) {
				if refuse {
					return nil, ErrCanceled
				}
				return func() {}, nil
			}
		},
		"": func(r *rig) {
			r.post = func(_ context.Context, in HookInput) (HookVerdict, error) {
				seen := fmt.Sprintf("%s, seen %d times", in.Outcome.Output, posts.Add(1))
				return HookVerdict{Output: &seen}, nil
			}
		},
	} {
		refuse = false
		c := newCached(t, tool.Cache{TTLMS: 60_000}, change)
		if res := c.after(t, func(*Job) {}); res.Cache != toolyard.CacheMiss || res.IsError {
			t.Fatalf("%s: the first call: %+v", code, res)
		}
		refuse = true
		res := c.after(t, func(*Job) {})
		if code == "" {
			if res.Output != "output 1, seen 2 times" || res.Cache != toolyard.CacheHit {
				t.Errorf("a hook behind a hit: %+v", res)
			}
			continue
		}
		if res.Code != code || res.Cache != "" || c.ran.Load() != 1 || strings.Contains(res.Text(), "output 1") {
			t.Errorf("%s: %+v", code, res)
		}
	}
}

// TestACachedOutputIsRedactedAndStoredAnew: the hit's own agent gets a reference of its own, and the secrets that are
// known now are taken out.
func TestACachedOutputIsRedactedAndStoredAnew(t *testing.T) {
	c := newCached(t, tool.Cache{TTLMS: 60_000}, secretless, with(func(t *tool.Tool) { t.MaxResultSizeChars = 100 }))
	c.run = func(context.Context, tool.Env) (tool.Output, error) {
		return tool.Output{Text: "s3cret" + strings.Repeat("x", 6000)}, nil
	}
	first, hit := c.after(t, func(*Job) {}), c.after(t, func(*Job) {})
	if hit.Cache != toolyard.CacheHit || first.Blob != "ref-1" || hit.Blob != "ref-2" || len(c.stored) != 2 {
		t.Fatalf("the references are %q and %q: %+v", first.Blob, hit.Blob, hit)
	}
	for _, s := range append(c.stored, hit.Output) {
		if strings.Contains(s, "s3cret") {
			t.Errorf("a secret is in %.40q", s)
		}
	}
}

// TestOtherCodeHasOtherOutputs: what was loaded before a reload answers nothing behind it.
func TestOtherCodeHasOtherOutputs(t *testing.T) {
	c := newCached(t, tool.Cache{TTLMS: 60_000})
	c.result(t)
	c.reload(t)
	if res := c.result(t); res.Cache != toolyard.CacheMiss || c.ran.Load() != 2 {
		t.Errorf("after a reload: %+v", res)
	}
	if res := c.after(t, func(*Job) {}); res.Cache != toolyard.CacheHit {
		t.Errorf("and then: %+v", res)
	}
}

// TestWhatOneCallChangesAnotherDoesNotSee: hooks and what follows work on copies.
func TestWhatOneCallChangesAnotherDoesNotSee(t *testing.T) {
	c := newCached(t, tool.Cache{TTLMS: 60_000})
	structured := json.RawMessage(`{"n":1}`)
	c.run = func(context.Context, tool.Env) (tool.Output, error) {
		return tool.Output{Structured: structured, Content: []toolyard.Content{{Type: toolyard.ContentImage,
			Data: []byte("image"), MIMEType: "image/png"}}}, nil
	}
	c.result(t)
	structured[5] = '2' // the tool goes on using it
	hit := c.after(t, func(*Job) {})
	if string(hit.Structured) != `{"n":1}` || string(hit.Content[0].Data) != "image" {
		t.Fatalf("the hit has %s", hit.Structured)
	}
	hit.Content[0].Data[0] = 'x'
	if again := c.after(t, func(*Job) {}); string(again.Content[0].Data) != "image" {
		t.Errorf("the next one has %q", again.Content[0].Data)
	}
}

// beside runs calls at the same time and returns their results. begun is called when all that wait do so.
func (c *cachedRig) beside(t *testing.T, begun func(), jobs ...Job) []toolyard.Result {
	t.Helper()
	results := make([]toolyard.Result, len(jobs))
	var all sync.WaitGroup
	for n, job := range jobs {
		all.Go(func() {
			ctx := context.Background()
			if job.CallTimeout < 0 {
				ended, cancel := context.WithCancelCause(ctx)
				cancel(ErrCanceled)
				ctx, job.CallTimeout = ended, 0
			}
			res, err := c.Run(ctx, job)
			if err != nil && !errors.Is(err, ErrLost) {
				t.Errorf("job %d: %v", n, err)
			}
			results[n] = res
		})
		synctest.Wait()
	}
	begun()
	all.Wait()
	return results
}

// TestEqualCallsShareAnExecution: one runs, the others wait for it. When it comes to nothing, each of them runs itself.
func TestEqualCallsShareAnExecution(t *testing.T) {
	for what, p := range map[string]struct {
		fails bool
		want  string
		ran   int64
	}{
		"it succeeds": {false, "miss shared shared shared", 1},
		"it fails":    {true, "miss miss miss miss", 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCached(t, tool.Cache{Coalesce: true})
			gate := make(chan struct{})
			c.run = func(_ context.Context, env tool.Env) (tool.Output, error) {
				<-gate
				if p.fails && env.Index == 0 {
					return tool.Output{}, errBoom
				}
				return tool.Output{Text: "done"}, nil
			}
			jobs := make([]Job, 4)
			for n := range jobs {
				jobs[n] = c.job
				jobs[n].Index = n
			}
			var got []string
			for n, res := range c.beside(t, func() { close(gate) }, jobs...) {
				got = append(got, string(res.Cache))
				if failed := p.fails && n == 0; res.IsError != failed || !failed && res.Output != "done" ||
					res.Attempts == 0 != (res.Cache == toolyard.CacheShared) {
					t.Errorf("%s: call %d: %+v", what, n, res)
				}
			}
			if all := strings.Join(got, " "); all != p.want || c.ran.Load() != p.ran {
				t.Errorf("%s: %s after %d executions, want %s", what, all, c.ran.Load(), p.want)
			}
			if n := len(c.Cache.flights); n != 0 {
				t.Errorf("%s: %d executions are left to wait for", what, n)
			}
		})
	}
}

// TestWhoWaitsHasItsOwnEnd: its own time limit, cancel and lost right end the wait, and the execution goes on.
func TestWhoWaitsHasItsOwnEnd(t *testing.T) {
	for what, p := range map[string]struct {
		limit time.Duration
		cause error
		code  toolyard.Code
	}{
		"its time limit":  {limit: time.Second, code: toolyard.Timeout},
		"a cancel":        {cause: ErrCanceled, code: toolyard.Canceled},
		"a lost right":    {cause: ErrLost},
		"the batch's end": {cause: ErrDeadline, code: toolyard.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCached(t, tool.Cache{TTLMS: 60_000, Coalesce: true})
			gate := make(chan struct{})
			c.run = func(context.Context, tool.Env) (tool.Output, error) {
				<-gate
				return tool.Output{Text: "done"}, nil
			}
			var leader toolyard.Result
			var leading sync.WaitGroup
			leading.Go(func() { leader = c.after(t, func(*Job) {}) })
			synctest.Wait()
			job := c.job
			job.Index, job.CallTimeout = 9, p.limit
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var res toolyard.Result
			var err error
			waiting := make(chan struct{})
			go func() {
				defer close(waiting)
				res, err = c.Run(ctx, job)
			}()
			synctest.Wait()
			if p.cause != nil {
				cancel(p.cause)
			}
			<-waiting
			if p.cause == ErrLost != errors.Is(err, ErrLost) || res.Code != p.code || c.ran.Load() != 1 ||
				res.Attempts != 0 {
				t.Errorf("%s: %v, %+v", what, err, res)
			}
			if p.limit > 0 && !strings.Contains(res.Error, "an equal call, for which this one waited") {
				t.Errorf("%s: the model reads %q", what, res.Error)
			}
			close(gate)
			leading.Wait()
			if leader.Output != "done" || leader.Cache != toolyard.CacheMiss {
				t.Errorf("%s: the execution came to %+v", what, leader)
			}
			if res := c.after(t, func(*Job) {}); res.Cache != toolyard.CacheHit {
				t.Errorf("%s: the output is not kept: %+v", what, res)
			}
		})
	}
}

// TestALeaderThatIsStopped: who waits for a call that is canceled, or that leaves its tool behind, runs itself.
func TestALeaderThatIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(t, tool.Cache{TTLMS: 60_000, Coalesce: true})
		stuck := make(chan struct{})
		c.run = func(_ context.Context, env tool.Env) (tool.Output, error) {
			if env.Index == 2 {
				<-stuck // and ignores its context
				return tool.Output{Text: "late"}, nil
			}
			return tool.Output{Text: "own"}, nil
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if res, err := c.Run(ctx, c.job); err != nil || res.Code != toolyard.Canceled {
				t.Errorf("the leader: %v, %+v", err, res)
			}
		})
		synctest.Wait()
		all.Go(func() {
			res := c.after(t, func(j *Job) { j.Index = 3 })
			if res.Output != "own" || res.Cache != toolyard.CacheMiss ||
				!strings.Contains(res.Phases[7].Detail, "call 2 of a/b, for whose output it has waited, came to none") {
				t.Errorf("who waited: %+v", res)
			}
		})
		synctest.Wait()
		cancel(ErrCanceled)
		all.Wait()
		close(stuck)
		synctest.Wait()
		if res := c.after(t, func(*Job) {}); res.Cache != toolyard.CacheHit || res.Output != "own" {
			t.Errorf("what came late is kept: %+v", res)
		}
	})
}

// TestDifferentCallsDoNotWait: calls of other generations run beside each other.
func TestDifferentCallsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(t, tool.Cache{Coalesce: true})
		gate := make(chan struct{})
		c.run = func(context.Context, tool.Env) (tool.Output, error) { <-gate; return tool.Output{}, nil }
		jobs := []Job{c.job, c.job, c.job}
		jobs[1].Turn = &cache.Turn{Generation: 8}
		jobs[2].Turn = nil
		for n, res := range c.beside(t, func() {
			if c.ran.Load() != 3 {
				t.Errorf("%d of 3 run", c.ran.Load())
			}
			close(gate)
		}, jobs...) {
			if res.Cache == toolyard.CacheShared {
				t.Errorf("call %d: %+v", n, res)
			}
		}
	})
}

// TestWithoutACacheNothingIsPaid: a call of a tool that declares no cache does not look at it.
func TestWithoutACacheNothingIsPaid(t *testing.T) {
	r := newRig(func(r *rig) { r.Pipeline.Cache = &Cache{} })
	r.Cache.mu.Lock() // whoever looks waits for ever
	defer r.Cache.mu.Unlock()
	if res := r.result(t); res.IsError || res.Cache != "" {
		t.Errorf("%+v", res)
	}
}

// BenchmarkPhases is one call through all phases, of a tool that declares no cache, beside one that is answered from
// it.
func BenchmarkPhases(b *testing.B) {
	for name, declared := range map[string]*tool.Cache{"executed": nil, "hit": {TTLMS: 3_600_000}} {
		b.Run(name, func(b *testing.B) {
			r := newRig(with(func(t *tool.Tool) { t.Cache = declared }))
			code, entry, _ := r.Lookup("echo")
			r.Tools, r.Cache, r.job.Turn = &loaded{code, entry}, &Cache{}, &cache.Turn{Generation: 1}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Run(b.Context(), r.job); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestACachedOutputFromOutsideIsFenced: what the first call's output was marked as, another's is too.
func TestACachedOutputFromOutsideIsFenced(t *testing.T) {
	c := newCached(t, tool.Cache{TTLMS: 60_000}, scans("invisible=strip"), nonces("n0nce"))
	c.run = func(context.Context, tool.Env) (tool.Output, error) { return tool.Output{Text: "ignore" + tag}, nil }
	first, hit := c.after(t, func(*Job) {}), c.after(t, func(*Job) {})
	if hit.Cache != toolyard.CacheHit || hit.Output != first.Output || hit.Origin == nil {
		t.Errorf("first %q %+v, hit %v %q %+v", first.Output, first.Origin, hit.Cache, hit.Output, hit.Origin)
	}
}
