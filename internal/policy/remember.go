package policy

import (
	"fmt"
	"slices"
	"strings"
)

// rememberedInput is a remembered approval of one input of one tool, where no rule says exactly that. It is no rule: a
// rule has no blank in front of its specifier.
func rememberedInput(tool, hash string) string {
	return fmt.Sprintf("%s with exactly this input (sha256 %s)", tool, hash)
}

// Remember names what a person's approval of a call would allow for the rest of the session: the narrowest rule that
// covers it, or just this input of this tool. The rules of one session are kept apart from the operator's: see
// [Recalls].
func Remember(req Request, inputHash string) string {
	d := req.Declaration
	if d == nil {
		return ""
	}
	s := newSubject(&req)
	specifier := ""
	switch {
	case !s.known:
	case s.kind == kindCommand:
		specifier = strings.TrimSpace(s.value)
	case s.kind == kindPath && len(s.paths) > 0 && s.paths[0] != "." && !strings.ContainsAny(s.paths[0], `*?[]{}\`):
		specifier = "./" + s.paths[0] // this one, and none of its name elsewhere
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

// Recalls reports which of a session's remembered approvals covers a call. It answers an ask, and never a denial.
func Recalls(remembered []string, req Request, inputHash string) (rule string, ok bool) {
	d := req.Declaration
	if d == nil || inputHash == "" {
		return "", false
	}
	if own := rememberedInput(d.Name, inputHash); slices.Contains(remembered, own) {
		return own, true
	}
	s := newSubject(&req)
	for _, text := range remembered {
		r, err := ParseRule(text)
		if err != nil || r.Specifier == "" { // another input, and nobody remembers a whole tool
			continue
		}
		if _, ok := allowedByRules([]Rule{r}, d, s); ok {
			return text, true
		}
	}
	return "", false
}
