package archive

// A batch is archived in steps, and any dispatcher may take each of them, at any time, again. What stands in the store
// says which one is next: so a crash after any of them loses nothing.
//
// A fence is a message without content at the end of a chain. Deleting every message of a chain would let a late writer
// begin it anew; a fence refuses each append that expects what was there before. So no chain is ever without a message
// once it had one.

// Chain is one chain of a batch, as it stands in the store.
type Chain struct {
	// Subject is the one under which it is stored.
	Subject string
	// Last is the sequence of its last message that is no fence, and End that of its last message; 0 if there is none.
	Last, End uint64
}

// fence is the sequence of the fence that ends the chain; 0 if none does.
func (c *Chain) fence() uint64 {
	if c.End > c.Last {
		return c.End
	}
	return 0
}

// Seen is what was read of one batch.
type Seen struct {
	// Before is what the record on the batch chain says: see [Step.Before]. 0 if there is no record.
	Before uint64
	// Over says that its log was followed to its end, and Released that its submission is acknowledged and that the
	// work queue has nothing of it.
	Over, Released bool
	// Submission and Batch are fenced by the record of the object: that on the batch chain decides.
	Submission, Batch Chain
	// Control, Input and Items are on the stream of events, as Batch is. Reply has a stream of its own.
	Control, Reply Chain
	Items          []Chain // and the input chain
}

// Kind is what is done next.
type Kind string

// The steps, in their order.
const (
	// Leave: nothing can be done now.
	Leave Kind = "leave"
	// Fence appends an end to chains, each behind the last message that was read. When one is refused the batch is
	// left.
	Fence Kind = "fence"
	// Commit stores an object with what was read, and then the record of it and of Step.Before on the batch chain,
	// behind the last message that was read. The fences stood before that was read, so it is all that there is.
	Commit Kind = "commit"
	// Bury appends the record behind the submission.
	Bury Kind = "bury"
	// Delete deletes what is in the object: the events before Step.Before, the replies before their fence, and at last
	// the submission, by which the batch was found.
	Delete Kind = "delete"
	// Done: nothing is left to do.
	Done Kind = "done"
)

// Step is what is done next.
type Step struct {
	Kind   Kind
	Chains []Chain // to fence
	// Before is the sequence of the first fence on the stream of events when the object was read; the record has it.
	// All events of the object are before it, and all events before it are in the object. Who reads on from any of
	// them meets it, or the fence of its chain, before anything that was stored later.
	Before uint64
}

// Next decides what is done next with a batch.
func Next(s *Seen) Step {
	if s.Before == 0 {
		if !s.Over || !s.Released {
			return Step{Kind: Leave}
		}
		if open := s.unfenced(); len(open) > 0 {
			return Step{Kind: Fence, Chains: open}
		}
		return Step{Kind: Commit, Before: s.firstFence()}
	}
	switch {
	case s.Submission.fence() == 0:
		return Step{Kind: Bury}
	case s.Submission.Last > 0:
		return Step{Kind: Delete, Before: s.Before}
	}
	return Step{Kind: Done}
}

// unfenced are the chains that need a fence. On the stream of events each must be behind all events of the batch, so
// that all of them are before the first fence. One chain there must have one: if none has an event, the control chain.
func (s *Seen) unfenced() (out []Chain) {
	newest := max(s.Batch.Last, s.Control.Last)
	for _, c := range s.Items {
		newest = max(newest, c.Last)
	}
	fenced := false
	for _, c := range append([]Chain{s.Control}, s.Items...) {
		fenced = fenced || c.End > 0
		if c.End > 0 && c.fence() < newest {
			out = append(out, c)
		}
	}
	if !fenced {
		out = append(out, s.Control)
	}
	if s.Reply.fence() == 0 && s.Reply.End > 0 {
		out = append(out, s.Reply)
	}
	return out
}

// firstFence is the lowest sequence of a fence that ends a chain on the stream of events. There is one.
func (s *Seen) firstFence() (first uint64) {
	for _, c := range append([]Chain{s.Control}, s.Items...) {
		if fence := c.fence(); fence > 0 && (first == 0 || fence < first) {
			first = fence
		}
	}
	return first
}
