package hooks

import "github.com/toolyard/toolyard/internal/policy"

// knownTool is a tool as Claude Code's hooks know it. Its input fields have the same names there. path is the field
// that they expect to be an absolute path.
type knownTool struct{ theirs, path string }

// known finds a tool by our name. A tool without another name keeps its own.
func known(own string) knownTool {
	k := knownTool{theirs: policy.FieldName(own)}
	switch own {
	case "read_file", "write_file", "edit_file":
		k.path = "file_path"
	}
	return k
}
