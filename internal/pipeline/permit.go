package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/clip"
	"github.com/toolyard/toolyard/internal/display"
	"github.com/toolyard/toolyard/tool"
)

// permission decides whether the call may run. Everything except an allow is a denial.
func (c *call) permission(ctx context.Context) finding {
	if c.entry.RequiresUserInteraction && !c.job.Interactive {
		return failed(toolyard.PolicyBlocked, fmt.Sprintf("The tool %q talks to a person, and this session has none.",
			c.entry.Name), "requires_user_interaction")
	}
	if c.p.Permission == nil {
		return failed(toolyard.PermissionDenied, "Permission denied: nothing on this worker can give it.",
			"no permission is configured")
	}
	if a := c.job.Approved; a != nil {
		if f := c.stillApproved(ctx, a); f.fail != nil {
			return f
		}
	}
	own, f := c.ownPermission(ctx)
	if f.fail != nil {
		return f
	}
	in := PermissionInput{
		CallContext: c.job.CallContext, Declaration: c.entry.Declaration, Judgement: c.judgement, Input: c.input(),
		Observable: bytes.Clone(c.observable), InputHash: c.value.Hash(),
		Opinion: c.opinion, OpinionReason: c.opinionReason, Rules: c.job.Rules, Remembered: c.job.Remembered,
		Tool: own,
	}
	d, err := c.decide(ctx, &in)
	if err != nil {
		if _, panicked := errors.AsType[*panicError](err); panicked || errors.Is(err, errGone) {
			return c.bug(toolyard.PhasePermission, err)
		}
		if stop := c.ended(ctx); stop != nil {
			return finding{fail: stop}
		}
		return failed(toolyard.PermissionDenied, "Permission denied: it could not be decided.", err.Error())
	}
	source := join(d.Source, d.Reason)
	switch {
	case c.opinion == Deny:
		return failed(toolyard.PermissionDenied, "Permission denied"+because(c.opinionReason),
			"a hook denied; otherwise "+string(d.Behavior)+" by "+source)
	case own.Behavior == tool.Deny && (d.Behavior == Allow || d.Behavior == Ask): // whatever decides here
		return failed(toolyard.PermissionDenied, "Permission denied"+because(own.Reason),
			"the tool denied; otherwise "+string(d.Behavior)+" by "+source)
	case d.Behavior == Allow:
		return finding{detail: "allowed: " + source}
	case d.Behavior == Ask && c.job.Approved != nil:
		return finding{detail: join("allowed by "+c.job.Approved.By, "asked by "+source)}
	case d.Behavior == Ask && c.job.Interactive:
		return c.wait(ctx, d)
	case d.Behavior == Ask:
		return failed(toolyard.PermissionDenied, "Permission is needed, and nobody could be asked"+because(d.Reason),
			"nobody could be asked: "+source)
	}
	code, message := toolyard.PermissionDenied, "Permission denied"
	switch d.Code {
	case toolyard.ApprovalRejected:
		code, message = d.Code, "The user said no"
	case toolyard.ApprovalExpired:
		code, message = d.Code, "Nobody answered the request for permission in time"
	case toolyard.PolicyBlocked:
		code, message = d.Code, "The session's policy rules this out"
	}
	return failed(code, message+because(d.Reason), "denied: "+source)
}

// decide asks who decides, in a goroutine of its own where the answer may take long.
func (c *call) decide(ctx context.Context, in *PermissionInput) (d PermissionDecision, err error) {
	if quick, ok := c.p.Permission.(AtOnce); !ok || !quick.DecidesAtOnce(in) {
		return guard(c.p, ctx, func(ctx context.Context) (PermissionDecision, error) {
			return c.p.Permission.Decide(ctx, *in)
		})
	}
	broken := rescue(func() error { d, err = c.p.Permission.Decide(ctx, *in); return nil })
	if broken != nil {
		return PermissionDecision{}, broken
	}
	return d, err
}

