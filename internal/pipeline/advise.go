package pipeline

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/outcome"
)

// errorText is the text that the model reads about a failure: what happened, without secrets, and what to do next.
// output is the output that the model gets, without delimiters.
func (c *call) errorText(output string) string {
	f := c.fail
	message := c.withhold(strings.TrimSpace(f.message))
	if output = strings.TrimSpace(output); c.nonce != "" && f.foreign && output != "" {
		message = strings.TrimSpace(withoutLines(message, output)) // it has delimiters of its own
	}
	message = shorten(message, MaxErrorChars)
	switch f.code {
	case toolyard.SchemaValidationFailed:
		message = "InputValidationError: " + message
	case toolyard.InvalidArguments, toolyard.SandboxViolation:
		const invalid = "ValidationError: "
		message = invalid + strings.TrimPrefix(message, invalid)
	}
	// A bracket ends a sentence only around a whole one.
	if last := strings.TrimSuffix(message, ")"); last != "" && !strings.ContainsAny(last[len(last)-1:], ".!?\n") {
		message += "."
	}
	next := cmp.Or(f.next, advice(f.code, c.executed, f.retryable, f.retryAfterMS))
	switch evidence := c.evidence(); {
	case c.executed && interrupted(f.code):
		next += evidence.Sentence()
	case !c.executed && c.job.Earlier > 0: // what is said of this attempt is not true of those before it
		evidence.Started--
		next += " The call was attempted before." + evidence.Sentence()
	}
	// The error of another call, which a tool passes on, has both already.
	message = strings.TrimSpace(strings.TrimSuffix(message, next))
	if f.foreign {
		message = c.fenced(message)
	}
	separator := " "
	if strings.Contains(message, "\n") {
		separator = "\n"
	}
	return message + separator + next
}

// evidence is what is known of the call if this attempt has started its tool.
func (c *call) evidence() outcome.Evidence {
	return outcome.Evidence{Tool: c.entry.Name, Judgement: c.judgement, Started: c.job.Earlier + 1}
}

// mayRepeat reports whether the model may make the same call again, whatever this one has done.
func (c *call) mayRepeat() bool { return outcome.MayRepeat(c.entry.Name, c.judgement) }

// withoutLines is a text without the first place where some lines of it are these. Where they only stand within a line,
// the text has words of its own around them.
func withoutLines(text, lines string) string {
	for from := 0; ; {
		at := strings.Index(text[from:], lines)
		if at < 0 {
			return text
		}
		at += from
		before, after := text[:at], text[at+len(lines):]
		if (before == "" || strings.HasSuffix(before, "\n")) && (after == "" || strings.HasPrefix(after, "\n")) {
			return before + after
		}
		from = at + 1
	}
}

// interrupted reports whether a tool that ended with code was stopped in the middle.
func interrupted(code toolyard.Code) bool {
	switch code {
	case toolyard.Timeout, toolyard.Canceled, toolyard.SiblingCanceled, toolyard.DeadlineExceeded:
		return true
	}
	return false
}

// advice says what to do next.
func advice(code toolyard.Code, executed, retryable bool, retryAfterMS int64) string {
	if retryable {
		if code == toolyard.ResultTooLarge {
			return "Ask for less, or repeat the call later."
		}
		if retryAfterMS > 0 {
			return fmt.Sprintf("The same call may succeed when you repeat it after %d ms.", retryAfterMS)
		}
		return "The same call may succeed when you repeat it."
	}
	switch code {
	case toolyard.UnknownTool:
		return "Use one of the tools that you were given."
	case toolyard.BlockedTool:
		return "Do without it."
	case toolyard.SchemaNotLoaded:
		return "Call tool_search for it first, then call it again with the schema that you get."
	case toolyard.SchemaValidationFailed:
		return "Call the tool again with an input that fits its schema."
	case toolyard.InvalidArguments:
		return "Call the tool again with other values."
	case toolyard.SetupRequired:
		return "An operator has to set this up; go on without it, and say so."
	case toolyard.SandboxViolation:
		return "This is not allowed here, whatever way it is tried; stay within the workspace."
	case toolyard.InputMutationFailed:
		return "This is a fault of the system, not of the call; go on without it, and say so."
	case toolyard.HookBlocked:
		if executed {
			return "Do not repeat the call to get at its output."
		}
		return "Do not repeat the call unchanged; take the reason into account."
	case toolyard.HookFailed:
		return "The tool was not run. Repeating the call will hardly help; go on without it, and say so."
	case toolyard.PermissionDenied:
		return "The tool was not run; find another way, or ask the user to allow it."
	case toolyard.ApprovalRejected:
		return "The tool was not run. Do not try to get the same done another way; ask the user how to go on."
	case toolyard.ApprovalExpired:
		return "The tool was not run. Go on without it, or ask again when somebody is there."
	case toolyard.PolicyBlocked:
		return "The tool was not run. Find another way."
	case toolyard.Canceled:
		return "Repeat it only if it is still wanted."
	case toolyard.SiblingCanceled:
		return "Its own input is not at fault; repeat it when the other call's error is dealt with."
	case toolyard.ExecutionFailed:
		return "Read the error, then change the input or find another way; the same call is likely to fail again."
	case toolyard.Timeout:
		return "Ask for less at a time."
	case toolyard.DeadlineExceeded:
		return "Hand in what is still needed as a new batch."
	case toolyard.DependencyUnavailable:
		return "Go on without it for now."
	case toolyard.OutcomeUnknown:
		return "It may have taken effect: look before you repeat it."
	case toolyard.ResultMappingFailed:
		return "Its effects stand. Do not repeat the call unchanged."
	case toolyard.PostHookFailed:
		return "Its effects stand: use the output, and do not repeat the call."
	case toolyard.ResultTooLarge:
		return "Ask for less: a narrower query, a range, or fewer items."
	}
	if executed {
		return "This is a fault of the system, not of the call. The tool may have taken effect: look before you " +
			"repeat the call."
	}
	return "This is a fault of the system, not of the call; go on without it, and say so."
}
