//go:build unix

package hooks

import (
	"strings"
	"testing"
)

// TestASecretInAName: an input with one comes back as it was shown, or not at all.
func TestASecretInAName(t *testing.T) {
	r := newRig(t)
	for change, want := range map[string]string{`.tool_input`: "", `.tool_input + {b: 1}`: "in a name", `{b: 1}`: ""} {
		s := r.set(hook(PreToolUse, `jq '{hookSpecificOutput: {updatedInput: (`+change+`)}}'`))
		_, err := s.Pre(t.Context(), r.input("x", `{"[redacted: TOKEN]":1}`))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", change, err, want)
		}
	}
}
