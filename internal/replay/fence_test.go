package replay

import (
	"testing"

	"github.com/toolyard/toolyard"
)

// TestDelimitersAreNoDifference: each result has a nonce of its own. What stands between the delimiters counts.
func TestDelimitersAreNoDifference(t *testing.T) {
	fenced := func(nonce, text string) *toolyard.Result {
		text = "<outside-" + nonce + " source=\"x\">\n" + text + "\n</outside-" + nonce + ">"
		return &toolyard.Result{Output: text, Error: text, Origin: &toolyard.Origin{Source: "x", Fence: nonce}}
	}
	if d := difference(0, fenced("aaaa", "one"), fenced("bbbb", "one")); len(d) != 0 {
		t.Errorf("the same text: %+v", d)
	}
	d := difference(0, fenced("aaaa", "one"), fenced("bbbb", "two"))
	if len(d) != 2 || d[0].Line != 2 || d[0].Before != "one" || d[0].After != "two" {
		t.Errorf("another text: %+v", d)
	}
}
