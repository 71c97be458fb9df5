package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// MaxRuleBytes is the longest rule, in bytes.
const MaxRuleBytes = 4096

// Rule says which calls a permission covers: every call of a tool, or those that its specifier matches. Make one with
// [ParseRule].
type Rule struct {
	// Tool is the tool's name, ours or that of Claude Code ("Bash"), or "mcp__server" or "mcp__server__*" for every
	// tool of an MCP server.
	Tool string
	// Specifier narrows the rule to some inputs; empty means every call. Its meaning depends on the tool's declaration:
	//   - a command: "git status:*" or "git status *" for every command that begins with these words, "git status" for
	//     exactly this one; a star elsewhere is any text
	//   - a path: a glob as in .gitignore, relative to the workspace: without a slash a name at any depth (".env"),
	//     with one a path from the top ("docs/*.md", "./.env"); everything below it is covered too. Or an absolute path
	//     inside the workspace.
	//   - a URL: "domain:example.com", with its subdomains
	Specifier string

	command *commandPattern // Specifier parsed as a command, if possible
}

// String returns the rule as it was written.
func (r Rule) String() string {
	if r.Specifier == "" {
		return r.Tool
	}
	return r.Tool + "(" + r.Specifier + ")"
}

// ParseRule reads "tool" or "tool(specifier)". [Rule.Check] checks the specifier once the tool is known. The error
// names the rule and the fix.
func ParseRule(s string) (Rule, error) {
	bad := func(format string, args ...any) (Rule, error) {
		return Rule{}, fmt.Errorf("rule %.200q: %s", s, fmt.Sprintf(format, args...))
	}
	if len(s) > MaxRuleBytes {
		return bad("is %d bytes long; at most %d are allowed", len(s), MaxRuleBytes)
	}
	name, rest, specified := strings.Cut(s, "(")
	var r Rule
	r.Tool = name
	if specified {
		specifier, closed := strings.CutSuffix(rest, ")")
		switch {
		case !closed:
			return bad("does not end in %q; write tool or tool(specifier)", ")")
		case strings.TrimSpace(specifier) == "" || specifier == ":*":
			return bad("its specifier does not narrow it; for every call of the tool write just %s", name)
		case specifier != "*" && specifier != "**": // which people write for every call
			r.Specifier = specifier
		}
	}
	server, wild := strings.CutSuffix(name, "__*")
	switch {
	case name == "":
		return bad("names no tool; write tool or tool(specifier)")
	case strings.ContainsFunc(name, func(c rune) bool { return unicode.IsSpace(c) || c == ',' || c == ')' }):
		return bad("%q is not a tool name; write one rule for each tool, as tool or tool(specifier)", name)
	case strings.Contains(name, "*") && (!wild || !strings.HasPrefix(server, "mcp__") || server == "mcp__" ||
		strings.Contains(server, "*")):
		return bad("a tool name may have a %q only to mean all tools of an MCP server: mcp__server__*", "*")
	case wild && specified:
		return bad("a specifier needs one tool; write just %s, or name the tool", name)
	}
	if err := toolyard.CheckName("tool", name); err != nil {
		return bad("%v", err)
	}
	if server, ok := strings.CutPrefix(name, mcpPrefix); ok && specified && !strings.Contains(server, "__") {
		return bad("a specifier needs one tool; write just %s, or name the tool", name)
	}
	if p, err := parseCommandPattern(r.Specifier); err == nil {
		r.command = p
	}
	return r, nil
}

// ParseRules reads a list of rules. The error joins those of all bad ones.
func ParseRules(list []string) ([]Rule, error) {
	var rules []Rule
	var errs []error
	for _, s := range list {
		r, err := ParseRule(s)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		rules = append(rules, r)
	}
	return rules, errors.Join(errs...)
}

// names reports whether the rule covers a tool of that name.
func (r Rule) names(name string) bool {
	if r.Tool == name || isFieldName(r.Tool, name) {
		return true
	}
	prefix, wild := strings.CutSuffix(r.Tool, "*")
	if server, ok := strings.CutPrefix(r.Tool, mcpPrefix); ok && !wild && !strings.Contains(server, "__") {
		prefix, wild = r.Tool+"__", true
	}
	return wild && len(name) > len(prefix) && strings.HasPrefix(name, prefix)
}

// About reports whether the rule names a tool, by its name or an alias.
func (r Rule) About(d *tool.Declaration) bool { return r.namesAny(d.Name, d.Aliases) }

// namesAny is names for a tool with aliases. Deny and ask rules use it. An allow rule must have the tool's own name,
// since a tool may claim any alias.
func (r Rule) namesAny(name string, aliases []string) bool {
	return r.names(name) || slices.ContainsFunc(aliases, r.names)
}

// Check returns an error if the rule does not fit the tool; nil if the rule is about other tools. A rule that fails
// here still has an effect: as deny or ask it matches every call of the tool, as allow none.
func (r Rule) Check(d *tool.Declaration) error {
	if r.Specifier == "" || !r.namesAny(d.Name, d.Aliases) {
		return nil
	}
	var err error
	switch kind, _ := specifierOf(d); kind {
	case kindCommand:
		_, err = r.commandPattern()
	case kindPath:
		err = checkPathPattern(r.Specifier)
	case kindURL:
		_, err = parseDomain(r.Specifier)
	default:
		err = fmt.Errorf("the tool has no input that a specifier is matched against; write just %s", r.Tool)
	}
	if err != nil {
		return fmt.Errorf("rule %q for tool %q: %w", r.String(), d.Name, err)
	}
	return nil
}

// Rules are all that apply to a call. The zero value has none.
type Rules struct {
	Deny, Ask, Allow []Rule
	// Confirm has a person asked about every call that may do what cannot be undone: only an allow rule that is as
	// precise as a rule for its tool can be allows such a call. See [Rule.Precise].
	Confirm bool
}

// Tighten returns the rules with more deny and ask rules, such as those of a batch. It cannot add an allow rule: a
// batch never grants itself permission.
func (rs Rules) Tighten(deny, ask []Rule) Rules {
	rs.Deny = slices.Concat(rs.Deny, deny)
	rs.Ask = slices.Concat(rs.Ask, ask)
	return rs
}

// Check joins the errors of [Rule.Check] for every rule and every tool.
func (rs Rules) Check(tools ...*tool.Declaration) error {
	var errs []error
	for _, r := range slices.Concat(rs.Deny, rs.Ask, rs.Allow) {
		for _, d := range tools {
			errs = append(errs, r.Check(d))
		}
	}
	return errors.Join(errs...)
}

// Blocks reports whether a deny rule without specifier removes a tool from the surface. aliases are the tool's own.
func (rs Rules) Blocks(name string, aliases []string) bool {
	return slices.ContainsFunc(rs.Deny, func(r Rule) bool { return r.Specifier == "" && r.namesAny(name, aliases) })
}
