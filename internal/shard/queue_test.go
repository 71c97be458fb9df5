package shard

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// The model has one workspace whose slot goes from shard 0 to 1 and then to 2. Three batches need it alone. Two
// dispatchers plan the first one and reserve tickets for it; the second one has an owner and an adopter. Each of them
// has the map of another time, and may stop anywhere. A sweeper takes out tickets of batches that are over, and deletes
// keys of empty queues. Every order is tried. Each change is a compare-and-set. What a party has read of one queue may
// be older than what it has read of another.

const workspaceBatches = 3

// perRevision is as [ticket.NumbersPerRevision], small.
const perRevision = 10

// key is the key of a queue.
type key struct {
	revision int // 0: there is none
	sealed   bool
	last     uint64
	tickets  [workspaceBatches]entry
}

type entry struct {
	batch int // from 1
	n     uint64
}

func (k *key) length() (n int) {
	for n < len(k.tickets) && k.tickets[n].batch != 0 {
		n++
	}
	return n
}

func (k *key) remove(batch int) {
	var left [workspaceBatches]entry
	n := 0
	for _, t := range k.tickets {
		if t.batch != batch {
			left[n] = t
			n++
		}
	}
	k.tickets = left
}

// seenQueue is what a party has read, and under which revision.
type seenQueue struct {
	Queue
	revision int
	empty    bool
	// own says that it has a ticket for the batch, with a number, and first that none is before it.
	own, first bool
	number     uint64
}

// party is a dispatcher that acts for a batch.
type party struct {
	batch  int // from 1
	shards int // of its map
	step   string
	seen   [modelShards]seenQueue
}

// scene is a state of the model.
type scene struct {
	keys    [modelShards]key
	ends    [modelShards]int // the last revision of each bucket
	parties [5]party
	planned bool                  // the first batch
	owner   [workspaceBatches]int // the index of the party, by batch
	running int                   // the batch, from 1
	over    [workspaceBatches]bool
	token   uint64 // the last one under which something ran
	wrong   string
}

// queueRules are the decisions. A test replaces one.
type queueRules struct {
	enter func(path []int, queues map[int]Queue) Step
	floor func(path []int, queues map[int]Queue) uint64
	// deletes: also keys of sealed queues are deleted. blind: who seals does not look at the revision. passes: tickets
	// of former queues are not waited for. forgets: one's own ticket in a former queue does not count.
	deletes, blind, passes, forgets bool
	// tokens: it is wrong if a token does not grow.
	tokens bool
}

var theQueueRules = queueRules{enter: Enter, floor: Floor, tokens: true}

func (p *party) path() (path []int) {
	for n := range p.shards {
		if at := moving.Shard(numbers[n]); len(path) == 0 || path[len(path)-1] != at {
			path = append(path, at)
		}
	}
	return path
}

func (p *party) queues() map[int]Queue {
	out := map[int]Queue{}
	for at := range p.seen {
		out[at] = p.seen[at].Queue
	}
	return out
}

// look is what a party reads.
func (s *scene) look(at, batch int) (q seenQueue) {
	k := &s.keys[at]
	q.Read, q.Sealed, q.Last, q.revision, q.empty = true, k.sealed, k.last, k.revision, k.length() == 0
	for i, t := range k.tickets {
		if t.batch == batch {
			q.own, q.first, q.number = true, i == 0, t.n
		}
	}
	return q
}

// change is a compare-and-set of a party. If the revision is another, it reads.
func (s *scene) change(who, at int, blind bool, do func(*key)) {
	p := &s.parties[who]
	if p.seen[at].revision == s.keys[at].revision || blind {
		s.ends[at]++
		k := &s.keys[at]
		if k.revision == 0 {
			*k = key{last: uint64(s.ends[at]) * perRevision}
		}
		do(k)
		k.revision = s.ends[at]
	}
	p.seen[at] = s.look(at, p.batch)
}

