package shard

// The steps of a raise, in their order. Any operator's command may take each of them, at any time, again.
const (
	// Make creates the streams of the shards up to the wanted number that are missing.
	Make Kind = "make"
	// Announce stores [Map.Prepare] with the revision that was read.
	Announce Kind = "announce"
	// Await waits until all dispatchers and workers say that they serve the new shards.
	Await Kind = "await"
	// Open stores [Map.Open] with the revision that was read.
	Open Kind = "open"
	// Done: the system has so many shards.
	Done Kind = "done"
)

// Raised is what was read of a system whose shards are to be so many.
type Raised struct {
	Map Map
	// Made is how many shards have all of their streams.
	Made int
	// Served is how many shards all live dispatchers and workers serve, for as long as [Grace] since they were
	// announced: readers rely on that.
	Served int
}

// Raise decides what is done next to raise the number of shards.
func Raise(r Raised, want int) (Kind, error) {
	if r.Map.Shards() == want {
		return Done, nil
	}
	if _, err := r.Map.Prepare(want); err != nil {
		return "", err
	}
	switch {
	case r.Made < want:
		return Make, nil
	case r.Map.Next != want:
		return Announce, nil
	case r.Served < want:
		return Await, nil
	}
	return Open, nil
}
