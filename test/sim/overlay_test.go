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

// edit is a place at which the code is changed: in file, old becomes new. OFF in new asks whether the fence is taken
// away, and stands where that makes a difference.
type edit struct{ file, old, new string }

// overlay writes mutated copies of the code, which has all fences until one is taken away while it runs, and the file
// that go build takes with -overlay. An old text that its file has not, or has twice, is an error that names the tooth.
func overlay(root, dir string, all []tooth) (path string, err error) {
	type change struct {
		at, end int
		text    string
	}
	changes := map[string][]change{}
	sources := map[string]string{}
	var wrong []error
	for _, t := range all {
		for _, e := range t.edits {
			source, ok := sources[e.file]
			if !ok {
				b, err := os.ReadFile(filepath.Join(root, e.file))
				if err != nil {
					return "", err
				}
				source = string(b)
				sources[e.file] = source
			}
			if n := strings.Count(source, e.old); n != 1 {
				wrong = append(wrong, fmt.Errorf("the tooth of %q: %s has this text %d times, and should once:\n%s",
					t.fence, e.file, n, e.old))
				continue
			}
			at := strings.Index(source, e.old)
			off := fmt.Sprintf("fence.Off(%q)", t.fence)
			changes[e.file] = append(changes[e.file], change{at, at + len(e.old),
				strings.ReplaceAll(e.new, "OFF", off)})
		}
	}
	replace := map[string]string{}
	for file, cs := range changes {
		source := sources[file]
		at := strings.Index(source, "\nimport ") + 1
		if at == 0 {
			return "", fmt.Errorf("%s imports nothing", file)
		}
		cs = append(cs, change{at, at, "import \"github.com/toolyard/toolyard/test/sim/fence\"\n"})
		slices.SortFunc(cs, func(a, b change) int { return a.at - b.at })
		var out strings.Builder
		last := 0
		for _, c := range cs {
			if c.at < last {
				wrong = append(wrong, fmt.Errorf("%s: two edits overlap: %s", file, source[c.at:c.end]))
				break
			}
			out.WriteString(source[last:c.at])
			out.WriteString(c.text)
			last = c.end
		}
		out.WriteString(source[last:])
		mutated := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(mutated, []byte(out.String()), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = mutated
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
