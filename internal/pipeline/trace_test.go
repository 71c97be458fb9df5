package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/breaker"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

var update = flag.Bool("update", false, "rewrite the golden traces")

// executes sets where the tool runs.
func executes(e tool.Execution) func(*rig) { return with(func(t *tool.Tool) { t.Execution = e }) }

// scenarios are representative calls, at least one for every code that this version can give on a worker.
var scenarios = []struct {
	name string
	want toolyard.Code
	in   toolyard.Phase // where it ends; empty on success
	opts []func(*rig)
}{
	{"a good call", toolyard.OK, "", nil},
	{"a good call by its alias", toolyard.OK, "",
		[]func(*rig){func(r *rig) {
			r.job.Call.Tool = "Echo"
			r.job.Judgement = tool.Judgement{Class: toolyard.ReadOnly}
		}}},
	{"a good call with hooks that have nothing to say", toolyard.OK, "",
		[]func(*rig){before(HookVerdict{}, nil), after(HookVerdict{}, nil)}},
	{"an UNSAFE call of a tool that runs in the sandbox", toolyard.OK, "",
		[]func(*rig){classed(toolyard.Unsafe), executes(tool.InSandbox), func(r *rig) { r.Isolation = "bwrap" }}},
	{"an UNSAFE call of a tool that asks a service", toolyard.OK, "", []func(*rig){classed(toolyard.Unsafe),
		executes(tool.InService)}},

	{"unknown tool", toolyard.UnknownTool, toolyard.PhaseResolveTool,
		[]func(*rig){func(r *rig) { r.job.Call.Tool = "nope" }}},
	{"no tools at all", toolyard.UnknownTool, toolyard.PhaseResolveTool, []func(*rig){func(r *rig) { r.Tools = nil }}},
	{"blocked by the batch", toolyard.BlockedTool, toolyard.PhaseResolveTool,
		[]func(*rig){func(r *rig) { r.job.Rules = blockRule("echo") }}},
	{"another declaration than planned", toolyard.InternalError, toolyard.PhaseResolveTool,
		[]func(*rig){func(r *rig) { r.job.Declaration = "0123" }}},

	{"wrong type and unknown field", toolyard.SchemaValidationFailed, toolyard.PhaseParseSchema,
		[]func(*rig){input(`{"text":5,"m":1}`)}},
	{"broken arguments", toolyard.SchemaValidationFailed, toolyard.PhaseParseSchema,
		[]func(*rig){input(`"{\"text\": "`)}},
	{"a broken schema", toolyard.InternalError, toolyard.PhaseParseSchema,
		[]func(*rig){with(func(t *tool.Tool) { t.InputSchema = json.RawMessage(`{"$ref":"http://x/"}`) })}},

	{"values that do not fit", toolyard.InvalidArguments, toolyard.PhaseValidateValues,
		[]func(*rig){checks(tool.Invalid("text: there is no file %q", "hi"))}},
	{"a check that just says no", toolyard.InvalidArguments, toolyard.PhaseValidateValues,
		[]func(*rig){checks(errBoom)}},
	{"a path outside", toolyard.SandboxViolation, toolyard.PhaseValidateValues,
		[]func(*rig){checks(tool.Violation("the path leaves the workspace"))}},
	{"something to set up", toolyard.SetupRequired, toolyard.PhaseValidateValues,
		[]func(*rig){checks(tool.SetupRequired("there is no ripgrep"))}},
	{"a check that finds a dependency down", toolyard.DependencyUnavailable, toolyard.PhaseValidateValues,
		[]func(*rig){checks(tool.Unavailable(errBoom, "the index is down"))}},
	{"a check that panics", toolyard.InternalError, toolyard.PhaseValidateValues, []func(*rig){with(func(t *tool.Tool) {
		t.Check = func(context.Context, tool.Env, json.RawMessage) error { panic("boom") }
	})}},
	{"UNSAFE code on a worker that can isolate commands", toolyard.SetupRequired, toolyard.PhaseValidateValues,
		[]func(*rig){classed(toolyard.Unsafe), func(r *rig) { r.Isolation = "bwrap" }}},
	{"a read of a tool that runs in the sandbox, without one", toolyard.SetupRequired, toolyard.PhaseValidateValues,
		[]func(*rig){executes(tool.InSandbox)}},
	{"a place of execution that nobody knows", toolyard.SetupRequired, toolyard.PhaseValidateValues,
		[]func(*rig){executes("moon")}},
	{"UNSAFE without isolation", toolyard.SetupRequired, toolyard.PhaseValidateValues,
		[]func(*rig){classed(toolyard.Unsafe)}},
	{"UNSAFE without isolation, and wrong values: those first", toolyard.InvalidArguments, toolyard.PhaseValidateValues,
		[]func(*rig){classed(toolyard.Unsafe), checks(tool.Invalid("text: no such host"))}},
	{"nothing judged", toolyard.SetupRequired, toolyard.PhaseValidateValues,
		[]func(*rig){func(r *rig) { r.job.Judgement.Class = "WHATEVER" }}},

	{"a redactor that panics on the input", toolyard.InputMutationFailed, toolyard.PhaseObservableInput,
		[]func(*rig){func(r *rig) { r.Redact = func(string) string { panic("boom") } }}},

	{"a hook vetoes", toolyard.HookBlocked, toolyard.PhasePreHooks,
		[]func(*rig){before(HookVerdict{Block: true, Reason: "not on Fridays", By: "friday"}, nil)}},
	{"a hook stops the agent", toolyard.HookBlocked, toolyard.PhasePreHooks,
		[]func(*rig){before(HookVerdict{Stop: true, By: "stopper"}, nil)}},
	{"a hook breaks", toolyard.HookFailed, toolyard.PhasePreHooks, []func(*rig){before(HookVerdict{}, errBoom)}},
	{"a hook sends what is no JSON", toolyard.HookFailed, toolyard.PhasePreHooks,
		[]func(*rig){before(HookVerdict{Input: json.RawMessage(`{`), By: "h"}, nil)}},
	{"a hook has an unknown opinion", toolyard.HookFailed, toolyard.PhasePreHooks,
		[]func(*rig){before(HookVerdict{Opinion: "maybe", By: "h"}, nil)}},
	{"a hook panics", toolyard.InternalError, toolyard.PhasePreHooks, []func(*rig){func(r *rig) {
		r.pre = func(context.Context, HookInput) (HookVerdict, error) { panic("boom") }
	}}},
	{"a hook changes the input", toolyard.OK, "",
		[]func(*rig){before(HookVerdict{Input: json.RawMessage(`{"text":"changed"}`), By: "changer"}, nil)}},
	{"a hook changes the input into one that does not fit", toolyard.SchemaValidationFailed, toolyard.PhaseParseSchema,
		[]func(*rig){before(HookVerdict{Input: json.RawMessage(`{"txt":"changed"}`), By: "changer"}, nil)}},
	{"a hook changes the input into one that leads outside", toolyard.SandboxViolation, toolyard.PhaseValidateValues,
		[]func(*rig){before(HookVerdict{Input: json.RawMessage(`{"text":"/etc"}`), By: "changer"}, nil),
			with(func(t *tool.Tool) {
				t.Check = func(_ context.Context, _ tool.Env, input json.RawMessage) error {
					if bytes.Contains(input, []byte("/etc")) {
						return tool.Violation("the path leaves the workspace")
					}
					return nil
				}
			})}},
	{"a hook adds context", toolyard.OK, "", []func(*rig){before(HookVerdict{Context: "the build is red"}, nil)}},

	{"a hook adds context and the tool fails", toolyard.ExecutionFailed, toolyard.PhaseExecute,
		[]func(*rig){before(HookVerdict{Context: "the build is red"}, nil), returns("", errBoom)}},

	{"denied", toolyard.PermissionDenied, toolyard.PhasePermission,
		[]func(*rig){decides(PermissionDecision{Behavior: Deny, Source: "rule echo", Reason: "echo is not allowed"},
			nil)}},
	{"undecided, nobody to ask", toolyard.PermissionDenied, toolyard.PhasePermission,
		[]func(*rig){decides(PermissionDecision{Behavior: Ask, Source: "undecided"}, nil)}},
	{"an empty decision", toolyard.PermissionDenied, toolyard.PhasePermission,
		[]func(*rig){decides(PermissionDecision{}, nil)}},
	{"a permission that breaks", toolyard.PermissionDenied, toolyard.PhasePermission,
		[]func(*rig){decides(PermissionDecision{Behavior: Allow}, errBoom)}},
	{"no permission at all", toolyard.PermissionDenied, toolyard.PhasePermission,
		[]func(*rig){func(r *rig) { r.Permission = nil }}},
	{"a hook denies, the rules allow", toolyard.PermissionDenied, toolyard.PhasePermission,
		[]func(*rig){before(HookVerdict{Opinion: Deny, Reason: "no"}, nil)}},
	{"a hook allows, the rules deny", toolyard.PermissionDenied, toolyard.PhasePermission,
		[]func(*rig){before(HookVerdict{Opinion: Allow}, nil),
			decides(PermissionDecision{Behavior: Deny, Source: "rule"}, nil)}},
	{"a person says no", toolyard.ApprovalRejected, toolyard.PhasePermission,
		[]func(*rig){decides(PermissionDecision{Behavior: Deny, Code: toolyard.ApprovalRejected, Source: "ann",
			Reason: "too early"}, nil)}},
	{"a person is away", toolyard.ApprovalExpired, toolyard.PhasePermission,
		[]func(*rig){decides(PermissionDecision{Behavior: Deny, Code: toolyard.ApprovalExpired}, nil)}},
	{"the policy rules it out", toolyard.PolicyBlocked, toolyard.PhasePermission,
		[]func(*rig){decides(PermissionDecision{Behavior: Deny, Code: toolyard.PolicyBlocked}, nil)}},
	{"a tool that talks to nobody", toolyard.PolicyBlocked, toolyard.PhasePermission,
		[]func(*rig){with(func(t *tool.Tool) { t.RequiresUserInteraction = true })}},

	{"canceled in the queue", toolyard.Canceled, toolyard.PhaseSchedule,
		[]func(*rig){starts(fmt.Errorf("%w: by ann", ErrCanceled))}},
	{"a sibling failed", toolyard.SiblingCanceled, toolyard.PhaseSchedule,
		[]func(*rig){starts(ErrSiblingCanceled{Culprit: "c1 (read_file)"})}},
	{"too late", toolyard.DeadlineExceeded, toolyard.PhaseSchedule, []func(*rig){starts(ErrDeadline)}},
	{"no turn", toolyard.DependencyUnavailable, toolyard.PhaseSchedule, []func(*rig){starts(errBoom)}},
	{"something is prepared", toolyard.OK, "", []func(*rig){prepares("a snapshot", nil)}},
	{"nothing can be prepared here", toolyard.SetupRequired, toolyard.PhaseSchedule,
		[]func(*rig){prepares("", tool.SetupRequired("this worker keeps no snapshots"))}},
	{"nothing may be prepared", toolyard.SandboxViolation, toolyard.PhaseSchedule,
		[]func(*rig){prepares("", tool.Violation("the workspace is in quarantine"))}},
	{"preparing fails", toolyard.DependencyUnavailable, toolyard.PhaseSchedule, []func(*rig){prepares("", errBoom)}},
	{"no start", toolyard.InternalError, toolyard.PhaseSchedule, []func(*rig){func(r *rig) { r.job.Start = nil }}},
	{"an open breaker", toolyard.DependencyUnavailable, toolyard.PhaseSchedule, []func(*rig){func(r *rig) {
		r.allow = func(string) (func(breaker.Outcome), time.Duration, error) {
			return nil, 12_345_678 * time.Microsecond, breaker.ErrOpen
		}
	}}},

	{"the tool fails", toolyard.ExecutionFailed, toolyard.PhaseExecute,
		[]func(*rig){returns("half of it", tool.Failed(errBoom, "exit status 1"))}},
	{"the tool fails with a plain error", toolyard.ExecutionFailed, toolyard.PhaseExecute,
		[]func(*rig){returns("", errBoom)}},
	{"the tool panics", toolyard.ExecutionFailed, toolyard.PhaseExecute, []func(*rig){with(func(t *tool.Tool) {
		t.Run = func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) { panic("boom") }
	})}},
	{"the tool's dependency is down", toolyard.DependencyUnavailable, toolyard.PhaseExecute,
		[]func(*rig){returns("", &tool.Error{Code: toolyard.DependencyUnavailable, Message: "503", Retryable: true,
			RetryAfterMS: 700})}},
	{"the tool finds the values wrong", toolyard.InvalidArguments, toolyard.PhaseExecute,
		[]func(*rig){returns("", tool.Invalid("old_string is not in the file"))}},
	{"the tool lacks something", toolyard.SetupRequired, toolyard.PhaseExecute,
		[]func(*rig){returns("", tool.SetupRequired("no key for the service"))}},
	{"the tool leaves the sandbox", toolyard.SandboxViolation, toolyard.PhaseExecute,
		[]func(*rig){returns("", tool.Violation("a link leaves the workspace"))}},
	{"the tool does not know what it did", toolyard.OutcomeUnknown, toolyard.PhaseExecute,
		[]func(*rig){returns("", &tool.Error{Code: toolyard.OutcomeUnknown,
			Message: "the connection broke after the request was sent"})}},
	{"the tool's own timeout", toolyard.Timeout, toolyard.PhaseExecute,
		[]func(*rig){classed(toolyard.WriteExclusive), returns("",
			&tool.Error{Code: toolyard.Timeout, Message: "the command ran for 5 s"})}},
	{"the tool gives a code that is not its own", toolyard.ExecutionFailed, toolyard.PhaseExecute,
		[]func(*rig){returns("", &tool.Error{Code: toolyard.PermissionDenied, Message: "403"})}},
	{"a nil error in an error", toolyard.ExecutionFailed, toolyard.PhaseExecute,
		[]func(*rig){returns("", (*tool.Error)(nil))}},

	{"an output that can't be encoded", toolyard.ResultMappingFailed, toolyard.PhaseMapResult,
		[]func(*rig){returns("", &tool.Error{Code: toolyard.ResultMappingFailed, Message: "a channel can't be JSON"})}},
	{"no structured part", toolyard.ResultMappingFailed, toolyard.PhaseMapResult,
		[]func(*rig){with(func(t *tool.Tool) { t.OutputSchema = json.RawMessage(`{"type":"object"}`) })}},
	{"a structured part that does not fit", toolyard.ResultMappingFailed, toolyard.PhaseMapResult,
		[]func(*rig){structured(`{"n":"x"}`, `{"type":"object","properties":{"n":{"type":"integer"}}}`)}},
	{"a structured part", toolyard.OK, "", []func(*rig){structured(`{ "n": 1, "more": [] }`,
		`{"type":"object","properties":{"n":{"type":"integer"}}}`)}},
	{"an output that is not UTF-8", toolyard.OK, "", []func(*rig){returns("a\xffb", nil)}},

	{"a post-hook breaks", toolyard.PostHookFailed, toolyard.PhasePostHooks,
		[]func(*rig){after(HookVerdict{}, errBoom)}},
	{"a post-hook panics", toolyard.InternalError, toolyard.PhasePostHooks, []func(*rig){func(r *rig) {
		r.post = func(context.Context, HookInput) (HookVerdict, error) { panic("boom") }
	}}},
	{"a post-hook withholds", toolyard.HookBlocked, toolyard.PhasePostHooks,
		[]func(*rig){after(HookVerdict{Block: true, Reason: "it names a customer", By: "privacy"}, nil)}},
	{"a post-hook changes the output", toolyard.OK, "",
		[]func(*rig){after(HookVerdict{Output: newText("shorter"), Context: "and this", By: "changer"}, nil)}},
	{"the tool fails and so does the post-hook", toolyard.ExecutionFailed, toolyard.PhaseExecute,
		[]func(*rig){returns("", errBoom), after(HookVerdict{}, errBoom)}},

	{"a secret in input and output", toolyard.ResultRedacted, "", []func(*rig){secretless,
		input(`{"text":"the s3cret"}`)}},
	{"a secret in an error", toolyard.ExecutionFailed, toolyard.PhaseExecute,
		[]func(*rig){secretless, returns("", tool.Failed(fmt.Errorf("got s3cret"), "the key s3cret is wrong"))}},
	{"a long output", toolyard.OK, "", []func(*rig){returns(strings.Repeat("0123456789", 30), nil),
		with(func(t *tool.Tool) { t.MaxResultSizeChars = 100 })}},
	{"a long output and no store", toolyard.ResultTooLarge, toolyard.PhasePersistResult,
		[]func(*rig){returns(strings.Repeat("0123456789", 30), nil),
			with(func(t *tool.Tool) { t.MaxResultSizeChars = 100 }), func(r *rig) { r.Blobs = nil }}},
	{"a long output and a store that is down", toolyard.ResultTooLarge, toolyard.PhasePersistResult,
		[]func(*rig){returns(strings.Repeat("0123456789", 30), nil),
			with(func(t *tool.Tool) { t.MaxResultSizeChars = 100 }), func(r *rig) {
				r.put = func(context.Context, string) (string, error) { return "", errBoom }
			}}},
	{"a long output and a store that panics", toolyard.ResultTooLarge, toolyard.PhasePersistResult,
		[]func(*rig){returns(strings.Repeat("0123456789", 30), nil),
			with(func(t *tool.Tool) { t.MaxResultSizeChars = 100 }), func(r *rig) {
				r.put = func(context.Context, string) (string, error) { panic("boom") }
			}}},
}

