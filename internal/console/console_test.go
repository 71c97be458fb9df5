package console_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/console"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// maxBytes bounds what the console adds to the binary.
const maxBytes = 200 << 10

func ask(t *testing.T, path string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	files, err := console.Files()
	must.OK(t, err)
	if files[path] == nil {
		t.Fatalf("there is no %s", path)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.Header = header
	w := httptest.NewRecorder()
	files[path].ServeHTTP(w, r)
	return w
}

// TestPolicy: no page has a script or a style in itself, names another server, or is shown by another site, and the
// browser is told so.
func TestPolicy(t *testing.T) {
	files, err := console.Files()
	must.OK(t, err)
	size := 0
	for _, path := range slices.Sorted(maps.Keys(files)) {
		w := ask(t, path, nil)
		policy := w.Header().Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'",
			"base-uri 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy %q lacks %q", path, policy, want)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") || strings.Contains(policy, "data:") {
			t.Errorf("%s: the policy lets more in: %q", path, policy)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: the headers are %v", path, w.Header())
		}
		size += w.Body.Len()
	}
	if size > maxBytes {
		t.Errorf("the files have %d bytes; %d at most may be added to the binary", size, maxBytes)
	}
	page := ask(t, "/", nil).Body.String()
	for _, found := range regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if files[found[1]] == nil {
			t.Errorf("the page asks for %q, which is not here", found[1])
		}
	}
	if regexp.MustCompile(`<style|style=| on\w+=|<script>`).MatchString(page) {
		t.Errorf("the page has a script or a style in itself:\n%s", page)
	}
}

// TestAFileIsSentOnce: a browser that has a file is told so, and gets one that has changed.
func TestAFileIsSentOnce(t *testing.T) {
	first := ask(t, "/console/app.js", nil)
	if first.Code != http.StatusOK || !strings.HasPrefix(first.Header().Get("Content-Type"), "text/javascript") {
		t.Errorf("the script: %d, %v", first.Code, first.Header())
	}
	again := ask(t, "/console/app.js", http.Header{"If-None-Match": {first.Header().Get("ETag")}})
	if again.Code != http.StatusNotModified || again.Body.Len() > 0 {
		t.Errorf("the script again: %d, %d bytes", again.Code, again.Body.Len())
	}
	if other := ask(t, "/console/app.js", http.Header{"If-None-Match": {`"older"`}}); other.Code != http.StatusOK {
		t.Errorf("an older script: %d", other.Code)
	}
}
