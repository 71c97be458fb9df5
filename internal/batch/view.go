package batch

import (
	"cmp"
	"slices"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
)

// View returns what may be seen of the batch.
func (s *State) View() toolyard.BatchView {
	v := toolyard.BatchView{
		ID: s.Key.ID, Agent: s.Key.Agent, Status: s.Status(),
		Groups: [][]int{}, Results: []toolyard.Result{}, Notice: s.Notice, NewerEvents: len(s.Newer),
	}
	if s.Submission != nil {
		v.Session, v.Workspace = s.Submission.Session, s.Submission.Workspace
	}
	if s.Plan != nil {
		v.Session, v.Workspace, v.Surface = s.Plan.Session, s.Plan.Workspace, s.Plan.Surface
		for _, g := range s.Plan.Groups {
			v.Groups = append(v.Groups, g.Calls)
		}
	}
	for i, c := range s.Calls {
		if _, lost := s.lost[i]; !lost && c.Result != nil {
			v.Results = append(v.Results, *c.Result)
		}
	}
	for _, res := range s.lost { // also of calls that were never planned
		v.Results = append(v.Results, res)
	}
	slices.SortFunc(v.Results, func(a, b toolyard.Result) int { return cmp.Compare(a.Index, b.Index) })
	return v
}

// keepLost keeps what only a reply says. An owner that gives a batch up ends its open calls as internal_error in the
// last reply, and no event has these results.
func (s *State) keepLost(b events.Reply) {
	for _, res := range b.Results {
		if !b.Completed || res.Code != toolyard.InternalError {
			continue
		}
		if s.lost == nil {
			s.lost = map[int]toolyard.Result{}
		}
		s.lost[res.Index] = res
	}
}

// GivenUp reports whether a call that has been with a worker was ended by an owner that gives the batch up. Unlike at
// every other end, its worker may not know yet.
func (s *State) GivenUp(index int) bool {
	c := &s.Calls[index]
	return c.Seq != 0 && c.Result != nil && c.Result.Code == toolyard.InternalError && c.Result.Worker == ""
}