func structured(out, outputSchema string) func(*rig) {
	return with(func(t *tool.Tool) {
		t.OutputSchema = json.RawMessage(outputSchema)
		t.Run = func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) {
			return tool.Output{Structured: json.RawMessage(out)}, nil
		}
	})
}

// TestTraces compares the facts of each scenario with testdata/traces.txt. Run it with -update and review the
// difference as behaviour.
func TestTraces(t *testing.T) {
	var b strings.Builder
	b.WriteString("# One call a block: a fact a line (phase, outcome, code, detail), then the result. Times are left " +
		"out.\n")
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			r := newRig(s.opts...)
			res := r.result(t)
			if res.Code != s.want || phaseOf(res) != s.in {
				t.Errorf("ended with %q in %q, want %q in %q", res.Code, phaseOf(res), s.want, s.in)
			}
			if res.Worker != "w1" || res.CallID != "c3" || res.Index != 2 || res.DurationMS <= 0 {
				t.Errorf("%+v", res)
			}
			if started := res.Attempts == 1; started != (res.Isolation != "") {
				t.Errorf("attempts %d, isolation %q", res.Attempts, res.Isolation)
			}
			if r.Leaked() != 0 {
				t.Errorf("%d goroutines were left behind", r.Leaked())
			}
			b.WriteString("\n== " + s.name + "\n" + trace(res))
		})
	}
	file := filepath.Join("testdata", "traces.txt")
	if *update {
		must.OK(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	want := must.Read(t, file)
	if got := b.String(); got != string(want) {
		at := 0
		for at < len(got) && at < len(want) && got[at] == want[at] {
			at++
		}
		at = max(0, at-200)
		t.Errorf("the traces differ from %s; run with -update and review. Around the first difference:\n%.600s\n-- "+
			"want --\n%.600s", file, got[at:], want[at:])
	}
}

var stack = regexp.MustCompile(`(?s)goroutine \d+ \[.*`)

func trace(res toolyard.Result) string {
	var b strings.Builder
	line := func(s string) string {
		return strings.ReplaceAll(stack.ReplaceAllString(s, "(stack)"), "\n", "\n    ")
	}
	for _, f := range res.Phases {
		fmt.Fprintf(&b, "%s", strings.TrimRight(fmt.Sprintf("%-25s %-6s %-22s %s", f.Phase, f.Outcome, f.Code,
			line(f.Detail)), " ")+"\n")
	}
	fmt.Fprintf(&b, "=> tool=%s class=%s code=%q retryable=%t retry_after_ms=%d attempts=%d isolation=%q "+
		"truncated=%t blob=%q approval_wait_ms=%g\n",
		res.Tool, res.Class, res.Code, res.Retryable, res.RetryAfterMS, res.Attempts, res.Isolation, res.Truncated,
		res.Blob, res.ApprovalWaitMS)
	if res.Error != "" {
		fmt.Fprintf(&b, "   error:  %s\n", line(res.Error))
	}
	if res.Output != "" {
		fmt.Fprintf(&b, "   output: %s\n", line(res.Output))
	}
	return b.String()
}

// TestEveryCodeOfThisVersionIsReached: a code that no scenario reaches is reached by another test, which the list
// names.
func TestEveryCodeOfThisVersionIsReached(t *testing.T) {
	reached := map[toolyard.Code]string{
		toolyard.SchemaNotLoaded: "TestPreflight",
		toolyard.Skipped:         "given by the dispatcher: the call never came to a pipeline",
		toolyard.BudgetExceeded:  "given by the dispatcher: the call never came to a pipeline",
		toolyard.RateLimited:     "given by the dispatcher: the call never came to a pipeline",
		toolyard.IncompleteCall:  "given by the dispatcher: the call never came to a pipeline",
	}
	for _, s := range scenarios {
		reached[s.want] = s.name
	}
	for _, code := range toolyard.Codes {
		if reached[code] == "" {
			t.Errorf("no test reaches %q", code)
		}
	}
	for i := range table {
		for _, code := range table[i].codes {
			found := false
			for _, s := range scenarios {
				found = found || (s.want == code && (s.in == table[i].phase || s.in == ""))
			}
			switch {
			case code == toolyard.SchemaNotLoaded: // TestPreflight
			case code == toolyard.Timeout && table[i].phase == toolyard.PhaseValidateValues: // TestCheckIsBounded
			case !found:
				t.Errorf("no scenario reaches %q in %s", code, table[i].phase)
			}
		}
	}
}
