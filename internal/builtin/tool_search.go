package builtin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// selectPrefix begins a query that names tools instead of describing them.
const selectPrefix = "select:"

type toolSearchInput struct {
	Query string `json:"query"`
	Limit *whole `json:"limit"`
}

func toolSearch() (tool.Tool, error) {
	no := false
	return tool.New(tool.Typed[json.RawMessage, tool.Output]{
		Declaration: tool.Declaration{
			Name: "tool_search",
			Description: "Finds tools whose definitions are not in the prompt, by what they are called, what they do " +
				"and what their inputs are called, " +
				"and loads the best matches: from the next turn on they can be called. Query with a few words " +
				"(\"create github issue\"), " +
				"or with \"select:name1,name2\" for tools whose names are known.",
			InputSchema: object(
				text("query",
					"A few words that say what is needed, or select: and exact names with commas between them.").
					withExamples("create github issue", "select:mcp__tracker__create_issue").required(),
				number("limit", 1, MaxSearchTools, "How many tools to load at most.").withDefault(DefaultSearchTools),
			),
			Class:              tool.ClassRule{Static: toolyard.ReadOnly},
			ReadOnly:           true,
			RequiresPermission: &no, // it shows only tools that rules have left to the batch
			UsesWorkspace:      &no,
			OpenWorld:          new(bool), // what it shows stands in the prompt where tools are not deferred
			AlwaysLoad:         true,
			Interrupt:          tool.Cancel,
			MaxResultSizeChars: -1, // MaxSearchBytes bounds it
			AbortsSiblings:     &no,
		},
		Check: func(_ context.Context, env tool.Env, input json.RawMessage) error {
			_, _, err := readSearch(env, input)
			return err
		},
		Run: func(ctx context.Context, env tool.Env, input json.RawMessage) (tool.Output, error) {
			query, limit, err := readSearch(env, input)
			if err != nil {
				return tool.Output{}, err
			}
			offered, err := env.Tools(ctx)
			switch {
			case err == nil:
			case stopped(ctx) != nil:
				return tool.Output{}, stopped(ctx)
			default:
				return tool.Output{}, tool.Unavailable(err, "the list of tools cannot be read now; try again")
			}
			return searchTools(offered, query, limit), nil
		},
	})
}

func readSearch(env tool.Env, input json.RawMessage) (query string, limit int, err error) {
	in, err := decode[toolSearchInput](input)
	if err != nil {
		return "", 0, err
	}
	query = strings.TrimSpace(in.Query)
	switch {
	case env.Tools == nil:
		return "", 0, tool.SetupRequired("this worker does not know which tools there are")
	case query == "" || query == selectPrefix:
		return "", 0,
			tool.Invalid("query is empty; say in a few words what the tool should do, or name it with select:NAME")
	case len(query) > MaxQueryBytes:
		return "", 0, tool.Invalid("query is %d bytes long; give at most %d", len(query), MaxQueryBytes)
	}
	n, err := in.Limit.between("limit", DefaultSearchTools, 1, MaxSearchTools)
	return query, int(n), err
}

// searchTools finds and loads tools. Tools that are in the prompt anyway are found only by name.
func searchTools(offered []tool.Offered, query string, limit int) tool.Output {
	var deferred []tool.Offered
	for _, o := range offered {
		if o.Deferred {
			deferred = append(deferred, o)
		}
	}
	var found []tool.Offered
	var b strings.Builder
	if names, ok := strings.CutPrefix(query, selectPrefix); ok {
		var notes []string
		found, notes = selectTools(offered, names)
		for _, n := range notes {
			fmt.Fprintln(&b, n)
		}
	} else {
		found = rankTools(deferred, query)
	}
	more := found[min(limit, len(found)):]
	found = found[:min(limit, len(found))]
	if len(found) == 0 {
		b.WriteString(nothingFound(deferred, query))
		return tool.Output{Text: strings.TrimSpace(b.String())}
	}
	out := tool.Output{Session: &tool.SessionChange{}}
	room := MaxSearchBytes
	for i, o := range found {
		if room -= len(o.InputSchema) + len(o.Description); room < 0 && i > 0 {
			found, more = found[:i], append(slices.Clone(found[i:]), more...)
			break
		}
		out.Session.Loads = append(out.Session.Loads, o.Name)
		part := toolyard.Content{Type: toolyard.ContentTool, Name: o.Name, Description: o.Description,
			Schema: o.InputSchema}
		if o.WireName != o.Name {
			part.WireName = o.WireName
		}
		out.Content = append(out.Content, part)
	}
	fmt.Fprintf(&b, "%s of %d deferred loaded; from the next turn on they can be called:\n", count(len(found), "tool"),
		len(deferred))
	for _, o := range found {
		b.WriteString("\n" + gist(&o))
	}
	if len(more) > 0 {
		fmt.Fprintf(&b, "\n[not loaded, and matching too: %s]", nameSome(more))
	}
	out.Text = strings.TrimSpace(b.String())
	return out
}

