package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/toolyard/toolyard"
)

// permission asks whether the call may run. Whatever is not an allow is a denial.
func (c *call) permission(ctx context.Context) finding {
	if c.entry.RequiresUserInteraction && !c.job.Interactive {
		return failed(toolyard.PolicyBlocked, fmt.Sprintf("The tool %q talks to a person, and this session has none.", c.entry.Name), "requires_user_interaction")
	}
	if c.p.Permission == nil {
		return failed(toolyard.PermissionDenied, "Permission denied: nothing on this worker can give it.", "no permission is configured")
	}
	in := PermissionInput{
		Key: c.job.Key, Index: c.job.Index, CallID: c.job.Call.ID, Session: c.job.Session, Workspace: c.job.Workspace,
		WorkspaceDir: c.job.WorkspaceDir, Interactive: c.job.Interactive, Declaration: c.entry.Declaration, Origin: c.entry.Origin,
		Judgement: c.judgement, Input: c.input(), Observable: bytes.Clone(c.observable), InputHash: c.value.Hash(),
		Opinion: c.opinion, OpinionReason: c.opinionReason, Rules: c.job.Rules,
	}
	d, err := guard(c.p, ctx, func(ctx context.Context) (PermissionDecision, error) { return c.p.Permission.Decide(ctx, in) })
	c.res.ApprovalWaitMS = ms(d.Waited)
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
		return failed(toolyard.PermissionDenied, "Permission denied"+because(c.opinionReason), "a hook denied; otherwise "+string(d.Behavior)+" by "+source)
	case d.Behavior == Allow:
		return finding{detail: "allowed: " + source}
	case d.Behavior == Ask:
		return failed(toolyard.PermissionDenied, "Permission is needed, and nobody could be asked"+because(d.Reason), "undecided: "+source)
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

func because(reason string) string {
	if reason == "" {
		return "."
	}
	return ": " + reason
}
