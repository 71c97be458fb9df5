package server

import (
	"net/http"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard/internal/traceparent"
)

// TestTraceOf: a call is in the trace that its _meta names, else in that of its HTTP request.
func TestTraceOf(t *testing.T) {
	const one, other = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"00-11111111111111111111111111111111-2222222222222222-00"
	header := func(v string) *mcp.RequestExtra {
		return &mcp.RequestExtra{Header: http.Header{"Traceparent": {v}, "Tracestate": {"h=1", "i=2"},
			"Baggage": {"h=1"}}}
	}
	for name, c := range map[string]struct {
		meta  mcp.Meta
		extra *mcp.RequestExtra
		want  traceparent.Context
	}{
		"over a pipe, without": {},
		"over a pipe": {meta: mcp.Meta{"traceparent": one, "tracestate": "m=1", "baggage": "m=2"},
			want: traceparent.Context{Parent: one, State: "m=1", Baggage: "m=2"}},
		"over HTTP": {extra: header(one), want: traceparent.Context{Parent: one, State: "h=1,i=2", Baggage: "h=1"}},
		"both": {meta: mcp.Meta{"traceparent": other}, extra: header(one),
			want: traceparent.Context{Parent: other, Baggage: "h=1"}},
		"baggage of its own": {meta: mcp.Meta{"baggage": "m=2"}, extra: header(one),
			want: traceparent.Context{Parent: one, State: "h=1,i=2", Baggage: "m=2"}},
		"no trace context": {meta: mcp.Meta{"traceparent": "x", "tracestate": "m=1"}},
		"no text":          {meta: mcp.Meta{"traceparent": 7}},
		"malformed beside": {meta: mcp.Meta{"traceparent": one, "tracestate": "m", "baggage": []any{}},
			want: traceparent.Context{Parent: one}},
		"neither": {extra: header("x"), want: traceparent.Context{Baggage: "h=1"}},
	} {
		got := traceOf(&mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Meta: c.meta}, Extra: c.extra})
		if got != c.want {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
	}
}
