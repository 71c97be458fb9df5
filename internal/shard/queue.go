package shard

// A workspace has one ticket queue in each shard of its path. Tickets do not move. Who joins with a newer map first
// seals the former queues, each by a change of its key with the revision that was read: a sealed queue takes no more
// tickets, and nobody deletes its key while its shard is on the path. From then on the queues are one, the oldest
// first: who is first in it holds the lock, wherever the ticket stands. So the lock goes to the new shard when the last
// former ticket leaves, and nobody who waits there is overtaken.

// Queue is what was read of a workspace's queue in one shard. The zero Queue was not read.
type Queue struct {
	Read bool
	// Sealed says that it takes no more tickets.
	Sealed bool
	// Last is the last number that was given out.
	Last uint64
}

// The steps of who changes a workspace's tickets. Look and Renew are the others.
const (
	// Seal marks the queue as sealed. A key that does not exist is created for that.
	Seal Kind = "seal"
	// Change changes the queues as if they were one. A new ticket goes to the home, with a number above those of the
	// former queues: see [Floor].
	Change Kind = "change"
)

// Enter decides what is done next to change a workspace's tickets. path is that of the workspace's slot.
func Enter(path []int, queues map[int]Queue) Step {
	home := path[len(path)-1]
	for _, at := range path {
		switch q := queues[at]; {
		case !q.Read:
			return Step{Look, at}
		case at != home && !q.Sealed:
			return Step{Seal, at}
		case at == home && q.Sealed: // somebody has a newer map
			return Step{Kind: Renew}
		}
	}
	return Step{Change, home}
}

// Floor is the number above which a ticket in the home gets its own: fencing tokens of a workspace only grow. A queue
// that has given out higher numbers goes on from those.
func Floor(path []int, queues map[int]Queue) (floor uint64) {
	for _, at := range path[:len(path)-1] {
		floor = max(floor, queues[at].Last)
	}
	return floor
}
