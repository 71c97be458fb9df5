package hooks

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/pipeline"
)

// show writes an answer on one line.
func show(a answer, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	var parts []string
	add := func(on bool, format string, args ...any) {
		if on {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(a.block, "block")
	add(a.stop, "stop")
	add(a.opinion != "", "%s", a.opinion)
	add(a.reason != "", "reason=%s", a.reason)
	add(a.input != nil, "input=%s", a.input)
	if a.output != nil {
		add(true, "output=%s", *a.output)
	}
	add(a.context != "", "context=%s", a.context)
	add(a.note != "", "note=%s", a.note)
	return strings.Join(parts, " ")
}

// TestExitStatus: a command's answer by its exit status, its stdout and its stderr.
func TestExitStatus(t *testing.T) {
	const pre, post, failure, batch = PreToolUse, PostToolUse, PostToolUseFailure, PostToolBatch
	const allow = `{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow", "permissionDecisionReason": "fine"}}`
	for _, c := range []struct {
		event          Event
		status         int
		stdout, stderr string
		want           string
	}{
		{pre, 0, "", "", ""},
		{pre, 0, "looks good", "a remark", ""},
		{pre, 0, `["no", "object"]`, "", ""},
		{pre, 0, " " + allow + "\n", "", "allow reason=fine"},
		{pre, 0, `{"a": }`, "", "error"},
		{pre, 0, `{} {}`, "", "error"},
		{pre, 2, "", "no rm here\n", "block reason=no rm here"},
		{pre, 2, "", "", "block reason=no reason was given"},
		{pre, 2, "plain text", "why", "block reason=why"},
		{pre, 2, allow, "why", "block reason=why"},
		{pre, 2, `{"broken": `, "why", "block reason=why"},
		{pre, 2, `{"decision": 5}`, "why", "block reason=why note="},
		{pre, 2, `{"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "said so"}}`, "why",
			"block reason=said so"},
		{pre, 2, `{"decision": "block", "reason": "said so"}`, "why", "block reason=said so"},
		{pre, 2, `{"continue": false, "stopReason": "enough"}`, "why", "stop reason=enough"},
		{pre, 1, "", "Traceback\nmore", "error: exit status 1: Traceback"},
		{pre, 1, "text", "", "error: exit status 1, and nothing on stderr"},
		{pre, 127, "", "sh: x: not found", "error: exit status 127: sh: x: not found"},
		{pre, 1, allow, "x", "allow reason=fine"},
		{post, 2, "", "lint: 3 problems", "context=lint: 3 problems"},
		{post, 2, `{"decision": "block", "reason": "said so"}`, "why", "context=said so"},
		{post, 2, `{"hookSpecificOutput": {"additionalContext": "more"}}`, "why", "context=why\n\nmore"},
		{post, 2, "", "", "context=no reason was given"},
		{failure, 2, "", "try another", "context=try another"},
		{batch, 2, "", "stop here", "stop reason=stop here"},
		{batch, 0, `{"decision": "block", "reason": "r"}`, "", "stop reason=r"},
		{batch, 0, `{"hookSpecificOutput": {"hookEventName": "PostToolBatch", "additionalContext": "run the tests"}}`,
			"", "context=run the tests"},
	} {
		a, err := fromExit(c.event, c.status, c.stdout, c.stderr)
		got := show(a, err)
		if got != c.want && (c.want != "error" || err == nil) &&
			(!strings.HasSuffix(c.want, "note=") || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%s, exit %d, %q, %q:\ngot  %q\nwant %q", c.event, c.status, c.stdout, c.stderr, got, c.want)
		}
	}
}

// TestAnswersInJSON: every field, for each event that has it.
func TestAnswersInJSON(t *testing.T) {
	const pre, post, failure, batch = PreToolUse, PostToolUse, PostToolUseFailure, PostToolBatch
	for _, c := range []struct {
		event Event
		json  string
		want  string
	}{
		{pre, `{}`, ""},
		{pre,
			`{"continue": true, "suppressOutput": true, "systemMessage": "hello", "stopReason": "unused", "terminalSequence": "x", "mine": 1}`, "note=hello"},
		{pre, `{"continue": false}`, "stop"},
		{pre, `{"continue": false, "stopReason": "enough", "reason": "r"}`, "stop reason=enough"},
		{pre, `{"continue": null, "decision": null, "hookSpecificOutput": null}`, ""},
		{pre, `{"decision": "approve", "reason": "old form"}`, "allow reason=old form"},
		{pre, `{"decision": "block", "reason": "old form"}`, "block reason=old form"},
		{pre, `{"decision": "deny"}`, `error: decision: "deny" is not known; there are block and approve`},
		{pre, `{"continue": "no"}`, "error: continue: want boolean, got string"},
		{pre, `{"reason": 1}`, "error: reason: want string, got number"},
		{pre, `{"permissionDecision": "deny"}`, "error: permissionDecision: belongs into hookSpecificOutput"},
		{pre, `{"additionalContext": "x"}`, "error: additionalContext: belongs into hookSpecificOutput"},
		{pre, `{"hookSpecificOutput": {"decision": "block"}}`,
			"error: hookSpecificOutput.decision: belongs beside hookSpecificOutput, not into it"},
		{pre, `{"hookSpecificOutput": []}`, "error: hookSpecificOutput: want object, got array"},
		{pre, `{"hookSpecificOutput": {"hookEventName": "PostToolUse"}}`,
			`error: hookSpecificOutput.hookEventName: want "PreToolUse", got "PostToolUse"`},
		{pre, `{"hookSpecificOutput": {"permissionDecision": "allow"}}`, "allow"},
		{pre, `{"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "no"}}`,
			"deny reason=no"},
		{pre, `{"hookSpecificOutput": {"permissionDecision": "ask", "permissionDecisionReason": "sure?"}}`,
			"ask reason=sure?"},
		{pre, `{"hookSpecificOutput": {"permissionDecision": "defer"}}`, "ask"},
		{pre, `{"hookSpecificOutput": {"permissionDecision": "Deny"}}`,
			`error: hookSpecificOutput.permissionDecision: "Deny" is not known; there are allow, deny and ask`},
		{pre, `{"hookSpecificOutput": {"permissionDecision": true}}`,
			"error: hookSpecificOutput.permissionDecision: want string, got boolean"},
		{pre, `{"hookSpecificOutput": {"updatedInput": {"a": 1.0}, "additionalContext": "c", "other": 1}}`,
			`input={"a": 1.0} context=c`},
		{pre, `{"hookSpecificOutput": {"updatedInput": "x"}}`,
			"error: hookSpecificOutput.updatedInput: want object, got string"},
		{pre, `{"hookSpecificOutput": {"updatedToolOutput": "x"}}`, "error: hookSpecificOutput.updatedToolOutput: is " +
			"not for a hook on PreToolUse: it was not given that to change"},
		{post, `{"hookSpecificOutput": {"updatedInput": {}}}`,
			"error: hookSpecificOutput.updatedInput: is not for a hook on PostToolUse: it was not given that to change"},
		{post, `{"hookSpecificOutput": {"permissionDecision": "deny"}}`,
			"error: hookSpecificOutput.permissionDecision: is not for a hook on PostToolUse: it was not given that " +
				"to change"},
		{failure, `{"hookSpecificOutput": {"updatedToolOutput": "x"}}`,
			"error: hookSpecificOutput.updatedToolOutput: is not for a hook on PostToolUseFailure: it was not given " +
				"that to change"},
		{batch, `{"hookSpecificOutput": {"updatedToolOutput": "x"}}`, "error: hookSpecificOutput.updatedToolOutput: " +
			"is not for a hook on PostToolBatch: it was not given that to change"},
		{post, `{"decision": "approve"}`, ""},
		{post,
			`{"decision": "block", "reason": "look", "hookSpecificOutput": {"additionalContext": "more", "updatedToolOutput": "text"}}`, "output=text context=look\n\nmore"},
		{post, `{"continue": false, "stopReason": "enough"}`, "stop reason=enough"},
		{post,
			`{"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": {"stdout": "a", "stderr": "b", "interrupted": false, "isImage": false}}}`, "output=a\nb"},
		{post, `{"hookSpecificOutput": {"updatedToolOutput": {"stdout": ""}}}`, "output="},
		{post, `{"hookSpecificOutput": {"updatedToolOutput": {"output": "o", "success": true}}}`, "output=o"},
		{post,
			`{"hookSpecificOutput": {"updatedMCPToolOutput": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}}`, "output=a\nb"},
		{post,
			`{"hookSpecificOutput": {"updatedMCPToolOutput": {"content": [{"type": "text", "text": "a"}]}, "updatedToolOutput": "wins"}}`, "output=wins"},
		{post, `{"hookSpecificOutput": {"updatedToolOutput": {"filePath": "x"}}}`,
			"error: hookSpecificOutput.updatedToolOutput: want a text, an object with stdout or output, or blocks of " +
				"text"},
		{post, `{"hookSpecificOutput": {"updatedToolOutput": 5}}`, "error: hookSpecificOutput.updatedToolOutput: " +
			"want a text, an object with stdout or output, or blocks of text"},
		{post, `{"hookSpecificOutput": {"updatedToolOutput": [{"type": "image"}]}}`,
			`error: hookSpecificOutput.updatedToolOutput[0].type: want "text", got "image": results here are text`},
		{failure, `{"hookSpecificOutput": {"additionalContext": "c"}}`, "context=c"},
		{pre, `{"decision": "block", "decision": "approve"}`, "error"},
	} {
		got := show(fromJSON(c.event, []byte(c.json)))
		if got != c.want && !(c.want == "error" && strings.HasPrefix(got, "error")) {
			t.Errorf("%s, %s:\ngot  %q\nwant %q", c.event, c.json, got, c.want)
		}
	}
	long := `{"decision": "block", "reason": "` + strings.Repeat("ä", MaxReasonChars+1) + `"}`
	if a, err := fromJSON(pre, []byte(long)); err != nil || len([]rune(a.reason)) != MaxReasonChars+1 ||
		!strings.HasSuffix(a.reason, "ä…") {
		t.Errorf("a long reason: %d characters, %v", len([]rune(a.reason)), err)
	}
}

// TestCombine: a block beats everything, deny beats ask, ask beats allow, whatever the order; the reason is that of the
// deciding hooks.
func TestCombine(t *testing.T) {
	blocks, stops := answer{block: true, reason: "b"}, answer{stop: true, reason: "s"}
	allows, asks, denies := answer{opinion: pipeline.Allow, reason: "yes"},
		answer{opinion: pipeline.Ask, reason: "sure?"}, answer{opinion: pipeline.Deny, reason: "no"}
	one, two := "one", "two"
	for _, c := range []struct {
		name string
		all  []answer
		want pipeline.HookVerdict
	}{
		{"none", nil, pipeline.HookVerdict{}},
		{"silence", []answer{{}, {}}, pipeline.HookVerdict{}},
		{"allow", []answer{{}, allows}, pipeline.HookVerdict{Opinion: "allow", Reason: "yes", By: "h1"}},
		{"allow, ask", []answer{allows, asks}, pipeline.HookVerdict{Opinion: "ask", Reason: "sure?", By: "h1"}},
		{"ask, allow", []answer{asks, allows}, pipeline.HookVerdict{Opinion: "ask", Reason: "sure?", By: "h0"}},
		{"ask, deny, allow", []answer{asks, denies, allows},
			pipeline.HookVerdict{Opinion: "deny", Reason: "no", By: "h1"}},
		{"deny twice", []answer{denies, {opinion: pipeline.Deny, reason: "never"}, denies},
			pipeline.HookVerdict{Opinion: "deny", Reason: "no; never", By: "h0, h1, h2"}},
		{"block beats deny", []answer{denies, blocks, allows},
			pipeline.HookVerdict{Block: true, Reason: "b", By: "h1"}},
		{"block and stop", []answer{stops, blocks}, pipeline.HookVerdict{Block: true, Stop: true, Reason: "s; b",
			By: "h0, h1"}},
		{"context", []answer{{context: "a"}, {}, {context: "b"}},
			pipeline.HookVerdict{Context: "a\n\nb", By: "h0, h2"}},
		{"output", []answer{{output: &one}, {output: &two}}, pipeline.HookVerdict{Output: &two, By: "h0, h1"}},
	} {
		var all []namedAnswer
		for i, a := range c.all {
			all = append(all, namedAnswer{fmt.Sprintf("h%d", i), a})
		}
		got := combine(all)
		if got.Output != nil && c.want.Output != nil && *got.Output == *c.want.Output {
			got.Output = c.want.Output
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

// FuzzAnswer: no text causes a panic, and an accepted answer has only the event's fields.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{`{"continue": false}`, `{"hookSpecificOutput": {"updatedInput": {"a": [1]}}}`,
		`{"hookSpecificOutput": {"updatedToolOutput": [{"type": "text", "text": "a"}]}}`} {
		f.Add(0, seed, "")
		f.Add(2, seed, "no")
	}
	f.Fuzz(func(t *testing.T, status int, stdout, stderr string) {
		for _, e := range events {
			a, err := fromExit(e, status, stdout, stderr)
			switch {
			case err != nil:
			case e != PreToolUse && (a.input != nil || a.opinion != "" || a.block):
				t.Errorf("%s changes what runs: %s", e, show(a, nil))
			case e != PostToolUse && a.output != nil:
				t.Errorf("%s changes the output: %s", e, show(a, nil))
			case status == 2 && !a.block && !a.stop && a.context == "":
				t.Errorf("%s lets an objection pass: %s", e, show(a, nil))
			}
		}
	})
}
