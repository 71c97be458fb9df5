package display

import (
	"strings"
	"testing"
)

// TestDiffLines: a diff is shown as an edit is, and nothing in it acts on a screen or passes for a line of ours.
func TestDiffLines(t *testing.T) {
	diff := "--- a/x\n+++ b/x\n@@ -1,3 +1,4 @@\n one\n-two\x1b[2J\n--- not a name\n+2 \n+" +
		strings.Repeat("long ", 20) + "\n\\ No newline at end of file\n"
	want := `--- a/x
+++ b/x
@@ -1,3 +1,4 @@
| one
- two⟨U+001B escape⟩[2J
- -- not a name
+ 2␣
+ long long long long long long long l
> ong long long long long long long lo
> ng long long long long long␣
\ No newline at end of file`
	if got := strings.Join(DiffLines(diff, 40, 100), "\n"); got != want {
		t.Errorf("it is shown as\n%s\nwant\n%s", got, want)
	}
	if got := DiffLines(diff, 40, 3); len(got) != 3 || got[2] != "(more lines are not shown)" {
		t.Errorf("three lines of it: %q", got)
	}
}