// act makes the next move of a party.
func (r *queueRules) act(s *scene, who int) {
	p := &s.parties[who]
	mine := s.owner[p.batch-1] == who
	switch p.step {
	case "plan": // only one plan is stored; who comes late stops
		if s.planned {
			p.step = "stopped"
			return
		}
		s.planned, s.owner[p.batch-1], p.step = true, who, "enter"
		p.seen = [modelShards]seenQueue{}
		return
	case "adopt":
		if p.batch != 1 || s.planned {
			s.owner[p.batch-1], p.step = who, "enter"
			if s.running == p.batch { // a worker runs it, whoever owns the batch
				p.step = "run"
			}
		}
		return
	case "run":
		if s.running == p.batch {
			s.running, s.over[p.batch-1] = 0, true
		}
		p.step = "leave"
		return
	case "leave":
		for _, at := range p.path() {
			if p.seen[at] = s.look(at, p.batch); p.seen[at].own {
				s.change(who, at, false, func(k *key) { k.remove(p.batch) })
				return
			}
		}
		p.step = "stopped"
		return
	case "stopped":
		return
	}
	if p.step == "enter" && (!mine || s.over[p.batch-1]) { // it lost the batch
		p.step = "stopped"
		return
	}
	path, queues := p.path(), p.queues()
	switch step := r.enter(path, queues); step.Kind {
	case Look:
		p.seen[step.Shard] = s.look(step.Shard, p.batch)
	case Seal:
		s.change(who, step.Shard, r.blind, func(k *key) {
			if r.blind && !p.seen[step.Shard].own {
				k.tickets = [workspaceBatches]entry{}
			}
			k.sealed = true
		})
	case Change:
		r.join(s, who, path)
	case Renew:
		p.shards, p.seen = modelShards, [modelShards]seenQueue{}
	default:
		s.wrong = fmt.Sprintf("nobody knows what to do: %v", step)
	}
}

// join has a party take out its ticket, wait for it or go on under it. The queues of its path are one to it.
func (r *queueRules) join(s *scene, who int, path []int) {
	p, home := &s.parties[who], path[len(path)-1]
	own, waitsFor := -1, -1
	for _, at := range path {
		q := &p.seen[at]
		switch {
		case q.own && own < 0 && (at == home || !r.forgets):
			if own = at; !q.first && waitsFor < 0 {
				waitsFor = at
			}
		case q.own && own >= 0 && p.step != "reserve": // who reserves takes nothing out
			s.change(who, at, false, func(k *key) { k.remove(p.batch) })
			return
		case own < 0 && !q.empty && waitsFor < 0 && (at == home || !r.passes):
			waitsFor = at
		}
	}
	switch {
	case own < 0:
		queues := p.queues()
		s.change(who, home, false, func(k *key) {
			k.last = max(k.last, r.floor(path, queues)) + 1
			k.tickets[k.length()] = entry{p.batch, k.last}
		})
	case p.step == "reserve":
		p.step = "plan"
	case waitsFor >= 0:
		p.seen[waitsFor] = s.look(waitsFor, p.batch)
	default:
		number := p.seen[own].number
		switch {
		case s.running != 0:
			s.wrong = "two hold the workspace"
		case r.tokens && number <= s.token:
			s.wrong = "a token does not grow"
		}
		s.token, s.running, p.step = number, p.batch, "run"
	}
}

// sweep are the moves of the sweeper.
func (r *queueRules) sweep(s *scene) (out []scene) {
	for at := range s.keys {
		for _, t := range s.keys[at].tickets {
			if t.batch != 0 && s.over[t.batch-1] {
				n := *s
				n.ends[at]++
				n.keys[at].remove(t.batch)
				n.keys[at].revision = n.ends[at]
				out = append(out, n)
			}
		}
		k := &s.keys[at]
		if k.revision != 0 && k.length() == 0 && (!k.sealed || r.deletes) &&
			k.last <= uint64(k.revision+1)*perRevision {
			n := *s
			n.keys[at] = key{}
			out = append(out, n)
		}
	}
	return out
}

func (r *queueRules) explore(begin scene) (states int, err error) {
	seen, open := map[scene]bool{begin: true}, []scene{begin}
	for len(open) > 0 {
		s := open[len(open)-1]
		open = open[:len(open)-1]
		if s.wrong != "" {
			return len(seen), fmt.Errorf("%s: %+v", s.wrong, s)
		}
		all, moved := r.sweep(&s), false
		for who := range s.parties {
			if s.parties[who].batch == 0 {
				continue
			}
			n := s
			r.act(&n, who)
			all = append(all, n)
		}
		for _, n := range all {
			moved = moved || n != s
			if !seen[n] {
				seen[n] = true
				open = append(open, n)
			}
		}
		if !moved && s.over != s.wanted() {
			return len(seen), fmt.Errorf("%w: %+v", errors.New("somebody waits for ever"), s)
		}
	}
	return len(seen), nil
}

