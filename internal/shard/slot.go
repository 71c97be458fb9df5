// Package shard decides which set of streams has a batch, and which one has the ticket queue of a workspace, also while
// the number of sets grows.
//
// A shard is a whole set of streams. Shard 0 has what everybody must know. A [Map] says how many shards there are, and
// since when. Processes have maps of different ages: each decision here is safe with an old one.
package shard

import (
	"fmt"
	"hash/fnv"

	"github.com/toolyard/toolyard"
)

const (
	// Slots is how many slots there are. What has the same slot is in the same shard.
	Slots = 1024
	// Max is how many shards a system has at most.
	Max = 16
)

// Slot is a part of all batches, or of all workspaces.
type Slot int

// OfBatch is the slot of a batch.
func OfBatch(k toolyard.BatchKey) Slot { return slot("batch", string(k.Agent), string(k.ID)) }

// OfWorkspace is the slot of a workspace's ticket queue.
func OfWorkspace(w toolyard.Workspace) Slot { return slot("workspace", string(w)) }

// slot is the 64-bit FNV-1a hash of the names, each behind its length, so that no two lists of names look the same.
func slot(names ...string) Slot {
	h := fnv.New64a()
	for _, n := range names {
		_, _ = fmt.Fprintf(h, "%d:%s", len(n), n) // it never fails
	}
	return Slot(h.Sum64() % Slots)
}

// Shard is the shard of a slot where there are n. When n grows, a slot stays where it is or goes to a new shard: the
// jump hash of Lamping and Veach (https://arxiv.org/abs/1406.2294).
func (s Slot) Shard(n int) int {
	const factor, bits = 2862933555777941757, 31
	key, at := uint64(s), 0
	for next := 0; next < n; {
		at = next
		key = key*factor + 1
		next = int(float64(at+1) * (float64(1<<bits) / float64(key>>(64-bits)+1)))
	}
	return at
}
