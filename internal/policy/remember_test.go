package policy

import (
	"strings"
	"testing"
)

// TestWhatIsRememberedCanBeRead: the text of a session approval names the tool and the input, and allows only that.
func TestWhatIsRememberedCanBeRead(t *testing.T) {
	hash, other := strings.Repeat("0a", 32), strings.Repeat("1b", 32)
	for _, tc := range []struct{ tool, field, value, want string }{
		{"bash", "command", "npm test", "bash(npm test)"},
		{"bash", "command", "npm test | head > x", "bash with exactly this input (sha256 " + hash + ")"},
		{"bash", "command", "ls *.go", "bash with exactly this input (sha256 " + hash + ")"},
		{"write_file", "file_path", "docs/a", "write_file(./docs/a)"},
		{"web_fetch", "url", "https://a.org/x", "web_fetch(domain:a.org)"},
		{"mcp__my__x", "a", "b", "mcp__my__x with exactly this input (sha256 " + hash + ")"},
	} {
		req := Request{Declaration: builtins[tc.tool], Input: input(t, tc.field, tc.value)}
		if tc.field == "file_path" {
			req.Paths = []string{tc.value}
		}
		got := Remember(req, hash)
		if got != tc.want {
			t.Errorf("%s %q is remembered as %q, want %q", tc.tool, tc.value, got, tc.want)
		}
		if _, ok := Recalls([]string{got}, req, hash); !ok {
			t.Errorf("%q does not recall %q", got, tc.value)
		}
		changed := req
		changed.Input, changed.Paths = input(t, tc.field, "else"), []string{"else"}
		if rule, ok := Recalls([]string{got}, changed, other); ok {
			t.Errorf("%q recalls another call (%s)", got, rule)
		}
	}
}
