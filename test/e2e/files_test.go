//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

// filesIn are the files below a directory with their content. What Toolyard notes there itself is left out.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.Name() == ".toolyard" {
			return err
		}
		name, err := filepath.Rel(dir, p)
		if err != nil || d.IsDir() {
			all[name+"/"] = ""
			return err
		}
		content, err := os.ReadFile(p)
		all[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// sameFiles fails a test if the files below a directory are not those.
func sameFiles(t *testing.T, what, dir string, want map[string]string) {
	t.Helper()
	got := filesIn(t, dir)
	for name, content := range want {
		if now, ok := got[name]; !ok || now != content {
			t.Errorf("%s: %s is %q (there: %t), want %q", what, name, now, ok, content)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s is there", what, name)
		}
	}
}
