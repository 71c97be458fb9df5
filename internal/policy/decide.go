package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/protect"
	"github.com/toolyard/toolyard/tool"
)

// Request is one call for a permission decision.
type Request struct {
	// Declaration is the tool's. Nil is denied.
	Declaration *tool.Declaration
	// Input is what will run: after schema and hooks.
	Input json.RawMessage
	// Judgement is what is known about this input.
	Judgement tool.Judgement
	// Mode is the session's; empty means [Default].
	Mode Mode
	// Interactive says that a person can be asked.
	Interactive bool
	// HookAllows says that a hook of the operator allows the call. It has less weight than every rule.
	HookAllows bool
	// Tool is the tool's own answer for the call. It only tightens: anything except no answer and [tool.Ask] denies.
	Tool tool.Permission
	// Workspace is the batch's, for what people have allowed in it: see [Recalls]. Empty means the default one.
	Workspace toolyard.Workspace
	// WorkspaceDir is the directory in which the call acts.
	WorkspaceDir string
	// Elsewhere says that a command does not begin in WorkspaceDir, or may not: an earlier one has moved its shell.
	Elsewhere bool
	// RulesDir is the workspace's directory, for rules with absolute paths: another one if the call acts in a copy of
	// it. Empty: WorkspaceDir. If both are empty, no such rule matches.
	RulesDir string
	// Paths are the forms of the input's path, relative to the workspace: as written, and with its symlinks resolved. A
	// deny or ask rule matches if one of them does, an allow rule if all do. If it is empty, or a form is not inside
	// the workspace, the path is unknown. It is used only for tools whose declaration has a path specifier.
	Paths []string
	// Protected is the protected place that contains one of Paths. Nil: none. No broad permission covers it: not
	// accept_edits, not bypass, not a hook, and no allow rule that does not name the place.
	Protected *protect.Place
}

// Behavior is what happens to a call.
type Behavior string

// The behaviors. The empty one is no answer and counts as a denial.
const (
	Allow Behavior = "allow"
	Ask   Behavior = "ask" // a person decides; denied where nobody can be asked
	Deny  Behavior = "deny"
)

// Decision is the answer to a [Request].
type Decision struct {
	Behavior Behavior
	// Code is set if the call is denied: policy_blocked if the session cannot provide what the tool needs, otherwise
	// permission_denied.
	Code toolyard.Code
	// Source says what decided, for operators: "rule deny write_file(docs/**)", "mode accept_edits", "read-only in the
	// workspace", "undecided".
	Source string
	// Reason tells the model why, and what to do instead, or tells the person what the question is. Empty if allowed.
	Reason string
}

// Decide answers one request, in the order of the package comment; the order of the rules does not affect the behavior.
// It has no side effects and never fails: what cannot be determined is decided strictly.
func Decide(rules Rules, req Request) Decision {
	d := req.Declaration
	if d == nil {
		return deny(toolyard.PermissionDenied, "no declaration", "Nothing is known of this tool, so it may not run.")
	}
	s := newSubject(&req)
	if r, why, ok := firstMatch(rules.Deny, true, d, s); ok {
		return deny(toolyard.PermissionDenied, "rule deny "+r.String(),
			fmt.Sprintf("A permission rule denies this call: %s%s. Do not repeat it; do without it, or use another "+
				"tool.", r, why))
	}
	if req.Tool.Behavior != tool.Passthrough && req.Tool.Behavior != tool.Ask {
		return deny(toolyard.PermissionDenied, "the tool", saying("The tool itself refuses this call", req.Tool.Reason)+
			" Do not repeat it as it is.")
	}
	if d.RequiresUserInteraction && !req.Interactive {
		return deny(toolyard.PolicyBlocked, "no person in the session",
			"This tool talks to a person, and nobody is there in this session. Do without it.")
	}
	reads := req.reads()
	if req.Mode.plans() && !reads {
		return deny(toolyard.PermissionDenied, "mode "+string(req.Mode),
			"The session is in plan mode, where only calls that read are allowed. Describe the change instead of "+
				"making it.")
	}
	if r, why, ok := firstMatch(rules.Ask, false, d, s); ok {
		return ask(&req, "rule ask "+
			r.String(), fmt.Sprintf("A permission rule asks for a person's consent to this call: %s%s.", r, why))
	}
	if req.Tool.Behavior == tool.Ask {
		return ask(&req, "the tool", saying("The tool itself asks for a person's consent to this call",
			req.Tool.Reason))
	}
	allow := rules.Allow
	guarded := req.guarded()
	if guarded {
		allow = slices.DeleteFunc(slices.Clone(allow), func(r Rule) bool {
			return !protect.Names(r.Specifier,
				*req.Protected)
		})
	}
	confirm := rules.Confirm && req.Judgement.Destructive
	if confirm {
		allow = slices.DeleteFunc(slices.Clone(allow), func(r Rule) bool { return !r.Precise(d) })
	}
	if source, ok := allowedByRules(allow, d, s); ok {
		return Decision{Behavior: Allow, Source: source}
	}
	switch {
	case guarded:
		return ask(&req, "protected place "+req.Protected.Path,
			fmt.Sprintf("%s is protected (%s), so a person has to allow this call, or a rule that names the place.",
				req.Protected.Path, req.Protected.Why))
	case confirm:
		return ask(&req, "destructive", "This call may do what cannot be undone, so a person has to confirm it, or a "+
			"rule that says exactly what is allowed.")
	case req.Mode == AcceptEdits && d.EditsWorkspace && len(req.Paths) > 0:
		return Decision{Behavior: Allow, Source: "mode accept_edits"}
	case reads && d.NeedsWorkspace():
		return Decision{Behavior: Allow, Source: "read-only in the workspace"}
	case !d.NeedsPermission() && !(saidDestructive(d) && req.Judgement.Destructive):
		return Decision{Behavior: Allow, Source: "needs no permission"}
	case req.HookAllows:
		return Decision{Behavior: Allow, Source: "hook"}
	case req.Mode == Bypass:
		return Decision{Behavior: Allow, Source: "mode bypass"}
	}
	source, reason := "undecided", "No permission rule allows this call, so a person has to."
	if req.Judgement.Destructive {
		reason = "No permission rule allows this call, and it may do what cannot be undone, so a person has to allow " +
			"it."
		if !d.NeedsPermission() && saidDestructive(d) {
			source = "destructive"
		}
	}
	return ask(&req, source, reason)
}

