package policy

import (
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/protect"
	"github.com/toolyard/toolyard/tool"
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

// TestNoSessionApprovalReachesAProtectedPlace: what a person has allowed for a path counts for all below it, but not
// for a protected place there. Somebody has to allow that place itself, which then is remembered like any other.
func TestNoSessionApprovalReachesAProtectedPlace(t *testing.T) {
	git, bare := protect.Place{Path: ".git", Why: "w"}, protect.Place{Path: "bare/HEAD"}
	for name, tc := range map[string]struct {
		remembered, path string
		place            *protect.Place
		want             bool
	}{
		"below":                       {"write_file(./vendor)", "vendor/lib/a.go", nil, true},
		"a protected place below":     {"write_file(./vendor)", "vendor/lib/.git/config", &git, false},
		"another in the same place":   {"write_file(./vendor/.git)", "vendor/.git/hooks/pre-commit", &git, true},
		"the very path":               {"write_file(./vendor/.git/config)", "vendor/.git/config", &git, true},
		"a bare repository":           {"write_file(./bare)", "bare/config", &bare, false},
		"the very path in one":        {"write_file(./bare/config)", "bare/config", &bare, true},
		"a file of a bare repository": {"write_file(./bare/hooks)", "bare/hooks/update", &bare, false},
	} {
		req := Request{Declaration: builtins["write_file"], Input: input(t, "file_path", tc.path),
			Paths: []string{tc.path}, Protected: tc.place}
		if rule, ok := Recalls([]string{tc.remembered}, req, "h"); ok != tc.want {
			t.Errorf("%s: %t by %q, want %t", name, ok, rule, tc.want)
		}
		if own := Remember(req, "h"); tc.place != nil {
			if _, ok := Recalls([]string{own}, req, "other"); !ok {
				t.Errorf("%s: %q does not recall what it was remembered for", name, own)
			}
		}
	}
	// A call that only reads is not guarded.
	req := Request{Declaration: builtins["write_file"], Input: input(t, "file_path", "vendor/.git/config"),
		Paths: []string{"vendor/.git/config"}, Protected: &git, Judgement: tool.Judgement{ReadOnly: true}}
	if _, ok := Recalls([]string{"write_file(./vendor)"}, req, "h"); !ok {
		t.Error("a read is guarded")
	}
}
