package hooks

// knownTool is a tool of ours that hooks in the field know by another name. The fields of its input have the same names
// there. path is the one that they expect to be an absolute path.
type knownTool struct{ own, theirs, path string }

// knownTools are matched by either name, and a hook is told the one that it expects.
var knownTools = []knownTool{
	{"bash", "Bash", ""},
	{"read_file", "Read", "file_path"},
	{"write_file", "Write", "file_path"},
	{"edit_file", "Edit", "file_path"},
	{"glob", "Glob", ""},
	{"grep", "Grep", ""},
	{"web_fetch", "WebFetch", ""},
	{"tool_search", "ToolSearch", ""},
}

// known finds a tool by our name. One that is not in the table goes by its own name.
func known(own string) knownTool {
	for _, k := range knownTools {
		if k.own == own {
			return k
		}
	}
	return knownTool{own: own, theirs: own}
}

// ownName is our name for a tool that is written either way.
func ownName(name string) string {
	for _, k := range knownTools {
		if k.theirs == name {
			return k.own
		}
	}
	return name
}
