package batch

import (
	"maps"
	"slices"
	"time"

	"github.com/toolyard/toolyard/internal/events"
)

// End is the sequence of the last event on the chain of a call's item, 0 when there is none: what its next append must
// expect.
func (s *State) End(index int) uint64 { return s.Calls[s.Calls[index].Item].end }

// Item is the calls of a call's item.
func (s *State) Item(index int) events.Item {
	if item, ok := s.items[s.Calls[index].Item]; ok {
		return item
	}
	return events.Item{index}
}

// cut makes items of calls that have no event yet.
func (s *State) cut(items []events.Item, bad badFunc) error {
	seen := map[int]bool{}
	for _, item := range items {
		if len(item) == 0 || !slices.IsSorted(item) {
			return bad("the item %v is empty or not in order", item)
		}
		first := item[0]
		for _, i := range item {
			switch {
			case i < 0 || i >= len(s.Calls):
				return bad("there is no call %d", i)
			case seen[i] || s.Calls[i].Item != i || s.items[i] != nil || s.Calls[i].end > 0:
				return bad("call %d has an item already", i)
			case s.Plan.Calls[i].Claim && len(item) > 1:
				return bad("call %d is claimed, and is in an item with others", i)
			case s.Plan.Calls[i].Pool != s.Plan.Calls[first].Pool:
				return bad("the item %v has calls of two pools", item)
			}
			seen[i] = true
		}
	}
	s.items = maps.Clone(s.items)
	if s.items == nil {
		s.items = map[int]events.Item{}
	}
	for _, item := range items {
		s.items[item[0]] = item
		for _, i := range item {
			s.Calls[i].Item = item[0]
		}
	}
	return nil
}

func (s *State) applyItem(r Record, bad badFunc) error {
	if s.Plan == nil {
		return bad("before planned")
	}
	if r.Index < 0 || r.Index >= len(s.Calls) {
		if r.Pool != "" && !slices.ContainsFunc(s.Plan.Calls,
			func(c events.PlannedCall) bool { return c.Pool == r.Pool }) {
			return nil // a worker of a pool that has nothing to do with the batch
		}
		return bad("there is no call %d", r.Index)
	}
	first := &s.Calls[r.Index]
	if r.Pool != "" && r.Pool != s.Plan.Calls[r.Index].Pool {
		return nil
	}
	if r.Seq <= first.end {
		return nil
	}
	if first.Item != r.Index {
		return bad("it is in the item of call %d", first.Item)
	}
	calls := r.Calls()
	if len(calls) == 0 {
		return bad("%T is no event of an item", r.Body)
	}
	for n, i := range calls {
		if i < 0 || i >= len(s.Calls) || s.Calls[i].Item != r.Index || slices.Contains(calls[:n], i) {
			return bad("it names call %d, which is not in the item, or named twice", i)
		}
		if err := s.mayFollow(i, r.Body, bad); err != nil {
			return err
		}
	}
	for n, i := range calls {
		s.applyCall(i, n, r)
		s.Calls[i].Seq = r.Seq
	}
	first.end = r.Seq
	return nil
}

// Calls are the calls that an event of an item's chain is about; none for any other event.
func (r *Record) Calls() []int {
	if r.Chain != ChainItem {
		return nil
	}
	named := 0
	switch b := r.Body.(type) {
	case events.Claimed:
		named = b.Call
	case events.AttemptFailed:
		named = b.Call
	case events.Waiting:
		named = b.Call
	case events.Decided:
		named = b.Call
	case events.Returned:
		if len(b.Calls) > 0 {
			return b.Calls
		}
		named = b.Call
	case events.Finished:
		out := make([]int, 0, 1+len(b.More))
		for e := range b.Ends() {
			out = append(out, e.Result.Index)
		}
		return out
	default:
		return nil
	}
	if named == 0 { // call 0 is the first of its item as well
		named = r.Index
	}
	return []int{named}
}

// mayFollow checks that an event can follow what is known of a call.
func (s *State) mayFollow(i int, body events.Body, bad badFunc) error {
	c := &s.Calls[i]
	if c.Status == Finished {
		return bad("call %d has its result already", i)
	}
	switch body := body.(type) {
	case events.Returned:
		if c.Status == Claimed || c.Status == Retrying || c.Status == Waiting {
			return bad("call %d is %s and cannot be given back", i, c.Status)
		}
	case events.Waiting:
		// A tool asks while it runs, and a claim is over with its question.
		asks := body.Form != nil && c.Status == Claimed
		if c.Status != Pending && c.Status != Retrying && !asks {
			return bad("call %d is %s and cannot wait for a person", i, c.Status)
		}
	case events.Decided:
		switch {
		case c.Status != Waiting:
			return bad("call %d is %s: there is nothing to decide", i, c.Status)
		case body.Decision == events.Approve && body.Answers != (c.Asked.Form != nil):
			return bad("the answer about call %d is not to its question", i)
		}
	}
	return nil
}

// applyCall folds what an event says of one call, the nth that it names.
func (s *State) applyCall(i, n int, r Record) {
	c := &s.Calls[i]
	switch b := r.Body.(type) {
	case events.Claimed:
		c.Status, c.Worker, c.claimedBy, c.ClaimedAt, c.Attempt = Claimed, b.Worker, b.Worker, r.Time, b.Attempt
	case events.Returned:
		if len(b.Calls) > 0 { // otherwise the message itself comes back
			c.Back, c.NotBefore = true, r.Time.Add(FirstRetryPause)
			c.Attempt = max(c.Attempt, b.Attempt)
		}
	case events.AttemptFailed:
		c.Status, c.Worker, c.Attempt = Retrying, "", b.Attempt
		if b.NotStarted {
			c.Unstarted++
		}
		c.NotBefore = r.Time.Add(max(retryPause(b.Attempt), time.Duration(b.RetryAfterMS)*time.Millisecond))
	case events.Waiting:
		c.Status, c.Worker, c.Attempt, c.Asked, c.AskedAt = Waiting, "", b.Attempt, &b, r.Time
		if b.Form != nil {
			c.questions++
		}
	case events.Decided:
		c.Status, c.Decision, c.Waited = Decided, &b, c.Waited+r.Time.Sub(c.AskedAt)
	case events.Finished:
		end := b.End
		if n > 0 {
			end = b.More[n-1]
		}
		if end.Result.CallID == "" { // of a worker that could not read the call
			end.Result.CallID, end.Result.Tool = s.Plan.Calls[i].ID, s.Plan.Calls[i].Tool
			if s.Submission != nil {
				end.Result.Echo = s.call(i).Echo
			}
		}
		c.Status, c.Result, c.Session = Finished, &end.Result, end.Session
		if c.Session != nil {
			at, _ := slices.BinarySearch(s.changing, i)
			s.changing = slices.Insert(slices.Clone(s.changing), at, i)
		}
	}
}
