package toolyard_test

import (
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

// TestTags: which texts are tags, for every first and every other byte.
func TestTags(t *testing.T) {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	ok := func(tag string) bool { return toolyard.CheckTags("f", []toolyard.Tag{toolyard.Tag(tag)}, 1) == nil }
	for c := range 256 {
		b := string([]byte{byte(c)})
		first := strings.Contains(plain, b)
		if ok(b) != first || ok(b+"x") != first {
			t.Errorf("a tag that begins with %q: %v", b, ok(b))
		}
		if want := first || strings.Contains("._/=-", b); ok("x"+b) != want || ok("x"+b+"x") != want {
			t.Errorf("a tag with %q in it: %v", b, ok("x"+b))
		}
	}
	if ok("") || ok("ä") || ok("xä") || !ok(strings.Repeat("x", toolyard.MaxTagBytes)) ||
		ok(strings.Repeat("x", toolyard.MaxTagBytes+1)) {
		t.Error("a tag has 1 to 64 bytes of ASCII")
	}
}
