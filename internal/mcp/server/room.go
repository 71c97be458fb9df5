package server

import (
	"fmt"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/toolyard/toolyard"
)

// room bounds how many calls are waited for, in all and for each agent.
type room struct {
	most, mostEach int

	mu   sync.Mutex
	all  int
	each map[toolyard.Agent]int
}

func newRoom(most, mostEach int) *room {
	return &room{most: most, mostEach: mostEach, each: map[toolyard.Agent]int{}}
}

// enter lets a call in, until leave is called, once; or says why not.
func (r *room) enter(agent toolyard.Agent) (leave func(), full string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.all >= r.most:
		return nil, fmt.Sprintf("%d calls are under way, the most that this server waits for", r.all)
	case r.each[agent] >= r.mostEach:
		return nil, fmt.Sprintf("%d calls of agent %s are under way, the most that one agent may have", r.each[agent], agent)
	}
	r.all++
	r.each[agent]++
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all--
		if r.each[agent]--; r.each[agent] == 0 {
			delete(r.each, agent)
		}
	}), ""
}

// busy is the answer that nothing is wrong with a request, and another time it may be taken. Its code is one of those that
// JSON-RPC leaves to servers, and MCP to nobody.
func busy(format string, args ...any) error {
	return &jsonrpc.Error{Code: -32000, Message: fmt.Sprintf(format, args...)}
}

// malformed is the answer to a request that no model's second try at the input mends.
func malformed(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}
