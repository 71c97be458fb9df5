package tool_test

import (
	"strings"
	"testing"

	"github.com/toolyard/toolyard/tool"
)

// FuzzParseLockRule: a text that is read says what it says, and no more.
func FuzzParseLockRule(f *testing.F) {
	for _, text := range []string{"file:{file_path}", "shared db:{database}", "migrations", "t:{a}.{b}", "db:",
		"a:{b", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := tool.ParseLockRule(text)
		if err != nil {
			return
		}
		var b strings.Builder
		if r.Shared {
			b.WriteString("shared ")
		}
		b.WriteString(r.Space)
		for i, part := range r.Parts {
			switch {
			case i == 0:
				b.WriteString(":" + part)
			case i%2 == 1:
				b.WriteString("{" + part + "}")
			default:
				b.WriteString(part)
			}
		}
		if b.String() != text || len(text) > tool.MaxLockRuleBytes || strings.ContainsAny(r.Space, ":{} ") {
			t.Fatalf("%q is read as %+v", text, r)
		}
	})
}
