package schema

import (
	"container/list"
	"crypto/sha256"
	"encoding/json"
	"sync"
)

// DefaultCacheSize is how many compiled schemas a [Cache] keeps by default.
const DefaultCacheSize = 1_024

// Cache keeps compiled schemas by the hash of their bytes, and drops the least recently used first. Compiling takes
// about as long as a hundred validations. Failures are kept too. It is safe for concurrent use; the zero Cache is
// ready.
type Cache struct {
	// Size is how many schemas are kept; 0 means [DefaultCacheSize]. Set it before the first use.
	Size int

	mu      sync.Mutex
	order   *list.List // of *cached, most recently used first
	entries map[cacheKey]*list.Element
}

type cacheKey struct {
	sum    [sha256.Size]byte
	closed bool
}

type cached struct {
	key    cacheKey
	schema *Schema
	err    error
}

// Input is [CompileInput], cached.
func (c *Cache) Input(raw json.RawMessage) (*Schema, error) { return c.get(raw, true) }

// Output is [CompileOutput], cached.
func (c *Cache) Output(raw json.RawMessage) (*Schema, error) { return c.get(raw, false) }

// Len is the number of cached schemas.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

func (c *Cache) get(raw json.RawMessage, closed bool) (*Schema, error) {
	key := cacheKey{sha256.Sum256(raw), closed}
	c.mu.Lock()
	if e, ok := c.entries[key]; ok {
		c.order.MoveToFront(e)
		hit := e.Value.(*cached)
		c.mu.Unlock()
		return hit.schema, hit.err
	}
	c.mu.Unlock()

	// Compiled outside the lock: two callers may do the same work once, but none waits for another's schema.
	s, err := compile(raw, closed)

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries, c.order = map[cacheKey]*list.Element{}, list.New()
	}
	if e, ok := c.entries[key]; ok {
		hit := e.Value.(*cached)
		return hit.schema, hit.err
	}
	c.entries[key] = c.order.PushFront(&cached{key, s, err})
	size := c.Size
	if size <= 0 {
		size = DefaultCacheSize
	}
	for len(c.entries) > size {
		last := c.order.Back()
		delete(c.entries, last.Value.(*cached).key)
		c.order.Remove(last)
	}
	return s, err
}