// wanted are the batches that somebody runs.
func (s *scene) wanted() (out [workspaceBatches]bool) {
	for _, p := range s.parties {
		if p.batch != 0 {
			out[p.batch-1] = true
		}
	}
	return out
}

// scenes are what is tried: which maps the parties have.
func scenes() map[string]scene {
	began := func(parties ...party) scene {
		s := scene{ends: [modelShards]int{7, 3, 0}} // former shards have higher revisions
		for i := range s.owner {
			s.owner[i] = -1
		}
		for i, p := range parties {
			if s.parties[i] = p; p.step == "enter" {
				s.owner[p.batch-1] = i
			}
		}
		return s
	}
	return map[string]scene{
		"three owners": began(party{batch: 1, shards: 1, step: "enter"}, party{batch: 2, shards: 2, step: "enter"},
			party{batch: 3, shards: 3, step: "enter"}),
		"planners, the later one with the newer map": began(party{batch: 1, shards: 1, step: "reserve"},
			party{batch: 1, shards: 2, step: "reserve"}, party{batch: 2, shards: 2, step: "enter"}),
		"planners of the two last maps": began(party{batch: 1, shards: 3, step: "reserve"},
			party{batch: 1, shards: 2, step: "reserve"}, party{batch: 2, shards: 1, step: "enter"}),
		"adopters": began(party{batch: 1, shards: 1, step: "enter"}, party{batch: 1, shards: 2, step: "adopt"},
			party{batch: 2, shards: 2, step: "enter"}, party{batch: 2, shards: 1, step: "adopt"}),
	}
}

// TestWorkspacesWhileShardsAreAdded: a workspace has one holder, tokens grow, and nobody waits for ever.
func TestWorkspacesWhileShardsAreAdded(t *testing.T) {
	t.Parallel()
	for name, begin := range scenes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states, err := theQueueRules.explore(begin)
			if err != nil {
				t.Fatal(err)
			}
			if states < 500 {
				t.Errorf("only %d states", states)
			}
			t.Logf("%d states", states)
		})
	}
}

// TestEachRuleOfWorkspacesIsNeeded: without any one of them something breaks.
func TestEachRuleOfWorkspacesIsNeeded(t *testing.T) {
	t.Parallel()
	const two, token, stuck = "two hold the workspace", "a token does not grow", "somebody waits for ever"
	// otherwise changes what is decided from.
	otherwise := func(change func(former bool, q *Queue)) func(*queueRules) {
		return func(r *queueRules) {
			r.enter = func(path []int, queues map[int]Queue) Step {
				for i, at := range path {
					q := queues[at]
					change(i < len(path)-1, &q)
					queues[at] = q
				}
				return Enter(path, queues)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*queueRules)
		scene  string
		says   string
	}{
		"the former queue is forgotten": {func(r *queueRules) {
			r.enter = func(path []int, queues map[int]Queue) Step { return Enter(path[len(path)-1:], queues) }
		}, "three owners", two},
		"an empty queue needs no seal": {otherwise(func(former bool, q *Queue) {
			q.Sealed = q.Sealed || former && q.Read && q.Last == 0
		}), "three owners", two},
		"a sealed queue need not be empty": {func(r *queueRules) { r.passes = true }, "three owners", two},
		"a sealed queue takes tickets": {otherwise(func(former bool, q *Queue) {
			q.Sealed = q.Sealed && former
		}), "three owners", two},
		"a seal that expects no revision": {func(r *queueRules) { r.blind = true }, "three owners", two},
		"a sealed key is deleted":         {func(r *queueRules) { r.deletes = true }, "three owners", two},
		"numbers begin anew": {func(r *queueRules) {
			r.floor = func([]int, map[int]Queue) uint64 { return 0 }
		}, "three owners", token},
		"an own ticket in a former queue does not count": {func(r *queueRules) { r.forgets = true },
			"planners, the later one with the newer map", stuck},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := theQueueRules
			r.tokens = c.says == token
			c.change(&r)
			if states, err := r.explore(scenes()[c.scene]); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("after %d states: %v, want %s", states, err, c.says)
			}
		})
	}
}
