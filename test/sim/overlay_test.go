package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// edit is a place at which the code is changed: in file, old becomes new. In the edits of teeth, OFF in new asks
// whether the fence is taken away, and stands where that makes a difference.
type edit struct{ file, old, new string }

// change is an edit, and whose it is. What needs an import has it.
type change struct {
	edit
	whose, imports string
}

// mutations are the changes after which each fence can be taken away while the code runs. It has all until then.
func mutations(all []tooth) (out []change) {
	for _, t := range all {
		for _, e := range t.edits {
			e.new = strings.ReplaceAll(e.new, "OFF", fmt.Sprintf("fence.Off(%q)", t.fence))
			out = append(out, change{edit: e, whose: fmt.Sprintf("the tooth of %q", t.fence),
				imports: "github.com/toolyard/toolyard/test/sim/fence"})
		}
	}
	return out
}

// overlay writes changed copies of files to dir, and the file that go build takes with -overlay. find says where a file
// is.
func overlay(find func(file string) string, dir string, changes []change) (path string, err error) {
	byFile := map[string][]change{}
	for _, c := range changes {
		byFile[c.file] = append(byFile[c.file], c)
	}
	replace := map[string]string{}
	var wrong []error
	for file, cs := range byFile {
		at := find(file)
		source, err := os.ReadFile(at)
		if err != nil {
			return "", err
		}
		text, err := changed(string(source), cs)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		replace[at] = filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(replace[at], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	if len(wrong) > 0 {
		return "", errors.Join(wrong...)
	}
	path = filepath.Join(dir, "overlay.json")
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	return path, os.WriteFile(path, b, 0o600)
}

// changed is a file's source after the changes. An old text that it has not, or has twice, is an error.
func changed(source string, changes []change) (string, error) {
	type part struct {
		at, end int
		text    string
	}
	var parts []part
	imports := ""
	for _, c := range changes {
		if n := strings.Count(source, c.old); n != 1 {
			return "", fmt.Errorf("%s: %s has this text %d times, and should once:\n%s", c.whose, c.file, n, c.old)
		}
		at := strings.Index(source, c.old)
		parts = append(parts, part{at, at + len(c.old), c.new})
		imports = c.imports
	}
	if imports != "" {
		at := strings.Index(source, "\nimport ") + 1
		if at == 0 {
			return "", fmt.Errorf("%s imports nothing", changes[0].file)
		}
		parts = append(parts, part{at, at, fmt.Sprintf("import %q\n", imports)})
	}
	slices.SortFunc(parts, func(a, b part) int { return a.at - b.at })
	var out strings.Builder
	last := 0
	for _, p := range parts {
		if p.at < last {
			return "", fmt.Errorf("%s: two edits overlap: %s", changes[0].file, source[p.at:p.end])
		}
		out.WriteString(source[last:p.at])
		out.WriteString(p.text)
		last = p.end
	}
	out.WriteString(source[last:])
	return out.String(), nil
}
