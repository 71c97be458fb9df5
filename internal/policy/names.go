package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toolyard/toolyard/internal/suggest"
	"github.com/toolyard/toolyard/tool"
)

// fieldTool is a tool of ours with its name in Claude Code.
type fieldTool struct{ own, theirs string }

// fieldTools can be named by either name in rules and in the matchers of hooks.
var fieldTools = []fieldTool{
	{"bash", "Bash"}, {"read_file", "Read"}, {"write_file", "Write"}, {"edit_file", "Edit"}, {"glob", "Glob"},
	{"grep", "Grep"},
	{"web_fetch", "WebFetch"}, {"tool_search", "ToolSearch"},
}

// otherBuiltins are the built-in tools that have no other name.
var otherBuiltins = []string{"read_result"}

// foreign are tools of Claude Code that do not exist here. Settings about them do not apply.
var foreign = strings.Fields(`Agent AskUserQuestion BashOutput CronCreate CronDelete CronList EnterPlanMode EnterWorktree ExitPlanMode
	ExitWorktree KillBash KillShell ListMcpResourcesTool LS LSP Monitor MultiEdit NotebookEdit NotebookRead PowerShell
	ReadMcpResourceTool SendMessage Skill SlashCommand Task TaskCreate TaskGet TaskList TaskOutput TaskStop TaskUpdate TeamCreate
	TeamDelete TodoRead TodoWrite WebSearch`)

// FieldName is the name of a tool of ours in Claude Code; without one, its own name.
func FieldName(own string) string {
	for _, t := range fieldTools {
		if t.own == own {
			return t.theirs
		}
	}
	return own
}

// Foreign reports whether a name is that of a tool of Claude Code which does not exist here.
func Foreign(name string) bool { return slices.Contains(foreign, name) }

// isFieldName reports whether a rule's name means a tool of ours by its name in Claude Code. As there, Edit means every
// tool that edits files.
func isFieldName(written, own string) bool {
	if written == "Edit" && own == "write_file" {
		return true
	}
	return slices.Contains(fieldTools, fieldTool{own, written})
}

// mcpPrefix begins the name of every tool of an MCP server: mcp__SERVER__TOOL.
const mcpPrefix = "mcp__"

// Names are the names that rules may use.
type Names struct {
	// Tools are the names and aliases of the known tools, beside the built-in ones.
	Tools []string
	// Servers are the MCP servers. AnyServer says that more may come: then the name of any server is accepted.
	Servers   []string
	AnyServer bool
}

// NamesOf returns the names of some tools, with their aliases.
func NamesOf(tools []tool.Tool) (n Names) {
	for i := range tools {
		n.Tools = append(append(n.Tools, tools[i].Name), tools[i].Aliases...)
	}
	return n
}

// ServersOf are the MCP servers whose tools are among some names.
func ServersOf(names []string) (out []string) {
	for _, name := range names {
		if rest, ok := strings.CutPrefix(name, mcpPrefix); ok {
			server, _, _ := strings.Cut(rest, "__")
			out = append(out, server)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Knows reports whether a tool with a name exists or may come.
func (n Names) Knows(name string) bool {
	ours := func(t fieldTool) bool { return t.own == name || t.theirs == name }
	if slices.ContainsFunc(fieldTools, ours) || slices.Contains(otherBuiltins, name) || slices.Contains(n.Tools, name) {
		return true
	}
	server, ok := strings.CutPrefix(name, mcpPrefix)
	if !ok || server == "" || strings.HasPrefix(server, "_") {
		return false
	}
	return n.AnyServer || slices.ContainsFunc(n.Servers, func(s string) bool {
		return server == s ||
			strings.HasPrefix(server, s+"__")
	})
}

// unknownNameError is the error for an unknown name.
func (n Names) unknownNameError(name string) error {
	if strings.HasPrefix(name, mcpPrefix) && !n.AnyServer {
		if len(n.Servers) == 0 {
			return fmt.Errorf("there is no tool %q here: no MCP server is connected", name)
		}
		return fmt.Errorf("there is no tool %q here: the MCP servers are %s", name, strings.Join(n.Servers, ", "))
	}
	if Foreign(name) {
		return fmt.Errorf("there is no tool %q here: it is one of Claude Code that has no counterpart", name)
	}
	near := n.all()
	for _, t := range fieldTools {
		near = append(near, t.theirs)
	}
	for _, t := range near {
		if strings.EqualFold(t, name) {
			return fmt.Errorf("there is no tool %q here; do you mean %q?", name, t)
		}
	}
	if meant := suggest.Names(name, n.all(), 1); len(meant) > 0 {
		return fmt.Errorf("there is no tool %q here; do you mean %q? There are %s", name, meant[0],
			strings.Join(n.all(), ", "))
	}
	return fmt.Errorf("there is no tool %q here; there are %s", name, strings.Join(n.all(), ", "))
}

// maxNamed is how many names an error lists.
const maxNamed = 40

func (n Names) all() []string {
	out := slices.Clone(otherBuiltins)
	for _, t := range fieldTools {
		out = append(out, t.own)
	}
	out = append(out, n.Tools...)
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), maxNamed)]
}

// Check returns an error if a name is not known.
func (n Names) Check(name string) error {
	if n.Knows(name) {
		return nil
	}
	return n.unknownNameError(name)
}

// CheckNames returns an error for rules that match no known tool: such a rule would have no effect, although its author
// relies on it.
func (rs Rules) CheckNames(n Names) error {
	var errs []error
	for _, list := range []struct {
		name  string
		rules []Rule
	}{{"deny", rs.Deny}, {"ask", rs.Ask}, {"allow", rs.Allow}} {
		for _, r := range list.rules {
			if err := n.Check(r.Tool); err != nil {
				errs = append(errs, fmt.Errorf("%s rule %q: %w", list.name, r, err))
			}
		}
	}
	return errors.Join(errs...)
}
