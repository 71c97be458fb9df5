package client

import (
	"fmt"
	"strings"
	"testing"
)

// TestALongResultOverHTTP: a result is read to its end, a part at a time, however long a result may be. Of one that is
// longer than that, the size is named.
func TestALongResultOverHTTP(t *testing.T) {
	const size = 3 * blobPage
	var pages []answer
	for at := 0; at < size; at += blobPage {
		next := (at + blobPage) % size
		pages = append(pages, says(200, "application/json", fmt.Sprintf(`{"size":%d,"next":%d,"content":%q}`, size, next,
			strings.Repeat("x", blobPage))))
	}
	c, s := scripted(t, HTTPOptions{}, pages...)
	got, err := c.Blob(t.Context(), "a", "sha256:1")
	if err != nil || len(got) != size || len(s.asked) != 1+len(pages) {
		t.Errorf("%d bytes of %d in %d requests, %v", len(got), size, len(s.asked), err)
	}
	c, _ = scripted(t, HTTPOptions{}, says(200, "application/json",
		fmt.Sprintf(`{"size":%d,"next":1,"content":"x"}`, MaxBlobBytes+1)))
	if _, err := c.Blob(t.Context(), "a", "sha256:1"); err == nil ||
		!strings.Contains(err.Error(), fmt.Sprintf("has %d bytes", MaxBlobBytes+1)) {
		t.Errorf("a result that is too long: %v", err)
	}
}
