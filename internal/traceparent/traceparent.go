// Package traceparent carries W3C trace contexts. Trace state and baggage go beside them. All are text: what an agent
// sent, or what a span of ours made of it. It knows no tracing library, so that whatever passes a context on links
// none.
//
// Authority: none. All of it comes from agents. It names a place in a trace, and nothing is decided from it.
//
// Failure: what is malformed or too long is dropped, as if it had not been sent. A batch never fails for it.
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

// The names of what goes beside it, in the same places.
const (
	StateHeader   = "tracestate"
	StateEnv      = "TRACESTATE"
	BaggageHeader = "baggage"
	BaggageEnv    = "BAGGAGE"
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

// Context is a trace context with what goes beside it. Its texts are valid, or empty. The zero value is none.
type Context struct {
	// Parent is the trace context itself.
	Parent string
	// State is what tracing systems have noted of the trace. It is empty where Parent is.
	State string
	// Baggage is what the agent has for all that its request leads to, also where there is no trace.
	Baggage string
}

// Of makes a context of what somebody sent, without what is not valid. A state without a parent counts for nothing.
func Of(parent, state, baggage string) Context {
	c := Context{Parent: Valid(parent), Baggage: Baggage(baggage)}
	if c.Parent != "" {
		c.State = State(state)
	}
	return c
}

// OfFields makes a context of the header fields of a request; values returns those of a name. Lists may come in several
// fields, and a trace context in one.
func OfFields(values func(name string) []string) Context {
	list := func(name string) string { return strings.Join(values(name), ",") }
	return Of(list(Header), list(StateHeader), list(BaggageHeader))
}

// Fields yields the names of headers with their values, of what is there.
func (c Context) Fields(yield func(name, value string) bool) {
	_ = (c.Parent == "" || yield(Header, c.Parent)) && (c.State == "" || yield(StateHeader, c.State)) &&
		(c.Baggage == "" || yield(BaggageHeader, c.Baggage))
}

type key struct{}

// With returns a context that carries a trace context, unless that is empty: then it is ctx itself.
func With(ctx context.Context, c Context) context.Context {
	if c == (Context{}) {
		return ctx
	}
	return context.WithValue(ctx, key{}, c)
}

// From returns the trace context that ctx carries, or the zero value.
func From(ctx context.Context) Context {
	c, _ := ctx.Value(key{}).(Context)
	return c
}
