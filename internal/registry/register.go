// Package registry holds the known tools and decides which of them a batch sees.
//
// A [Registry] is immutable: registering returns a new one. [Assemble] makes the [Surface] of a batch from it. Deny
// rules are applied, and the order is stable, so that the prompt caches of providers stay valid. A surface is a value
// that is stored and named by its hash; calls resolve their names in it (resolve.go) and get their concurrency class
// from the declarations in it (judge.go), without any tool's code.
//
// The package is pure.
package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/tool"
)

// The limits of a registry.
const (
	MaxTools            = 4_096     // entries
	MaxBytes            = 48 << 20  // encoded bytes of all entries that [Fit] keeps: a surface is stored as one object
	MaxDeclarationBytes = 256 << 10 // encoded bytes of one declaration
	MaxAliases          = 16        // aliases of one tool
)

// Origin says where a tool comes from, and so which tool wins if two have one name.
type Origin string

// The origins; the first wins. Only the first two are the base registry, whose aliases count.
const (
	Builtin Origin = "builtin"
	Toolset Origin = "toolset"
	MCP     Origin = "mcp"
)

func (o Origin) rank() int { return slices.Index([]Origin{Builtin, Toolset, MCP}, o) }

// Base reports whether tools of this origin may have aliases: an external server must not take over calls that are
// meant for another tool.
func (o Origin) Base() bool { return o == Builtin || o == Toolset }

// Entry is one tool that a pool of workers offers.
type Entry struct {
	tool.Declaration
	// Hash is the declaration's hash: the tool's identity. [Registry.Register] fills it in if it is empty.
	Hash   string        `json:"hash"`
	Origin Origin        `json:"origin"`
	Pool   toolyard.Pool `json:"pool"`
	// Defer says that the operator leaves the schema out of the prompt until it is loaded, whatever the author says;
	// see [DeferAllBut]. It is not part of the tool's identity.
	Defer bool `json:"defer,omitempty"`
}

// Hash is the identity of a tool: the SHA-256, in hex, of its declaration as JSON with sorted keys. It fails if the
// declaration cannot be encoded, because one of its schemas is not JSON.
func Hash(d tool.Declaration) (string, error) {
	raw, err := json.Marshal(d)
	if err != nil {
		return "", fmt.Errorf("encode the declaration of %q: %w", d.Name, err)
	}
	v, err := schema.Parse(raw)
	if err != nil {
		return "", fmt.Errorf("encode the declaration of %q: %w", d.Name, err)
	}
	return v.Hash(), nil
}

// Registry is all known tools, of all origins and pools. The zero Registry is empty. It is immutable.
type Registry struct {
	entries []Entry  // sorted by origin, name, pool
	blocked []string // names and aliases that their providers have removed
}

// Identity tells registries apart. Two that are made apart have different ones, whatever they contain.
type Identity struct {
	entries *Entry
	blocked *string
}

// Identity returns the registry's identity. ok is false for a registry without tools, which has none.
func (r Registry) Identity() (id Identity, ok bool) {
	if len(r.entries) == 0 {
		return id, false
	}
	id.entries = &r.entries[0]
	if len(r.blocked) > 0 {
		id.blocked = &r.blocked[0]
	}
	return id, true
}

// Block returns a registry in which names are blocked that are no entry's, nor an alias of one: a call of such a name
// is a call of a blocked tool.
func (r Registry) Block(names ...string) Registry {
	r.blocked = slices.Concat(r.blocked, names)
	return r
}

// Names returns the names of all tools, the aliases that count, and the blocked names.
func (r Registry) Names() []string {
	out := slices.Clone(r.blocked)
	for _, e := range r.entries {
		out = append(out, e.Name)
		if e.Origin.Base() {
			out = append(out, e.Aliases...)
		}
	}
	return out
}

// Len is the number of entries.
func (r Registry) Len() int { return len(r.entries) }

// Register returns a registry with the entries added; r is unchanged. An entry that already exists, with the same name,
// origin, pool and declaration, changes nothing. If there is an error, it names the entry, and nothing is added.
func (r Registry) Register(entries ...Entry) (Registry, error) { return r.register(nil, entries) }

func (r Registry) register(known *Checked, entries []Entry) (Registry, error) {
	next := slices.Clone(r.entries)
	for _, e := range entries {
		was := e
		compiled := known.complete(&e)
		if !compiled {
			if err := check(&e); err != nil {
				return r, fmt.Errorf("register tool %q: %w", e.Name, err)
			}
		}
		at, found := slices.BinarySearchFunc(next, e, compare)
		if found {
			if next[at].Hash != e.Hash {
				return r, fmt.Errorf("register tool %q: pool %q has another %s tool of this name, with the "+
					"declaration %.12s; this one is %.12s",
					e.Name, e.Pool, e.Origin, next[at].Hash, e.Hash)
			}
			continue
		}
		if !compiled && !slices.ContainsFunc(next, func(o Entry) bool { return o.Hash == e.Hash }) {
			if _, err := schema.CompileInput(e.InputSchema); err != nil {
				return r, fmt.Errorf("register tool %q: input schema: %w", e.Name, err)
			}
			if e.OutputSchema != nil {
				if _, err := schema.CompileOutput(e.OutputSchema); err != nil {
					return r, fmt.Errorf("register tool %q: output schema: %w", e.Name, err)
				}
			}
		}
		if len(next) >= MaxTools {
			return r, fmt.Errorf("register tool %q: the registry has %d tools, which is the limit", e.Name, MaxTools)
		}
		if !compiled {
			known.note(was, e)
		}
		next = slices.Insert(next, at, e)
	}
	return Registry{entries: next, blocked: r.blocked}, nil
}

// check completes an entry, copies it, and validates it.
func check(e *Entry) error {
	if err := toolyard.CheckName("name", e.Name); err != nil {
		return err
	}
	if len(e.Aliases) > MaxAliases {
		return fmt.Errorf("has %d aliases; at most %d are allowed", len(e.Aliases), MaxAliases)
	}
	for i, a := range e.Aliases {
		if err := toolyard.CheckName(fmt.Sprintf("aliases[%d]", i), a); err != nil {
			return err
		}
	}
	if err := CheckLocks(&e.Declaration); err != nil {
		return err
	}
	if e.Origin.rank() < 0 {
		return fmt.Errorf("origin %q is none of %q, %q, %q", e.Origin, Builtin, Toolset, MCP)
	}
	if e.Pool == "" {
		e.Pool = toolyard.DefaultPool
	}
	if err := toolyard.CheckName("pool", string(e.Pool)); err != nil {
		return err
	}
	hash, err := Hash(e.Declaration)
	if err != nil {
		return err
	}
	if e.Hash != "" && e.Hash != hash {
		return fmt.Errorf("is announced with the hash %.12s, its declaration has %.12s", e.Hash, hash)
	}
	e.Hash = hash
	raw, err := json.Marshal(e.Declaration)
	if err != nil {
		return err
	}
	if len(raw) > MaxDeclarationBytes {
		return fmt.Errorf("its declaration has %d bytes; at most %d are allowed", len(raw), MaxDeclarationBytes)
	}
	e.Declaration = tool.Declaration{}
	return json.Unmarshal(raw, &e.Declaration)
}

func compare(a, b Entry) int {
	if c := a.Origin.rank() - b.Origin.rank(); c != 0 {
		return c
	}
	if c := bytes.Compare([]byte(a.Name), []byte(b.Name)); c != 0 {
		return c
	}
	return bytes.Compare([]byte(a.Pool), []byte(b.Pool))
}
