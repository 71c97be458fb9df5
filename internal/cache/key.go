package cache

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// Turn is under what a call runs, as far as its output may depend on that.
type Turn struct {
	// Generation is that of the workspace under the call's ticket. 0: unknown.
	Generation uint64
	// Deny and Ask are the batch's own rules, which may hide files from the tool.
	Deny, Ask []string
}

// Question is all that an output may depend on.
type Question struct {
	Turn
	// Declaration is the hash of the tool's declaration, and Input that of the canonical input.
	Declaration, Input string
	Workspace          toolyard.Workspace
	// Agent is who asks, and Scope for whom an output is kept.
	Agent toolyard.Agent
	Scope tool.CacheScope
	// Context is what the session's tools have set.
	Context map[string]string
}

// Key names all questions that have the same answer.
type Key [sha256.Size]byte

// Key returns the question's key. Two questions have the same key only if they differ in nothing, but for the agent
// where the scope is the workspace.
func (q *Question) Key() Key {
	agent := q.Agent
	if q.Scope == tool.CacheWorkspace {
		agent = ""
	}
	var out []byte
	number := func(n uint64) { out = binary.BigEndian.AppendUint64(out, n) }
	text := func(s string) { // its length is in front, so that no two lists of texts are written alike
		number(uint64(len(s)))
		out = append(out, s...)
	}
	list := func(texts []string) {
		number(uint64(len(texts)))
		for _, s := range texts {
			text(s)
		}
	}
	text(string(q.Scope))
	text(string(agent))
	text(q.Declaration)
	text(q.Input)
	text(string(q.Workspace))
	number(q.Generation)
	list(q.Deny)
	list(q.Ask)
	names := slices.Sorted(maps.Keys(q.Context))
	list(names)
	for _, name := range names {
		text(q.Context[name])
	}
	return sha256.Sum256(out)
}

// Text says how the calls of a tool that are judged so use its cache, for people; empty if it declares none.
func Text(d *tool.Declaration, j tool.Judgement) string {
	const anyGeneration = 1
	if d.Cache == nil {
		return ""
	}
	if why := Refuses(d, j, anyGeneration); why != "" {
		return "no, " + why
	}
	whose := "of the same agent"
	if d.Cache.Scope == tool.CacheWorkspace {
		whose = "of all agents"
	}
	var out []string
	if ttl := d.Cache.TTL(); ttl > 0 {
		out = append(out, "an output answers equal calls "+whose+" for "+ttl.String())
	}
	if d.Cache.Coalesce {
		out = append(out, "equal calls "+whose+" that run at the same time share one execution")
	}
	return strings.Join(out, "; ")
}

// Refuses says why a call of a tool is neither answered with another call's output nor answers one; empty if it may
// be. The generation is that of its workspace.
func Refuses(d *tool.Declaration, j tool.Judgement, generation uint64) string {
	switch {
	case d.Cache == nil:
		return "the tool declares no cache"
	case !d.NeedsWorkspace():
		return "the tool does not use the workspace, so that nothing says when it was changed"
	case j.Class != toolyard.ReadOnly:
		return "the call is " + string(j.Class)
	case !j.ReadOnly || j.Destructive:
		return "the call may change something"
	case !j.Idempotent:
		return "the call may not run twice"
	case generation == 0:
		return "it is not known since when the workspace is unchanged"
	}
	return ""
}
