package server

import (
	"context"
	"errors"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestAServerThatStopsBlamesNoClient for the requests that it ends: what has an answer keeps it.
func TestAServerThatStopsBlamesNoClient(t *testing.T) {
	for name, stops := range map[string]bool{"the client has canceled": false, "the server stops": true} {
		t.Run(name, func(t *testing.T) {
			s := &Server{}
			s.stopping, s.stop = context.WithCancel(t.Context())
			defer s.stop()
			if stops {
				s.stop()
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			for _, ends := range []error{nil, context.Canceled} {
				answer := &mcp.CallToolResult{}
				res, err := s.coded(func(context.Context, string, mcp.Request) (mcp.Result, error) {
					return answer, ends
				})(ctx, "tools/call", nil)
				coded, _ := errors.AsType[*jsonrpc.Error](err)
				switch {
				case !stops && coded != errCanceled,
					stops && ends == nil && (err != nil || res != mcp.Result(answer)),
					stops && ends != nil && (coded == nil || coded.Code == codeCanceled):
					t.Errorf("what ends with %v is answered with %v, %v", ends, res, err)
				}
			}
		})
	}
}
