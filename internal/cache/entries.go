package cache

import (
	"bytes"
	"container/list"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// What one worker keeps at most. When there is no room, the output that was not asked for the longest goes first.
const (
	MaxEntries    = 4_096    // outputs that are kept
	MaxBytes      = 64 << 20 // bytes of all outputs that are kept
	MaxEntryBytes = 1 << 20  // bytes of one output; a longer one is not kept
)

// Entry is an output that is kept.
type Entry struct {
	Output tool.Output
	// Batch and Index are the call whose output it is.
	Batch toolyard.BatchKey
	Index int
	// Began is when the tool was started: what it read is at most as old.
	Began time.Time
	// TTL is how long after that it is good.
	TTL time.Duration
	// Code is the code that made it, as it was loaded with its credentials.
	Code *tool.Tool
}

// good reports whether an entry answers a call of the same key at a time.
func (e *Entry) good(code *tool.Tool, now time.Time) bool {
	age := now.Sub(e.Began)
	return e.Code == code && age >= 0 && age < e.TTL
}

// Keeps says why an output is not kept; empty if it may be.
func Keeps(d *tool.Declaration, out *tool.Output) string {
	switch {
	case d.Cache == nil || d.Cache.TTLMS <= 0:
		return "outputs of the tool are not kept"
	case out.Session != nil:
		return "the call has changed its session"
	case size(out) > MaxEntryBytes:
		return "the output is too long to be kept"
	}
	return ""
}

// size is how many bytes an output counts.
func size(out *tool.Output) int {
	const part = 64 // the least that a part and an output count, so that their number is bounded too
	n := part + len(out.Text) + len(out.Structured)
	for i := range out.Content {
		c := &out.Content[i]
		n += part + len(c.Data) + len(c.Schema)
		for _, s := range []string{c.Text, c.MIMEType, c.URI, c.Name, c.Title, c.Description, c.WireName, c.Blob} {
			n += len(s)
		}
	}
	return n
}

// Copy returns an output that shares nothing which may change with another.
func Copy(out tool.Output) tool.Output {
	out.Structured = bytes.Clone(out.Structured)
	out.Content = slices.Clone(out.Content)
	for i := range out.Content {
		c := &out.Content[i]
		c.Data, c.Schema = bytes.Clone(c.Data), bytes.Clone(c.Schema)
	}
	return out
}

// Entries are the outputs that are kept. The zero value has none. They are not safe for concurrent use.
type Entries struct {
	by    map[Key]*list.Element // of *kept
	order list.List             // the last one that was asked for in front
	bytes int
}

type kept struct {
	key   Key
	entry Entry
	bytes int
}

// Get returns the output under a key, if it is still good for calls of that code. One that is not is dropped.
func (e *Entries) Get(k Key, code *tool.Tool, now time.Time) (Entry, bool) {
	at, ok := e.by[k]
	if !ok {
		return Entry{}, false
	}
	has := at.Value.(*kept)
	if !has.entry.good(code, now) {
		e.drop(at)
		return Entry{}, false
	}
	e.order.MoveToFront(at)
	return has.entry, true
}

// Put keeps an output under a key, in place of another one. It reports whether it is kept.
func (e *Entries) Put(k Key, entry Entry, now time.Time) bool {
	n := size(&entry.Output)
	if n > MaxEntryBytes || !entry.good(entry.Code, now) {
		return false
	}
	if at, ok := e.by[k]; ok {
		e.drop(at)
	}
	for e.order.Len() >= MaxEntries || e.bytes+n > MaxBytes {
		e.drop(e.order.Back())
	}
	if e.by == nil {
		e.by = map[Key]*list.Element{}
	}
	e.by[k] = e.order.PushFront(&kept{k, entry, n})
	e.bytes += n
	return true
}

func (e *Entries) drop(at *list.Element) {
	has := e.order.Remove(at).(*kept)
	delete(e.by, has.key)
	e.bytes -= has.bytes
}

// Len is how many outputs are kept, and Bytes how many bytes they count.
func (e *Entries) Len() int   { return e.order.Len() }
func (e *Entries) Bytes() int { return e.bytes }
