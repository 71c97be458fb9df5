// Package traceparent carries W3C trace contexts. They are text: what an agent sent, or what a span of ours made of it.
// It knows no tracing library, so that whatever passes a context on links none.
//
// Authority: none. A trace context comes from agents. It names a place in a trace, and nothing is decided from it.
package traceparent

import (
	"context"
	"strings"
)

// Header is the name of the HTTP header, of the extension of a CloudEvent, and of the member of MCP's _meta. Env is
// that of the environment variable.
const (
	Header = "traceparent"
	Env    = "TRACEPARENT"
)

// size is how long a trace context of version 00 is. That of a later version begins with the same, and may be longer.
const size = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")

// Valid returns a trace context as we pass it on: in version 00. It is empty if the text is none.
func Valid(text string) string {
	if len(text) < size || text[2] != '-' || text[35] != '-' || text[52] != '-' {
		return ""
	}
	version, trace, span, flags := text[:2], text[3:35], text[36:52], text[53:size]
	switch {
	case !hex(version) || version == "ff", !hex(trace) || empty(trace), !hex(span) || empty(span), !hex(flags):
		return ""
	case version == "00":
		if len(text) > size {
			return ""
		}
		return text
	case len(text) > size && text[size] != '-':
		return ""
	}
	return "00" + text[2:size]
}

// TraceID returns the trace's id in a trace context that is valid; otherwise "".
func TraceID(valid string) string {
	if len(valid) != size {
		return ""
	}
	return valid[3:35]
}

func hex(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return !('0' <= r && r <= '9' || 'a' <= r && r <= 'f') }) < 0
}

func empty(id string) bool { return strings.Trim(id, "0") == "" }

type key struct{}

// With returns a context that carries a trace context, unless that is empty: then it is ctx itself.
func With(ctx context.Context, valid string) context.Context {
	if valid == "" {
		return ctx
	}
	return context.WithValue(ctx, key{}, valid)
}

// From returns the trace context that ctx carries, or "".
func From(ctx context.Context) string {
	valid, _ := ctx.Value(key{}).(string)
	return valid
}
