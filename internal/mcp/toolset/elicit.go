package toolset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/elicit"
	"github.com/toolyard/toolyard/tool"
)

// A server may ask a person something before it goes on, if the manifest lets it. From 2026-07-28 on it ends the call
// with the question, and goes on when the call comes again with the answer: nothing of the call is left meanwhile, so
// it can wait as long as a person needs. A server of an older revision asks while the call runs, and is declined: a
// running call cannot wait for a person without its slot and its workspace.

// capabilities of a client towards a server: tasks, and forms if the manifest lets the server ask.
func (s *session) capabilities(legacy bool) *mcp.ClientCapabilities {
	caps := tasked()
	if s.asks(legacy) {
		caps.Elicitation = &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}}
	}
	return caps
}

func (s *session) asks(legacy bool) bool { return s.t.o.Server.Elicitation && !legacy }

// declines answers a server that asks while a call runs; nil where the server may ask nothing.
func (s *session) declines(legacy bool) func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	if !s.asks(legacy) {
		return nil
	}
	return func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		if r.Params.Mode == "url" { // the SDK would wait until somebody has opened the address
			return nil, &jsonrpc.Error{Code: mcp.CodeURLElicitationRequired, Message: errAddress.Error()}
		}
		s.t.log.Info("a question of an MCP server is declined: it asks in the middle of a call, as revisions before " +
			"2026-07-28 do")
		return &mcp.ElicitResult{Action: "decline"}, nil
	}
}

// errAddress is for elicitation in URL mode.
var errAddress = errors.New("it wants a person to open an address, and only forms are asked")

// answered puts a person's answer into a call that comes again with it.
func answered(ctx context.Context, params *mcp.CallToolParams) error {
	a := elicit.From(ctx).Answer
	if a == nil {
		return nil
	}
	res := &mcp.ElicitResult{Action: "accept"}
	if err := json.Unmarshal(a.Content, &res.Content); err != nil {
		return fmt.Errorf("read the answer to what the server asked: %w", err)
	}
	params.InputResponses, params.RequestState = mcp.InputResponseMap{a.Key: res}, a.State
	return nil
}

// question is the error of a call that ended with a question: an [*elicit.Question], or why nobody is asked.
func (s *session) question(ctx context.Context, res *mcp.CallToolResult) error {
	q, err := s.questionOf(ctx, res)
	if err == nil {
		return q
	}
	return tool.Failed(err, "The MCP server wants to ask a person something before it goes on, which is not possible "+
		"here: %v. The tool did not finish.", err)
}

func (s *session) questionOf(ctx context.Context, res *mcp.CallToolResult) (*elicit.Question, error) {
	if !s.t.o.Server.Elicitation {
		return nil, errors.New("its operator does not let it ask")
	}
	if mute := elicit.From(ctx).Mute; mute != "" {
		return nil, errors.New(mute)
	}
	if len(res.InputRequests) != 1 {
		return nil, fmt.Errorf("it asks %d things at once, and one is asked at a time", len(res.InputRequests))
	}
	for key, request := range res.InputRequests {
		asked, ok := request.(*mcp.ElicitParams)
		switch {
		case !ok || asked == nil:
			return nil, fmt.Errorf("what it asks for is no form (%T)", request)
		case asked.Mode != "" && asked.Mode != "form", asked.URL != "":
			return nil, errAddress
		}
		form, err := json.Marshal(asked.RequestedSchema)
		if err != nil {
			return nil, fmt.Errorf("its form cannot be read: %w", err)
		}
		return elicit.New(toolyard.Form{Server: s.t.o.Server.Name, Message: asked.Message, Schema: form}, key,
			res.RequestState)
	}
	return nil, errors.New("it asks nothing")
}
