package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/toolyard/toolyard"
)

// ErrNoCatalog says that a client speaks NATS, where nobody says what a batch would see: a dispatcher's rules are its
// own.
var ErrNoCatalog = errors.New("only a dispatcher's HTTP API tells the tools of the next batch; connect with " +
	"ConnectHTTP")

// Catalog returns the tools that a batch of an agent for a workspace would see if it came now with these deny rules, as
// a JSON document with their declarations and its hash. An empty workspace is [toolyard.DefaultWorkspace]. Over NATS it
// fails with [ErrNoCatalog].
func (c *Client) Catalog(ctx context.Context, a toolyard.Agent, w toolyard.Workspace, deny ...string) (json.RawMessage,
	error) {
	return c.t.surface(ctx, a, w, deny)
}

func (overNATS) surface(context.Context, toolyard.Agent, toolyard.Workspace, []string) (json.RawMessage, error) {
	return nil, ErrNoCatalog
}

func (t *overHTTP) surface(ctx context.Context, a toolyard.Agent, w toolyard.Workspace, deny []string) (json.RawMessage,
	error) {
	query := of(a)
	query["format"], query["deny"] = []string{"native"}, deny
	if w != "" {
		query.Set("workspace", string(w))
	}
	var out json.RawMessage
	err := t.ask(ctx, request{method: http.MethodGet, path: "/v1/tools", query: query}, &out)
	return out, err
}
