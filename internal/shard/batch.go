package shard

import "time"

// A batch stays in the shard that took its submission, for as long as it is kept. The id of a batch must not run in two
// shards. So who submits appends a fence under the id in each former shard, expecting nothing there, before it submits
// to the home. Of a fence and a submission with an older map one is refused.

// Stand is what stands under the id of a batch in one shard.
type Stand string

// What may stand there.
const (
	// Unread: nobody has looked.
	Unread Stand = ""
	// Nothing stands there.
	Nothing Stand = "nothing"
	// Moved is the fence: the id is no longer used here.
	Moved Stand = "moved"
	// Taken: a submission, or the record of an archived one.
	Taken Stand = "taken"
)

// Kind is what is done next.
type Kind string

// The steps.
const (
	// Fence appends a fence, expecting nothing, and reads what stands there if that is refused.
	Fence Kind = "fence"
	// Store appends the submission, expecting nothing, and reads what stands there if that is refused.
	Store Kind = "store"
	// Look reads what stands there.
	Look Kind = "look"
	// Answer: what stands there is the batch. Who submits compares the content.
	Answer Kind = "answer"
	// Renew reads the map again, and begins again.
	Renew Kind = "renew"
	// None: there is no such batch.
	None Kind = "none"

	// Run takes the submission. Refuse answers that it came too late in this shard.
	Run    Kind = "run"
	Refuse Kind = "refuse"
)

// Step is what is done next, and in which shard.
type Step struct {
	Kind  Kind
	Shard int
}

// Submit decides what is done next to submit a batch. path is that of its slot.
func Submit(path []int, stands map[int]Stand) Step {
	home := path[len(path)-1]
	for _, at := range path {
		switch stands[at] {
		case Taken:
			return Step{Answer, at}
		case Moved:
			if at == home { // somebody has a newer map
				return Step{Kind: Renew}
			}
		case Unread, Nothing:
			if at == home {
				return Step{Store, at}
			}
			return Step{Fence, at}
		}
	}
	return Step{Kind: Renew}
}

// Find decides what is done next to find a batch. fresh says that the map was read since the search began: only then it
// is sure that there is no such batch.
func Find(path []int, stands map[int]Stand, fresh bool) Step {
	for _, at := range path {
		switch stands[at] {
		case Unread:
			return Step{Look, at}
		case Taken:
			return Step{Answer, at}
		case Nothing, Moved:
		}
	}
	if !fresh || stands[path[len(path)-1]] == Moved {
		return Step{Kind: Renew}
	}
	return Step{Kind: None}
}

// Take decides what a dispatcher does with a submission that was stored in a shard at a time, by the server's clock.
// read is when its map was read, and received when it got the submission, by its own clock.
func Take(m Map, read time.Time, s Slot, shard int, stored, received time.Time) Step {
	for _, t := range m.stays(s) {
		switch {
		case t.shard != shard:
		case t.left.IsZero() && received.After(read.Add(freshFor)): // it may have left since
			return Step{Kind: Renew}
		case t.left.IsZero(), !stored.After(t.left.Add(Grace)):
			return Step{Run, shard}
		default:
			return Step{Refuse, shard}
		}
	}
	if !read.After(received) { // its sender may know a newer map
		return Step{Kind: Renew}
	}
	return Step{Refuse, shard}
}
