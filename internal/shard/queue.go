package shard

// A workspace has one ticket queue in each shard of its path. Tickets do not move. Who joins with a newer map first
// seals the former queues, each by a change of its key with the revision that was read: a sealed queue takes no more
// tickets, and nobody deletes its key while its shard is on the path. A ticket is granted when all queues before its
// own are sealed and empty, which they stay. So the lock goes to the new shard when the last former ticket leaves, and
// nobody who waits there is overtaken.

// Queue is what was read of a workspace's queue in one shard. The zero Queue was not read.
type Queue struct {
	Read bool
	// Sealed says that it takes no more tickets, and Empty that it has none.
	Sealed, Empty bool
	// Own says that it has a ticket for this group of this batch, and Granted that no earlier ticket of the queue
	// conflicts with that one.
	Own, Granted bool
	// Last is the last number that was given out.
	Last uint64
}

// The steps of who needs a ticket. Look and Renew are the others.
const (
	// Seal marks the queue as sealed. A key that does not exist is created for that.
	Seal Kind = "seal"
	// Join appends a ticket, with a number above those of the former queues: see [Floor].
	Join Kind = "join"
	// Leave takes the batch's ticket out: it has an earlier one.
	Leave Kind = "leave"
	// Wait until the queue changes, and read it again.
	Wait Kind = "wait"
	// Hold: the group may start under its ticket.
	Hold Kind = "hold"
)

// Enter decides what is done next to get a ticket. path is that of the workspace's slot.
func Enter(path []int, queues map[int]Queue) Step {
	home := path[len(path)-1]
	own := -1
	for _, at := range path {
		q := queues[at]
		switch {
		case !q.Read:
			return Step{Look, at}
		case at != home && !q.Sealed:
			return Step{Seal, at}
		case own >= 0 && q.Own: // another planner of the batch had another map
			return Step{Leave, at}
		case q.Own:
			own = at
		}
	}
	if own < 0 && queues[home].Sealed { // somebody has a newer map
		return Step{Kind: Renew}
	}
	if own < 0 {
		return Step{Join, home}
	}
	for _, at := range path {
		if at == own {
			break
		}
		if !queues[at].Empty {
			return Step{Wait, at}
		}
	}
	if !queues[own].Granted {
		return Step{Wait, own}
	}
	return Step{Hold, own}
}

// Floor is the number above which a ticket in the home gets its own: fencing tokens of a workspace only grow. A queue
// that has given out higher numbers goes on from those.
func Floor(path []int, queues map[int]Queue) (floor uint64) {
	for _, at := range path[:len(path)-1] {
		floor = max(floor, queues[at].Last)
	}
	return floor
}
