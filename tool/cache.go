package tool

import (
	"fmt"
	"time"

	"github.com/toolyard/toolyard"
)

// Cache says when an output of a tool answers other calls with the same input. Only calls that are READ_ONLY, read-only
// and idempotent are answered so, and only until the next exclusive call in their workspace. The output may depend on
// the input, the workspace and the session's context, and with [CacheAgent] on the agent, but on nothing else in [Env].
type Cache struct {
	// TTLMS is how long an output answers calls, in milliseconds: at most [MaxCacheTTL]. 0: outputs are not kept.
	TTLMS int64 `json:"ttl_ms,omitempty"`
	// Scope says whose calls an output answers. Empty: [CacheAgent].
	Scope CacheScope `json:"scope,omitempty"`
	// Coalesce has equal calls that run on one worker at the same time share one execution.
	Coalesce bool `json:"coalesce,omitempty"`
}

// MaxCacheTTL is the longest that an output may answer other calls.
const MaxCacheTTL = time.Hour

// CacheScope is whose calls an output answers.
type CacheScope string

// The scopes.
const (
	CacheAgent     CacheScope = "agent"     // those of the same agent; the default
	CacheWorkspace CacheScope = "workspace" // those of all agents that use the workspace
)

// Known reports whether s is one of the scopes above, or left out.
func (s CacheScope) Known() bool { return s == "" || s == CacheAgent || s == CacheWorkspace }

// TTL is how long an output answers calls; 0 means that it answers none that come later.
func (c *Cache) TTL() time.Duration { return time.Duration(c.TTLMS) * time.Millisecond }

// cacheProblem says why a tool cannot have the cache that it declares; empty if it can, or declares none.
func (d *Declaration) cacheProblem() string {
	c := d.Cache
	if c == nil {
		return ""
	}
	static := d.Class.Shell == "" && !d.Class.Ask
	switch {
	case c.TTLMS < 0 || c.TTLMS > MaxCacheTTL.Milliseconds():
		return fmt.Sprintf("Cache.TTLMS is %d; use 0 to %d milliseconds", c.TTLMS, MaxCacheTTL.Milliseconds())
	case c.TTLMS == 0 && !c.Coalesce:
		return "Cache says nothing; set TTLMS (ttl_ms), Coalesce (coalesce) or both"
	case !c.Scope.Known():
		return fmt.Sprintf("Cache.Scope is %q; use %q, %q, or nothing for %q", c.Scope, CacheAgent, CacheWorkspace,
			CacheAgent)
	case static && (d.Class.Static != toolyard.ReadOnly || !d.ReadOnly):
		return "Cache is for calls that only read; set Class to READ_ONLY, and ReadOnly (is_read_only)"
	case d.Idempotent != nil && !*d.Idempotent:
		return "Cache is for calls that may run twice; Idempotent is false"
	case d.RequiresUserInteraction:
		return "Cache is set, and the tool talks to a person"
	case !d.NeedsWorkspace():
		return "Cache needs the workspace's ticket, which says when something was changed; leave UsesWorkspace " +
			"(uses_workspace) out"
	}
	return ""
}
