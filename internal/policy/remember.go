package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/protect"
	"github.com/toolyard/toolyard/tool"
)

// rememberedInput is a remembered approval of one input of one tool, for which no rule exists. It cannot be read as a
// rule, because a rule has no space before its specifier.
func rememberedInput(tool, hash string) string {
	return fmt.Sprintf("%s with exactly this input (sha256 %s)", tool, hash)
}

// inWorkspace is what a remembered approval of a call in a workspace ends in, if its tool uses the workspace: the same
// path or command means another thing in another one. Approvals for the default workspace end in nothing. It cannot be
// read as a part of a rule, because a rule with a specifier ends in a bracket.
func inWorkspace(d *tool.Declaration, w toolyard.Workspace) string {
	if !d.NeedsWorkspace() || w == "" || w == toolyard.DefaultWorkspace {
		return ""
	}
	return workspaceWords + strconv.Quote(string(w))
}

// workspaceWords stand between a remembered approval and its workspace.
const workspaceWords = " in the workspace "

// RememberedRule returns the rule of an approval as [Remember] writes it, which holds in each workspace. ok is false if
// the approval is for one input alone.
func RememberedRule(text string) (r Rule, ok bool) {
	rule := text
	for at := 0; ; at++ { // a path may have these words too, but no quoted name behind them
		next := strings.Index(text[at:], workspaceWords)
		if next < 0 {
			break
		}
		at += next
		if _, err := strconv.Unquote(text[at+len(workspaceWords):]); err == nil {
			rule = text[:at]
			break
		}
	}
	r, err := ParseRule(rule)
	return r, err == nil && r.Specifier != "" // whole tools are never remembered
}

// Remember returns what a person's approval of a call would allow for the rest of the session: the narrowest rule that
// covers it, or only this input of this tool, in the call's workspace. The rules of a session are separate from the
// operator's: see [Recalls]. Empty: it cannot be remembered.
func Remember(req Request, inputHash string) string {
	d := req.Declaration
	if d == nil {
		return ""
	}
	s := newSubject(&req)
	if !s.means() {
		return ""
	}
	return rememberedRule(d, s, inputHash) + inWorkspace(d, req.Workspace)
}

func rememberedRule(d *tool.Declaration, s *subject, inputHash string) string {
	specifier := ""
	switch {
	case !s.known:
	case s.kind == kindCommand:
		specifier = strings.TrimSpace(s.value)
	case s.kind == kindPath && len(s.paths) > 0 && s.paths[0] != "." && !strings.ContainsAny(s.paths[0], `*?[]{}\`):
		specifier = "./" + s.paths[0] // only this path, and not its name elsewhere
	case s.kind == kindURL:
		if host, err := hostOf(s.value); err == nil {
			specifier = "domain:" + host
		}
	}
	if specifier != "" && !strings.HasSuffix(specifier, "*") {
		if r, err := ParseRule(d.Name + "(" + specifier + ")"); err == nil && r.Check(d) == nil {
			if _, ok := allowedByRules([]Rule{r}, d, s); ok {
				return r.String()
			}
		}
	}
	return rememberedInput(d.Name, inputHash)
}

// Recalls reports which of a session's remembered approvals covers a call. An approval answers an ask, and never
// overrides a denial. It holds in the workspace for which it was given. One for a path covers all below it, but for
// protected places: of these it covers only what it names, or the very path that the person has seen.
func Recalls(remembered []string, req Request, inputHash string) (rule string, ok bool) {
	d := req.Declaration
	if d == nil || inputHash == "" {
		return "", false
	}
	s := newSubject(&req)
	if !s.means() {
		return "", false
	}
	where := inWorkspace(d, req.Workspace)
	if own := rememberedInput(d.Name, inputHash) + where; slices.Contains(remembered, own) {
		return own, true
	}
	exact := ""
	if req.guarded() {
		exact = rememberedRule(d, s, inputHash) + where
	}
	for _, text := range remembered {
		rule, here := strings.CutSuffix(text, where)
		if !here {
			continue
		}
		r, err := ParseRule(rule)
		if err != nil || r.Specifier == "" { // another input, or workspace; whole tools are never remembered
			continue
		}
		if req.guarded() && text != exact && !protect.Names(r.Specifier, *req.Protected) {
			continue
		}
		if _, ok := allowedByRules([]Rule{r}, d, s); ok {
			return text, true
		}
	}
	return "", false
}