// reads reports whether a call only reads. Both at once is a contradiction: assume the worse.
func (r *Request) reads() bool { return r.Judgement.ReadOnly && !r.Judgement.Destructive }

// guarded reports whether a call may change a protected place.
func (r *Request) guarded() bool { return r.Protected != nil && !r.reads() }

// saidDestructive reports whether a declaration itself says that calls may do what cannot be undone. A tool that needs
// no permission and leaves that open is not asked about.
func saidDestructive(d *tool.Declaration) bool { return d.Destructive != nil && *d.Destructive }

// Precise reports whether an allow rule is as precise as one for a tool can be: it has a specifier, or it names exactly
// this tool, and rules for the tool have none.
func (r Rule) Precise(d *tool.Declaration) bool {
	return r.Specifier != "" || r.Tool == d.Name && d.Specifier == tool.Specifier{}
}

// saying is a sentence, with a reason if there is one.
func saying(what, reason string) string {
	if reason = strings.TrimSpace(reason); reason == "" {
		return what + "."
	}
	return what + ": " + strings.TrimSuffix(reason, ".") + "."
}

func deny(code toolyard.Code, source, reason string) Decision {
	return Decision{Behavior: Deny, Code: code, Source: source, Reason: reason}
}

// ask returns ask, or what the mode makes of it.
func ask(req *Request, source, reason string) Decision {
	if !req.Mode.silent() {
		return Decision{Behavior: Ask, Source: source, Reason: reason}
	}
	return deny(toolyard.PermissionDenied, source+", mode "+string(req.Mode),
		reason+" Nobody is asked in this session, so it is denied. Do not repeat it; do without it, or use a call "+
			"that is allowed.")
}

// Touches reports whether the rule matches or may match a call, as a deny or ask rule does. It ignores the request's
// mode and judgement.
func (r Rule) Touches(req Request) bool {
	if req.Declaration == nil {
		return true
	}
	_, _, ok := firstMatch([]Rule{r}, false, req.Declaration, newSubject(&req))
	return ok
}

// firstMatch returns the first deny or ask rule that matches. If it matches because something is unknown, why says
// what, in brackets. hidden says that rules which hide places apply to every tool with a path in the workspace.
func firstMatch(rules []Rule, hidden bool, d *tool.Declaration, s *subject) (match Rule, why string, ok bool) {
	for _, r := range rules {
		if !r.namesAny(d.Name, d.Aliases) && !(hidden && r.hides() && s.kind == kindPath && d.NeedsWorkspace()) {
			continue
		}
		if r.Specifier == "" {
			return r, "", true
		}
		if hit, doubt := s.mayMatch(r); hit {
			if doubt != "" {
				doubt = " (it holds because " + doubt + ")"
			}
			return r, doubt, true
		}
	}
	return Rule{}, "", false
}

// allowedByRules reports whether allow rules cover the call, and names them.
func allowedByRules(rules []Rule, d *tool.Declaration, s *subject) (source string, ok bool) {
	var specified []Rule
	for _, r := range rules {
		switch {
		case !r.names(d.Name):
		case r.Specifier == "" || s.covers(r):
			return "rule allow " + r.String(), true
		default:
			specified = append(specified, r)
		}
	}
	if s.kind != kindCommand || !s.known {
		return "", false
	}
	used, ok := coveredCommands(s.value, s.workspaceDir, s.elsewhere, specified)
	if !ok {
		return "", false
	}
	names := make([]string, len(used))
	for i, r := range used {
		names[i] = r.String()
	}
	slices.Sort(names)
	return "rule allow " + strings.Join(names, ", "), true
}