// ownPermission asks the tool itself. The tool can only deny or require a person's decision, never allow. Any failure
// is a denial.
func (c *call) ownPermission(ctx context.Context) (tool.Permission, finding) {
	if c.code.CheckPermission == nil {
		return tool.Permission{}, finding{}
	}
	limit := orDefault(c.p.CheckTimeout, DefaultCheckTimeout)
	asking, cancel := context.WithTimeoutCause(ctx, limit, &timeoutError{limit: limit, own: true,
		what: "the tool's check of the permission"})
	defer cancel()
	env, input := c.env(asking), c.input()
	own, err := guard(c.p, asking, func(ctx context.Context) (tool.Permission, error) {
		return c.code.CheckPermission(ctx, env, input)
	})
	_, panicked := errors.AsType[*panicError](err)
	switch {
	case err == nil && (own.Behavior == tool.Passthrough || own.Behavior == tool.Ask || own.Behavior == tool.Deny):
		return own, finding{}
	case err == nil:
		return tool.Permission{Behavior: tool.Deny, Reason: fmt.Sprintf("the tool answered %q, which is no behavior",
			own.Behavior)}, finding{}
	case ctx.Err() != nil:
		return own, finding{fail: c.ended(ctx)}
	case asking.Err() != nil, panicked, errors.Is(err, errGone):
		return own, failed(toolyard.PermissionDenied,
			"Permission denied: what the tool itself says of this call could not be checked.", err.Error())
	}
	return tool.Permission{Behavior: tool.Deny, Reason: tool.AsError(err).Message}, finding{}
}

// wait ends the run until a person has decided. It denies a call whose input cannot be shown completely.
func (c *call) wait(ctx context.Context, d PermissionDecision) finding {
	const nobody = "Permission is needed, and nobody can be asked: "
	if c.hidden {
		return failed(toolyard.PermissionDenied,
			nobody+"what is taken out of the input as a secret could be more than one. Leave secrets out of "+
				"inputs; tools get them as credentials.",
			"a secret hides what a person would approve")
	}
	if _, err := display.Lines(c.observable, display.Options{}); err != nil {
		return failed(toolyard.PermissionDenied, nobody+err.Error()+". Make several shorter calls of it.", err.Error())
	}
	w := &WaitingError{
		Reason: shorten(c.withhold(d.Reason), MaxAskReasonChars),
		Source: shorten(c.withhold(d.Source), MaxAskReasonChars), Judgement: c.judgement,
		Observable: bytes.Clone(c.observable), InputHash: c.value.Hash(),
		Diff: c.diff(ctx),
	}
	if c.withhold(d.Remember) == d.Remember { // a rule with a secret in it would be stored in the session
		w.Remember = d.Remember
	}
	for _, text := range c.contexts {
		w.Context = append(w.Context, c.withhold(text))
	}
	if c.changed {
		w.Changed = c.input()
	}
	return finding{wait: w, detail: join("a person is asked", d.Source)}
}

// diff is the tool's account of what the call would change, without secrets and cut at a line. A failure of the tool
// here does not prevent the approval.
func (c *call) diff(ctx context.Context) string {
	if c.code.Diff == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, orDefault(c.p.CheckTimeout, DefaultCheckTimeout))
	defer cancel()
	env, input := c.env(ctx), c.input()
	text, err := guard(c.p, ctx, func(ctx context.Context) (string, error) { return c.code.Diff(ctx, env, input) })
	if err != nil {
		return ""
	}
	if len(text) > MaxOutputBytes { // nobody reads this much, and redacting it takes long
		return ""
	}
	if text = c.withhold(text); len(text) <= MaxShownDiffBytes {
		return text
	}
	const left = "\\ the rest is left out\n"
	text = clip.Bytes(text, MaxShownDiffBytes-len(left))
	return text[:strings.LastIndexByte(text, '\n')+1] + left
}

// stillApproved checks that the input that would run is the one that a person approved, and that it runs as scheduled.
func (c *call) stillApproved(ctx context.Context, a *Approved) finding {
	if a.InputHash == "" || a.InputHash != c.value.Hash() {
		return failed(toolyard.PermissionDenied, "Permission denied: what was approved is not what would run.",
			fmt.Sprintf("approved %.16s by %s, would run %.16s", a.InputHash, a.By, c.value.Hash()))
	}
	if !a.Edited {
		return finding{}
	}
	j := c.judge(ctx, c.value)
	if j.Class.Strictness() > c.judgement.Class.Strictness() || (c.judgement.Idempotent && !j.Idempotent) {
		return failed(toolyard.PermissionDenied, "Permission denied: with the input as the person has changed it "+
			"the call must run alone, and it was scheduled beside others. Make that call by itself.",
			fmt.Sprintf("edited by %s to %s (%s), scheduled as %s", a.By, j.Class, j.Why, c.judgement.Class))
	}
	if !c.holds(c.value) {
		return failed(toolyard.PermissionDenied, "Permission denied: with the input as the person has changed it "+
			"the call needs other locks than it was scheduled with. Make that call by itself.",
			"edited by "+a.By+", needs other locks")
	}
	j.Class = c.judgement.Class // it was scheduled with this class and runs as such
	c.judgement = j
	return finding{}
}

func because(reason string) string {
	if reason == "" {
		return "."
	}
	return ": " + reason
}
