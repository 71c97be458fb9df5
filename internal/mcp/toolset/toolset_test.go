package toolset

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// fakeServer is a server of a mode, started by a toolset. With the race detector it would take a second to end.
func fakeServer(mode string) manifest.Server {
	return manifest.Server{
		Name: "s", Command: []string{os.Args[0]}, MaxTools: 100, MaxInFlight: 4, StartTimeoutMS: 10_000,
		Env: map[string]string{modeVariable: mode, "GORACE": "atexit_sleep_ms=0"},
	}
}

// start runs a toolset for as long as the test.
func start(t *testing.T, s manifest.Server) *Toolset {
	t.Helper()
	return startWith(t, s, 10*time.Millisecond, 50*time.Millisecond)
}

// startWith is start with pauses before a session that has broken off begins again.
func startWith(t *testing.T, s manifest.Server, least, most time.Duration) *Toolset {
	t.Helper()
	set, err := New(Options{Server: s, Lookup: os.LookupEnv, MinPause: least, MaxPause: most,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	must.OK(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { set.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	testenv.Within(t, "the toolset is settled", set.Settled())
	return set
}

// until waits for changes of a toolset until something holds.
func until(t *testing.T, set *Toolset, what string, holds func() bool) {
	t.Helper()
	late := time.After(patience)
	for !holds() {
		select {
		case <-set.Changed():
		case <-late:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func names(set *Toolset) []string {
	var out []string
	for _, d := range set.Tools() {
		out = append(out, d.Name)
	}
	return out
}

func find(t *testing.T, set *Toolset, name string) tool.Tool {
	t.Helper()
	for _, d := range set.Tools() {
		if d.Name == "mcp__s__"+name {
			return d
		}
	}
	t.Fatalf("there is no tool %s among %q", name, names(set))
	return tool.Tool{}
}

// run calls a tool within a time.
func run(t *testing.T, set *Toolset, name string, limit time.Duration) (tool.Output, *tool.Error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	out, err := find(t, set, name).Run(ctx, tool.Env{IdempotencyKey: "ty-1", TraceParent: "00-a-b-01",
		TraceState: "v=1", Baggage: "user=ann",
		Progress: func(tool.Progress) {}},
		json.RawMessage(`{"a":1}`))
	if err == nil {
		return out, nil
	}
	return out, tool.AsError(err)
}

// again waits until a restarted server answers.
func again(t *testing.T, set *Toolset) {
	t.Helper()
	until(t, set, "the server answers again", func() bool {
		if set.Down() != nil {
			return false
		}
		out, err := run(t, set, "echo", patience)
		return err == nil && strings.Contains(toolyard.TextOf(out.Content), `{"a":1}`)
	})
}

// TestAHostileServerHarmsItsOwnCalls: each call ends with a code, and the server works again afterwards.
func TestAHostileServerHarmsItsOwnCalls(t *testing.T) {
	for name, want := range map[string]struct {
		code  toolyard.Code
		words string
	}{
		"crash":  {toolyard.OutcomeUnknown, "broke off"},
		"huge":   {toolyard.OutcomeUnknown, "broke off"},
		"noise":  {toolyard.OutcomeUnknown, "broke off"},
		"flood":  {toolyard.OutcomeUnknown, "broke off"},
		"refuse": {toolyard.InvalidArguments, "not like this"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := start(t, fakeServer("plain"))
			if _, err := run(t, set, name, patience); err == nil || err.Code != want.code ||
				!strings.Contains(err.Message, want.words) {
				t.Errorf("got %v, want %s", err, want.code)
			}
			again(t, set)
		})
	}
}

// TestAReadThatBreaksOffMayBeTriedAgain: what may run twice is a failure of the server, for the breaker and for
// retries.
func TestAReadThatBreaksOffMayBeTriedAgain(t *testing.T) {
	t.Parallel()
	s := fakeServer("plain")
	var o manifest.Override
	must.OK(t, json.Unmarshal([]byte(`{"concurrency_class":"READ_ONLY","is_read_only":true}`), &o))
	s.Tools = map[string]manifest.Override{"crash": o}
	set := start(t, s)
	if _, err := run(t, set, "crash", patience); err == nil || err.Code != toolyard.DependencyUnavailable ||
		!err.Retryable || !strings.Contains(err.Error(), "segmentation fault") {
		t.Errorf("got %v", err)
	}
}

// TestANoisyServer: the reason that the operator reads is what the server wrote in place of a message, once.
func TestANoisyServer(t *testing.T) {
	t.Parallel()
	o := manifest.Override{}
	must.OK(t, json.Unmarshal([]byte(`{"concurrency_class":"READ_ONLY","is_read_only":true}`), &o))
	s := fakeServer("plain")
	s.Tools = map[string]manifest.Override{"noise": o}
	set := startWith(t, s, time.Hour, time.Hour)
	const line = `"Traceback (most recent call last):"`
	if _, err := run(t, set, "noise", patience); err == nil || !strings.Contains(err.Error(), line) {
		t.Errorf("the call: %v", err)
	}
	for late := time.Now().Add(patience); set.Down() == nil; {
		if time.Now().After(late) {
			t.Fatal("the server is not held to be down")
		}
		time.Sleep(time.Millisecond) // between two looks
	}
	if down := set.Down().Error(); strings.Count(down, line) != 1 {
		t.Errorf("it is down: %s", down)
	}
}

// TestAServerThatDoesNotAnswer is given up after some calls, each of which ended in its time.
func TestAServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := fakeServer("plain")
	var o manifest.Override
	must.OK(t, json.Unmarshal([]byte(`{"timeout_ms":50}`), &o))
	s.Tools = map[string]manifest.Override{"hang": o}
	set := start(t, s)
	first := life(set)
	for range maxSilent {
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		_, err := find(t, set, "hang").Run(ctx, tool.Env{Progress: func(tool.Progress) {}}, json.RawMessage(`{}`))
		cancel()
		if err == nil { // it returns, or this test does not end
			t.Error("a call that hangs has an answer")
		}
	}
	testenv.Within(t, "the session is given up", first.Done())
	again(t, set)
}

// TestACallThatIsStoppedSaysNothingOfTheServer: agents with short limits do not restart it.
func TestACallThatIsStoppedSaysNothingOfTheServer(t *testing.T) {
	t.Parallel()
	set := start(t, fakeServer("plain"))
	first := life(set)
	for range 2 * maxSilent {
		if _, err := run(t, set, "hang", 5*time.Millisecond); err == nil {
			t.Error("a call that hangs has an answer")
		}
	}
	if _, err := run(t, set, "echo", patience); err != nil || first.Err() != nil {
		t.Errorf("the session is over: %v, %v", err, context.Cause(first))
	}
}

func TestToolsChangeDuringACall(t *testing.T) {
	t.Parallel()
	set := start(t, fakeServer("plain"))
	out, err := run(t, set, "change", patience)
	if err != nil || toolyard.TextOf(out.Content) != "changed" {
		t.Errorf("the call that ran: %v, %v", out, err)
	}
	until(t, set, "the new list is there", func() bool {
		return slices.Equal(names(set),
			[]string{"mcp__s__echo", "mcp__s__new"})
	})
	again(t, set)
}

// TestAChangedListThatCannotBeReadAtFirst is read again: the server does not say once more that it has changed.
func TestAChangedListThatCannotBeReadAtFirst(t *testing.T) {
	t.Parallel()
	set := start(t, fakeServer("busy"))
	if _, err := run(t, set, "change", patience); err != nil {
		t.Fatal(err)
	}
	until(t, set, "the new list is there", func() bool {
		return slices.Equal(names(set), []string{"mcp__s__echo", "mcp__s__new"})
	})
}

// TestAServerThatNeverStopsChanging keeps its last list, and its calls go on.
func TestAServerThatNeverStopsChanging(t *testing.T) {
	t.Parallel()
	set := start(t, fakeServer("grow"))
	until(t, set, "a second list", func() bool { return slices.Contains(names(set), "mcp__s__tool2") })
	again(t, set)
	if n := len(set.Tools()); n != 2 {
		t.Errorf("there are %d tools: %q", n, names(set))
	}
}

// TestWhatAServerAsksIsDeclined: a question gets an error, and the call its answer.
func TestWhatAServerAsksIsDeclined(t *testing.T) {
	t.Parallel()
	out, err := run(t, start(t, fakeServer("plain")), "ask", patience)
	if err != nil || !strings.Contains(toolyard.TextOf(out.Content), "does not support elicitation") &&
		!strings.Contains(toolyard.TextOf(out.Content), "code") {
		t.Errorf("got %v, %v", toolyard.TextOf(out.Content), err)
	}
}

// TestListsThatAreNotTaken: such a server has no tools, and the reason is reported.
func TestListsThatAreNotTaken(t *testing.T) {
	for mode, want := range map[string]string{"endless": "more than 128 pages", "many": "raise max_tools",
		"heavy":   "more than 25165824 bytes",
		"garbage": "connect", "deaf": "not ready within"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := fakeServer(mode)
			if mode == "deaf" {
				s.StartTimeoutMS = 300
			}
			set := start(t, s)
			if len(set.Tools()) != 0 || set.Down() == nil || !strings.Contains(set.Down().Error(), want) {
				t.Errorf("it has the tools %q, and is down for %v; want %q", names(set), set.Down(), want)
			}
		})
	}
}

// TestAServerThatDoesNotKnowTheNewestHandshake is spoken to in the older one.
func TestAServerThatDoesNotKnowTheNewestHandshake(t *testing.T) {
	t.Parallel()
	s := fakeServer("slow-discover")
	s.StartTimeoutMS = 1000
	set := start(t, s)
	until(t, set, "the tools are there", func() bool { return len(set.Tools()) > 0 })
	again(t, set)
}

// TestAnOldServerThatMayTakeLongToStart: an attempt that fails late is no healthy session, so the next one is in the
// other handshake.
func TestAnOldServerThatMayTakeLongToStart(t *testing.T) {
	t.Parallel()
	s := fakeServer("slow-discover")
	s.StartTimeoutMS = 1000
	set, err := New(Options{Server: s, Lookup: os.LookupEnv, MinPause: 10 * time.Millisecond,
		MaxPause: 50 * time.Millisecond, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	must.OK(t, err)
	set.healthyAfter = time.Second / 2
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { set.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	until(t, set, "the tools are there", func() bool { return len(set.Tools()) > 0 })
}

// TestACallOnABrokenSession: a server wrote what is no message, its session is broken, and its process takes its time
// to end. A call that begins meanwhile is not written to it, so it says that it was not made.
func TestACallOnABrokenSession(t *testing.T) {
	t.Parallel()
	set := start(t, fakeServer("lingers"))
	set.mu.Lock()
	s := set.session
	set.mu.Unlock()
	go func() { _, _ = find(t, set, "noise").Run(t.Context(), tool.Env{}, json.RawMessage(`{}`)) }()
	testenv.Until(t, "the session breaks", s.isBroken)
	if s.life.Err() != nil {
		t.Fatal("the session has ended already")
	}
	_, err := run(t, set, "echo", patience)
	if err == nil || err.Code != toolyard.DependencyUnavailable {
		t.Errorf("a call that was not written: got %v (%s), want %s", err, err.Code, toolyard.DependencyUnavailable)
	}
}

// TestOddTools: tools that cannot be used are left out, and annotations of an untrusted server have no effect.
func TestOddTools(t *testing.T) {
	t.Parallel()
	s := fakeServer("odd")
	set := start(t, s)
	if got := names(set); !slices.Equal(got, []string{
		"mcp__s__echo", "mcp__s__broken", "mcp__s__outside", "mcp__s__untyped", "mcp__s__bare", "mcp__s__tuple",
		"mcp__s__email", "mcp__s__unread",
		"mcp__s__bigout", "mcp__s__brokenout", "mcp__s__last",
	}) {
		t.Errorf("the tools are %q", got)
	}
	var remarks []string
	for _, r := range set.Remarks() {
		remarks = append(remarks, strings.TrimPrefix(r.String(), "mcp__s__"))
	}
	if d := cmp.Diff([]string{
		`echo: left out: the server lists two tools of this name; this is the second`,
		`a b: left out: its name cannot be offered; with "mcp__s__" in front it has at most 128 of the letters, digits and _ . / -`,
		`x(y): left out: its name cannot be offered; with "mcp__s__" in front it has at most 128 of the letters, digits and _ . / -`,
		`: left out: its name cannot be offered; with "mcp__s__" in front it has at most 128 of the letters, digits and _ . / -`,
		strings.Repeat("n", 128) +
			`: left out: its name cannot be offered; with "mcp__s__" in front it has at most 128 of the letters, digits and _ . / -`,
		`text: left out: its input schema: its type is string; the input of a tool is an object`,
		`broken: altered: input schema: /properties/a/type: "nonsense" is no type; any value is taken`,
		`big: left out: its input schema: it has 65570 bytes; at most 65536 are taken`,
		`outside: altered: input schema: /properties/a/$ref: http://127.0.0.1:1/schema leads out of the schema, and nothing is loaded; any value is taken`,
		`untyped: altered: input schema: the root does not say that it is an object; it is read as one`,
		`bare: altered: input schema: there is no input schema; any fields are taken`,
		`tuple: altered: input schema: /properties/a/items: a list is read as prefixItems, which 2020-12 calls it`,
		`tuple: altered: input schema: /properties/a/exclusiveMinimum: true is read as draft 4 has it`,
		`unread: altered: input schema: the pattern (a is not checked: it is no regular expression of ECMA-262, Go or Python`,
		`bigout: altered: output schema: it is left out, and no output is checked: it has 71034 bytes; at most 65536 are taken`,
		`brokenout: altered: output schema: it is left out, and no output is checked: the schema is not an object: got array of 0`,
		`last: altered: its description has 32768 bytes; what is past 16384 is cut off`,
	}, remarks); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := find(t, set, "bigout"); d.OutputSchema != nil {
		t.Errorf("the output schema is still there")
	}
	echo := find(t, set, "echo")
	if j, ok := echo.StaticJudgement(); !ok || j.Class != toolyard.Unsafe || j.ReadOnly || !j.Destructive ||
		j.Idempotent || !echo.NeedsPermission() || strings.Contains(echo.Description, "second") {
		t.Errorf("a tool that nobody trusts is judged %+v: %+v", j, echo.Declaration)
	}
	if d := find(t, set, "last").Description; len(d) != MaxDescriptionBytes {
		t.Errorf("a description has %d bytes", len(d))
	}
	s.Trusted = true
	echo = find(t, start(t, s), "echo")
	if j, _ := echo.StaticJudgement(); j.Class != toolyard.ReadOnly || !j.ReadOnly || !j.Idempotent || j.Destructive {
		t.Errorf("a trusted server's tool is judged %+v", j)
	}
}

// TestOneServerDoesNotHoldUpAnother: while one server never starts, hangs or crashes, calls on another are answered.
func TestOneServerDoesNotHoldUpAnother(t *testing.T) {
	t.Parallel()
	bad := start(t, fakeServer("plain"))
	good := start(t, fakeServer("plain"))
	ctx, cancel := context.WithCancel(t.Context())
	var hanging sync.WaitGroup
	for range 10 {
		hanging.Go(func() {
			_, _ = find(t, bad, "hang").Run(ctx, tool.Env{Progress: func(tool.Progress) {}}, json.RawMessage(`{}`))
		})
	}
	for range 20 {
		if _, err := run(t, good, "echo", patience); err != nil {
			t.Errorf("a call on the other server: %v", err)
		}
	}
	cancel()
	hanging.Wait()
}

// TestADownServerAnswersAtOnce: a call does not wait for a server that is down, and says when it is tried again.
func TestADownServerAnswersAtOnce(t *testing.T) {
	t.Parallel()
	set, err := New(Options{Server: fakeServer("garbage"), Lookup: os.LookupEnv, MinPause: time.Hour,
		MaxPause: time.Hour, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	must.OK(t, err)
	_, err = set.current()
	if e := tool.AsError(err); e.Code != toolyard.DependencyUnavailable || e.RetryAfterMS < 59*60_000 {
		t.Errorf("before it was started: %+v", e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { set.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	testenv.Within(t, "the first attempt is over", set.Settled())
	for late := time.Now().Add(patience); set.Down() == nil || set.retry().IsZero(); {
		if time.Now().After(late) {
			t.Fatal("the server is not held to be down")
		}
		time.Sleep(time.Millisecond) // between two looks
	}
	_, err = set.current()
	if e := tool.AsError(err); e.Code != toolyard.DependencyUnavailable || e.RetryAfterMS < 59*60_000 || !e.Retryable {
		t.Errorf("a call without a session: %+v", e)
	}
}

// TestACallIsToldHowLongAStartTakes: a server that is slow to start is back no sooner after a crash than it was there
// at first, and each call that comes before counts for the breaker.
func TestACallIsToldHowLongAStartTakes(t *testing.T) {
	t.Parallel()
	set := start(t, fakeServer("slow-start"))
	began := time.Now() // before the crash
	_, _ = run(t, set, "crash", patience)
	_, err := set.current()
	if err == nil { // it is back
		return
	}
	again := time.Duration(tool.AsError(err).RetryAfterMS)*time.Millisecond + time.Since(began)
	if again < slowStart {
		t.Errorf("a call is to come again %s after the crash", again)
	}
}

// retry is when the next session is tried.
func (t *Toolset) retry() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.retryAt
}

// life is that of the session that there is.
func life(set *Toolset) context.Context {
	set.mu.Lock()
	defer set.mu.Unlock()
	return set.session.life
}
