package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	wire "github.com/toolyard/toolyard/internal/mcp"
)

// TestARequestWithoutParameters is answered: the library hands it on, and in a goroutine of its own.
func TestARequestWithoutParameters(t *testing.T) {
	s := bare(t)
	for _, version := range []string{"2025-11-25", stateless} {
		for _, method := range []string{wire.MethodGet, wire.MethodResult, wire.MethodList, wire.MethodCancel,
			wire.MethodUpdate, "tools/call", "tools/list", "subscriptions/listen", "resources/read"} {
			for _, params := range []string{"", `,"params":null`} {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp",
					strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"`+method+`"`+params+`}`))
				r.Header = http.Header{"Content-Type": {"application/json"}, versionHeader: {version},
					"Accept": {"application/json, text/event-stream"}, methodHeader: {method}}
				w := httptest.NewRecorder()
				s.Serve(w, r, "a", nil)
				if w.Code >= 500 || !strings.Contains(w.Body.String(), `"error"`) && w.Code < 400 &&
					method != "tools/list" {
					t.Errorf("%s of %s%s: %d %s", method, version, params, w.Code, w.Body)
				}
			}
		}
	}
}
