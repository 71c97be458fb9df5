package server

import (
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/toolyard/toolyard"
)

// enter lets a call in, until leave is called, once; or says why not.
func (s *Server) enter(agent toolyard.Agent) (leave func(), why string) {
	leave, full := s.calls.Enter(agent, 0)
	switch {
	case full == nil:
		return leave, ""
	case full.OfAgent:
		return nil, fmt.Sprintf("%d calls of agent %s are under way, the most that one agent may have", full.Count,
			agent)
	}
	return nil, fmt.Sprintf("%d calls are under way, the most that this server waits for", full.Count)
}

// busy is the answer that nothing is wrong with a request, and another time it may be taken. Its code is one of those
// that JSON-RPC leaves to servers, and MCP to nobody.
func busy(format string, args ...any) error {
	return &jsonrpc.Error{Code: -32000, Message: fmt.Sprintf(format, args...)}
}

// malformed is the answer to a request that no model's second try at the input mends.
func malformed(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// isMalformed reports whether an error is of malformed.
func isMalformed(err error) bool {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	return ok && e.Code == jsonrpc.CodeInvalidParams
}
