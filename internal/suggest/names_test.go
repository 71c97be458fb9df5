package suggest

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	known := []string{"read_file", "write_file", "read_result", "bash", "glob"}
	for name, want := range map[string]string{
		"readfile": "read_file", "Read-File": "read_file", "raed_file": "read_file", "bsah": "bash", "globs": "glob",
		"file":       "read_file write_file",
		"kubernetes": "", "": "", "x": "",
	} {
		if got := strings.Join(Names(name, known, 2), " "); got != want {
			t.Errorf("Names(%q) = %q, want %q", name, got, want)
		}
	}
}
