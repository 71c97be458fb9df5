package worker

import (
	"context"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/shells"
	"github.com/toolyard/toolyard/tool"
)

// Permission decides with the operator's rules and mode, which a batch's own rules tighten, and with what people have
// allowed for the rest of the session. It implements [pipeline.Permission].
type Permission struct {
	Rules policy.Rules
	Mode  policy.Mode
	// Dirs are the directories of all workspaces of the worker: a rule about a path in one says nothing in the others.
	Dirs []string
	// Shells is what the shells of sessions remember. Nil: each command begins at the top of its workspace.
	Shells *shells.Store
}

// DecidesAtOnce implements [pipeline.AtOnce]: a path is looked up in its file system, and the directory of a shell in
// that of the shells, which may hang; all else are values.
func (p Permission) DecidesAtOnce(in *pipeline.PermissionInput) bool {
	return in.Declaration.Specifier.Path == "" && !p.moves(in)
}

// moves reports whether an earlier call may have moved the shell of this one.
func (p Permission) moves(in *pipeline.PermissionInput) bool {
	return p.Shells != nil && in.Declaration.Class.Remembers && in.Root != nil
}

// rules are those that hold for calls of a tool in a workspace.
func (p Permission) rules(d *tool.Declaration, own pipeline.Rules, dir string) policy.Rules {
	rules := p.Rules.In(d, dir, p.Dirs)
	if own, ok := own.(policy.Rules); ok {
		rules = rules.Tighten(own.Deny, own.Ask)
	}
	return rules
}

// Hidden implements [pipeline.Permission].
func (p Permission) Hidden(d *tool.Declaration, own pipeline.Rules, dir string) func(path string) bool {
	return p.rules(d, own, dir).Hidden(d, dir)
}

// Decide implements [pipeline.Permission].
func (p Permission) Decide(ctx context.Context, in pipeline.PermissionInput) (pipeline.PermissionDecision, error) {
	rules := p.rules(&in.Declaration, in.Rules, in.RulesDir())
	req := policy.Request{
		Declaration: &in.Declaration, Input: in.Input, Judgement: in.Judgement, Mode: p.Mode,
		Interactive: in.Interactive, Workspace: in.Workspace, WorkspaceDir: in.WorkspaceDir, RulesDir: in.RulesDir(),
		HookAllows: in.Opinion == pipeline.Allow, Tool: in.Tool,
	}
	if field := in.Declaration.Specifier.Path; field != "" {
		if path, ok := policy.PathField(in.Input, field); ok {
			req.Paths = in.Root.Forms(path)
		}
		if p, ok := in.Root.Protected(req.Paths); ok {
			req.Protected = &p
		}
	}
	if p.moves(&in) {
		dir, err := p.Shells.Directory(ctx, shells.Key{Agent: string(in.Key.Agent), Session: string(in.Session),
			Workspace: string(in.Workspace), Dir: in.Root.Dir()})
		req.Elsewhere = err != nil || dir != "" // where nobody knows, a rule for ./run.sh allows nothing
	}
	d := policy.Decide(rules, req)
	out := pipeline.PermissionDecision{Source: d.Source, Reason: d.Reason, Code: d.Code,
		Behavior: pipeline.Behavior(d.Behavior)}
	// Beyond that, what hooks think can only tighten.
	switch {
	case out.Behavior == pipeline.Deny:
	case in.Opinion == pipeline.Deny:
		out = pipeline.PermissionDecision{Behavior: pipeline.Deny, Source: "hook", Reason: in.OpinionReason,
			Code: toolyard.PermissionDenied}
	case in.Opinion == pipeline.Ask && out.Behavior == pipeline.Ask: // the person reads what both say
		out.Source += "; a hook"
		if in.OpinionReason != "" {
			out.Reason += " A hook asks too: " + in.OpinionReason
		}
	case in.Opinion == pipeline.Ask && out.Behavior == pipeline.Allow:
		out = pipeline.PermissionDecision{Behavior: pipeline.Ask, Source: "hook", Reason: in.OpinionReason}
	}
	if out.Behavior == pipeline.Ask {
		if rule, ok := policy.Recalls(in.Remembered, req, in.InputHash); ok {
			return pipeline.PermissionDecision{Behavior: pipeline.Allow, Source: "remembered in the session: " + rule},
				nil
		}
		out.Remember = policy.Remember(req, in.InputHash)
	}
	return out, nil
}
