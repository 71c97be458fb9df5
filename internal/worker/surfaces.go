package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/toolyard/toolyard/internal/provider/toolname"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/tool"
)

// maxSurfaces is how many surfaces a worker remembers; the batches of one time see one or two.
const maxSurfaces = 8

// surfaces are those that tools asked for last, the latest at the end.
type surfaces struct {
	mu    sync.Mutex
	known []surface
}

type surface struct {
	hash  string
	tools []tool.Offered
}

// offered returns the tools of a surface. The slice is the caller's own, its elements are shared.
func (s *surfaces) offered(ctx context.Context, b Broker, hash string) ([]tool.Offered, error) {
	if tools, ok := s.get(hash); ok {
		return tools, nil
	}
	if hash == "" {
		return nil, fmt.Errorf("the call does not say which tools its batch sees")
	}
	stored, err := b.Surface(ctx, hash)
	if err != nil {
		return nil, err
	}
	decoded, err := registry.Decode(stored)
	if err != nil {
		return nil, err
	}
	names := decoded.Names(toolname.Anthropic)
	tools := make([]tool.Offered, len(decoded.Tools))
	for i := range decoded.Tools {
		e := &decoded.Tools[i]
		tools[i] = tool.Offered{Declaration: e.Declaration, WireName: names.Sent(e.Name), Deferred: e.Deferred()}
	}
	s.put(surface{hash, tools})
	return slices.Clone(tools), nil
}

func (s *surfaces) get(hash string) ([]tool.Offered, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, known := range s.known {
		if known.hash == hash {
			return slices.Clone(known.tools), true
		}
	}
	return nil, false
}

func (s *surfaces) put(new surface) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxSurfaces {
		s.known = slices.Delete(s.known, 0, 1)
	}
	s.known = append(s.known, new)
}
