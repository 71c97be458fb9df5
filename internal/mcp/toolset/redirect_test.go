package toolset

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/internal/testenv"
)

// TestARedirectThatMakesAGETIsNotFollowed: a GET asks an MCP server for its own stream, in which no answer to a call
// ever comes. The operator reads which address to write.
func TestARedirectThatMakesAGETIsNotFollowed(t *testing.T) {
	t.Parallel()
	stream := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(": open\n\n"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	t.Run("a call", func(t *testing.T) {
		t.Parallel()
		for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther} {
			set := webServer(t, nil, stream, func(w http.ResponseWriter, _ json.RawMessage) {
				w.Header().Set("Location", "/moved")
				w.WriteHeader(status)
			})
			_, err := run(t, set, "x", patience)
			if err == nil || err.Code != toolyard.OutcomeUnknown || !strings.Contains(err.Error(), "/moved") {
				t.Errorf("%d: got %v, want %s", status, err, toolyard.OutcomeUnknown)
			}
		}
	})
	t.Run("the handshake", func(t *testing.T) {
		t.Parallel()
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				stream(w, r)
				return
			}
			http.Redirect(w, r, "/mcp/", http.StatusMovedPermanently)
		}))
		t.Cleanup(web.Close)
		set := start(t, manifest.Server{Name: "s", URL: web.URL + "/mcp", MaxTools: 10, MaxInFlight: 4,
			StartTimeoutMS: 60_000})
		testenv.Until(t, "the server is down", func() bool { return set.Down() != nil })
		if down := set.Down().Error(); !strings.Contains(down, "/mcp/") || !strings.Contains(down, "manifest") {
			t.Errorf("it is down: %s", down)
		}
	})
}