// selectTools finds tools by their exact names, as declared or as the provider got them, each once. notes are about
// names for which there is nothing to load.
func selectTools(offered []tool.Offered, names string) (found []tool.Offered, notes []string) {
	for name := range strings.SplitSeq(names, ",") {
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(offered, func(o tool.Offered) bool { return o.Name == name })
		if i < 0 {
			i = slices.IndexFunc(offered, func(o tool.Offered) bool { return o.WireName == name })
		}
		switch {
		case name == "":
		case i < 0:
			notes = append(notes, fmt.Sprintf("There is no tool %s.", show(name)))
		case !offered[i].Deferred:
			notes = append(notes, fmt.Sprintf("The tool %s is always there; it needs no loading.",
				show(offered[i].Name)))
		case !slices.ContainsFunc(found, func(o tool.Offered) bool { return o.Name == offered[i].Name }):
			found = append(found, offered[i])
		}
	}
	return found, notes
}

func nothingFound(deferred []tool.Offered, query string) string {
	if len(deferred) == 0 {
		return "There are no deferred tools here: every tool that can be called is in the prompt already."
	}
	if strings.HasPrefix(query, selectPrefix) {
		return "Nothing was loaded. There are: " + nameSome(deferred) + "."
	}
	return fmt.Sprintf("No deferred tool matches %s. There are: %s. Search with other words, or load one with "+
		"select:NAME.", show(query), nameSome(deferred))
}

// nameSome lists as many tool names as fit.
func nameSome(tools []tool.Offered) string {
	var names []string
	for _, o := range tools[:min(MaxSearchNames, len(tools))] {
		names = append(names, show(o.WireName))
	}
	if rest := len(tools) - len(names); rest > 0 {
		names = append(names, fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(names, ", ")
}

// gist is the text that a model reads about a tool.
func gist(o *tool.Offered) string {
	description, cut := cleaner(nil).cut(strings.TrimSpace(o.Description), MaxSearchShownChars)
	if cut {
		description += "…"
	}
	return fmt.Sprintf("%s: %s\n  input: %s\n", show(o.WireName), description,
		strings.Join(inputs(o.InputSchema), ", "))
}

// inputs lists the fields of a tool's input, with their types and whether they are required: "title (string,
// required)".
func inputs(schema json.RawMessage) []string {
	var s struct {
		Properties map[string]struct {
			Type any `json:"type"`
		} `json:"properties"`
		Required []string `json:"required"`
	}
	if json.Unmarshal(schema, &s) != nil || len(s.Properties) == 0 {
		return []string{"no fields that are known by name"}
	}
	var out []string
	for name, p := range s.Properties {
		var about []string
		if kind, ok := p.Type.(string); ok {
			about = append(about, kind)
		}
		if slices.Contains(s.Required, name) {
			about = append(about, "required")
		}
		text := show(name)
		if len(about) > 0 {
			text += " (" + strings.Join(about, ", ") + ")"
		}
		out = append(out, text)
	}
	slices.SortFunc(out, func(a, b string) int {
		need := func(s string) int {
			if strings.HasSuffix(s, "required)") {
				return 0
			}
			return 1
		}
		return cmp.Or(need(a)-need(b), cmp.Compare(a, b))
	})
	return out
}
