//go:build unix

package faults

import (
	"bytes"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/test/verdict"
)

// rules say what a cell's fault may do to results. The zero rules are those of a fault that nobody may notice.
type rules struct {
	// harmed are the workers that were killed or stopped: a call that may not run twice, and that one of them had, may
	// end as outcome_unknown.
	harmed []*process
	pids   []int // of further ones
	// zombie, settle, told, foreign and stopped are those of [verdict.Rules].
	zombie       bool
	settle, told time.Duration
	foreign      []toolyard.BatchKey
	stopped      map[int]bool
	// givesUp says that a dispatcher gives a batch up.
	givesUp bool
	// codes are what else the results of a tool may say.
	codes map[string][]toolyard.Code
}

// kinds are the tools of the load.
var kinds = map[string]verdict.Kind{
	"edit": {Once: true, Exclusive: true},
	"look": {}, "look_once": {Once: true}, "write": {Once: true, Exclusive: true}, "put": {Exclusive: true}, "fail": {},
	"steady_look": {}, "steady_write": {Once: true, Exclusive: true}, "steady_put": {Exclusive: true},
	"deaf_write": {Once: true, Exclusive: true, Deaf: true}, "fork": {Once: true, Exclusive: true, Deaf: true},
	"panic_write": {Once: true, Exclusive: true}, "exit_write": {Once: true, Exclusive: true},
}

// check holds a history against the invariants.
func check(h *verdict.History, r rules) []string {
	hurt := map[int]bool{}
	for _, p := range r.harmed {
		hurt[p.pid()] = true
	}
	for _, pid := range r.pids {
		hurt[pid] = true
	}
	return h.Check(verdict.Rules{
		Kinds: kinds, Hurt: hurt, Zombie: r.zombie, Settle: r.settle, Told: r.told, Foreign: r.foreign,
		Stopped: r.stopped,
		Right: func(j *verdict.Judged, c verdict.Call,
			res verdict.Finished) bool {
			return r.right(j, c, res.Result)
		},
	})
}

// right reports whether a result may say what it says: a fault does not make it worse than it has to.
func (r *rules) right(j *verdict.Judged, c verdict.Call, res toolyard.Result) bool {
	name := j.Tools[c]
	if slices.Contains(r.codes[name], res.Code) {
		return true
	}
	switch res.Code {
	case toolyard.OK:
		return name != "fail" && name != "no_such_tool"
	case toolyard.ExecutionFailed:
		return name == "fail"
	case toolyard.UnknownTool:
		return name == "no_such_tool"
	case toolyard.SchemaValidationFailed:
		return wrongInput(j, c)
	case toolyard.SiblingCanceled:
		return hasFailedSibling(j, c)
	case toolyard.OutcomeUnknown:
		return kinds[name].Once && j.Hurt[j.Processes[res.Worker]]
	}
	return false
}

func wrongInput(j *verdict.Judged, c verdict.Call) bool {
	for _, sub := range j.Submissions {
		if sub.Key() == c.BatchKey {
			return bytes.Contains(sub.Batch.Calls[c.Index].Input, []byte("soon"))
		}
	}
	return false
}

func hasFailedSibling(j *verdict.Judged, c verdict.Call) bool {
	for _, i := range j.Planned[c.BatchKey].Groups[j.GroupOf[c]].Calls {
		if j.Results[verdict.Call{BatchKey: c.BatchKey, Index: i}].Code == toolyard.ExecutionFailed {
			return true
		}
	}
	return false
}
