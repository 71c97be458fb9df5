package server

import (
	"net/http"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestTraceOf: a call is in the trace that its _meta names, else in that of its HTTP request.
func TestTraceOf(t *testing.T) {
	const one, other = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"00-11111111111111111111111111111111-2222222222222222-00"
	header := func(v string) *mcp.RequestExtra {
		return &mcp.RequestExtra{Header: http.Header{"Traceparent": {v}}}
	}
	for name, c := range map[string]struct {
		meta  mcp.Meta
		extra *mcp.RequestExtra
		want  string
	}{
		"over a pipe, without": {},
		"over a pipe":          {meta: mcp.Meta{"traceparent": one}, want: one},
		"over HTTP":            {extra: header(one), want: one},
		"both":                 {meta: mcp.Meta{"traceparent": other}, extra: header(one), want: other},
		"no trace context":     {meta: mcp.Meta{"traceparent": "x"}},
		"no text":              {meta: mcp.Meta{"traceparent": 7}},
		"neither":              {extra: header("x")},
	} {
		got := traceOf(&mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Meta: c.meta}, Extra: c.extra})
		if got != c.want {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
	}
}
