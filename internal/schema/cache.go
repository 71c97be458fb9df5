package schema

import (
	"container/list"
	"encoding/json"
	"sync"
)

// DefaultCacheSize is how many compiled schemas a [Cache] keeps by default.
const DefaultCacheSize = 1_024

// Cache keeps compiled schemas by their texts, and drops the least recently used first. Compiling takes about as long
// as a hundred validations. Failures are kept too. It is safe for concurrent use; the zero Cache is
// ready.
type Cache struct {
	// Size is how many schemas are kept; 0 means [DefaultCacheSize]. Set it before the first use.
	Size int

	mu      sync.Mutex
	order   *list.List               // of *cached, most recently used first
	inputs  map[string]*list.Element // what is compiled for inputs, by its text
	outputs map[string]*list.Element
}

type cached struct {
	in     map[string]*list.Element
	text   string
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
	return len(c.inputs) + len(c.outputs)
}

func (c *Cache) get(raw json.RawMessage, closed bool) (*Schema, error) {
	c.mu.Lock()
	if c.order == nil {
		c.order, c.inputs, c.outputs = list.New(), map[string]*list.Element{}, map[string]*list.Element{}
	}
	entries := c.outputs
	if closed {
		entries = c.inputs
	}
	if e, ok := entries[string(raw)]; ok {
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
	if e, ok := entries[string(raw)]; ok {
		hit := e.Value.(*cached)
		return hit.schema, hit.err
	}
	text := string(raw)
	entries[text] = c.order.PushFront(&cached{entries, text, s, err})
	size := c.Size
	if size <= 0 {
		size = DefaultCacheSize
	}
	for c.order.Len() > size {
		last := c.order.Back()
		oldest := last.Value.(*cached)
		delete(oldest.in, oldest.text)
		c.order.Remove(last)
	}
	return s, err
}
