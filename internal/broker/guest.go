package broker

import (
	"context"

	"github.com/toolyard/toolyard"
)

// AskedCall is the call for which a worker reads or stores an object.
type AskedCall struct {
	Agent toolyard.Agent   `json:"agent"`
	Batch toolyard.BatchID `json:"batch"`
	Index int              `json:"index"`
}

// callKey is the key of the context value that says for which call a worker asks.
type callKey struct{}

// ForCall returns a context in which objects are asked for a call: workers get those of an agent only while one of its calls
// is theirs.
func ForCall(ctx context.Context, k toolyard.BatchKey, index int) context.Context {
	return context.WithValue(ctx, callKey{}, &AskedCall{k.Agent, k.ID, index})
}

// CallOf returns the call that [ForCall] has put into a context, or nil.
func CallOf(ctx context.Context) *AskedCall {
	c, _ := ctx.Value(callKey{}).(*AskedCall)
	return c
}
