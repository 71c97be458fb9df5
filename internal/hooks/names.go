package hooks

import "github.com/toolyard/toolyard/internal/policy"

// knownTool is a tool as hooks in the field know it. The fields of its input have the same names there. path is the one
// that they expect to be an absolute path.
type knownTool struct{ theirs, path string }

// known finds a tool by our name. One that has no other goes by its own.
func known(own string) knownTool {
	k := knownTool{theirs: policy.FieldName(own)}
	switch own {
	case "read_file", "write_file", "edit_file":
		k.path = "file_path"
	}
	return k
}
