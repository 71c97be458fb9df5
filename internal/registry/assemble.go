package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/toolyard/toolyard/internal/pattern"
)

// Surface is the tools that one batch sees. It is a value: the same registry and rules give the same bytes.
type Surface struct {
	// Hash identifies the surface: the SHA-256, in hex, of its JSON with this field empty. It covers every byte that a
	// model may see, including the order of fields in schemas.
	Hash string `json:"hash"`
	// Tools are sorted by origin, then name; names are unique.
	Tools []Entry `json:"tools"`
	// Blocked are the names and aliases that a deny rule removed, sorted: they resolve to blocked_tool.
	Blocked []string `json:"blocked,omitempty"`
}

// Assemble makes the surface. Tools that blocked reports are removed (nil blocks nothing). The rest are built-ins by
// name, toolsets by name, MCP tools by name. Of tools with one name the first wins; within one origin, the pool that
// sorts first. The name of a blocked tool is not available to a tool of a later origin, because a block covers
// everything that answers to the name.
func Assemble(r Registry, blocked func(name string, aliases []string) bool) (Surface, error) {
	var s Surface
	taken := map[string]bool{}
	out := map[string]bool{}
	for _, e := range r.entries {
		if taken[e.Name] {
			continue
		}
		taken[e.Name] = true
		if blocked != nil && blocked(e.Name, slices.Clone(e.Aliases)) {
			out[e.Name] = true
			if e.Origin.Base() {
				for _, a := range e.Aliases {
					out[a] = true
				}
			}
			continue
		}
		s.Tools = append(s.Tools, e)
	}
	answers := map[string]bool{}
	for i := range s.Tools {
		e := &s.Tools[i]
		delete(out, e.Name) // a tool's own name beats a blocked tool's alias
		answers[e.Name] = true
		for _, a := range e.Aliases {
			answers[a] = answers[a] || e.Origin.Base()
		}
	}
	for _, name := range r.blocked {
		if !answers[name] { // or another provider offers a tool of that name
			out[name] = true
		}
	}
	for name := range out {
		s.Blocked = append(s.Blocked, name)
	}
	slices.Sort(s.Blocked)
	return named(s)
}

// named sets a surface's hash.
func named(s Surface) (Surface, error) {
	s.Hash = ""
	raw, err := json.Marshal(s)
	if err != nil {
		return Surface{}, fmt.Errorf("encode the surface: %w", err)
	}
	s.Hash = sum(raw)
	return s, nil
}

// searchTool is the tool that loads deferred ones.
const searchTool = "tool_search"

// Searches reports whether the surface has the tool that loads deferred ones.
func (s *Surface) Searches() bool {
	return slices.ContainsFunc(s.Tools, func(e Entry) bool { return e.Name == searchTool })
}

// DeferAllBut returns a surface in which every tool is deferred, except those that are always loaded and those of the
// list: names, or prefixes that end in "*". A surface without tool_search is unchanged, since nothing could load a tool
// there.
func DeferAllBut(s Surface, list []string) (Surface, error) {
	if !s.Searches() {
		return s, nil
	}
	s.Tools = slices.Clone(s.Tools)
	for i := range s.Tools {
		e := &s.Tools[i]
		kept := pattern.MatchesAny(list, e.Name)
		e.Defer = !kept && !e.AlwaysLoad && e.Name != searchTool
	}
	return named(s)
}

// CheckPatterns returns an error if a list of names is invalid. Each name may end in "*".
func CheckPatterns(list []string) error {
	if len(list) > MaxViewTools {
		return fmt.Errorf("it names %d tools; at most %d are allowed", len(list), MaxViewTools)
	}
	for _, name := range list {
		if err := pattern.Check(name); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	return nil
}

// Encode returns the stored form. An error means that the surface was not made by [Assemble] or [Decode].
func (s *Surface) Encode() ([]byte, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode the surface: %w", err)
	}
	return raw, nil
}

// ErrCorrupt is wrapped by [Decode] if the stored content does not have the hash in its name.
var ErrCorrupt = errors.New("the stored surface does not have its hash")

// Decode reads a stored surface and checks its hash, because a surface decides what may run.
func Decode(raw []byte) (*Surface, error) {
	var s Surface
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("decode a surface: %w", err)
	}
	bare := s
	bare.Hash = ""
	again, err := json.Marshal(bare)
	if err != nil {
		return nil, fmt.Errorf("decode a surface: %w", err)
	}
	if got := sum(again); got != s.Hash {
		return nil, fmt.Errorf("%w: it says %.12s and is %.12s", ErrCorrupt, s.Hash, got)
	}
	return &s, nil
}

func sum(raw []byte) string {
	s := sha256.Sum256(raw)
	return hex.EncodeToString(s[:])
}
