package shard

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// The model has one batch id whose slot goes from shard 0 to 1 and then to 2, while somebody raises the number of
// shards twice. Agents submit under the id, each with a map of any age, and may stop anywhere; dispatchers take what is
// stored, with maps of any age; time passes, and messages that are too old go. Every order of all that is tried. Each
// move is one request to the store.

// The model's clock counts in half graces. Messages are kept for as long as a grace, which is the least that is safe.
const (
	tick                  = Grace / 2
	graceTick             = 2
	keptTicks             = 2
	firstRaise, lastRaise = 3, 5 // the first one is opened then; the second one between
	lastTick              = lastRaise + graceTick + keptTicks + 1
)

func clock(n int) time.Time { return time.Unix(0, 0).Add(time.Duration(n) * tick) }

// rules are the decisions. A test replaces one.
type rules struct {
	agents int // how many submit; beside one alone there is a reader
	path   func(m Map, s Slot, now time.Time, kept time.Duration) []int
	submit func(path []int, stands map[int]Stand) Step
	find   func(path []int, stands map[int]Stand, fresh bool) Step
	take   func(m Map, read time.Time, s Slot, shard int, stored, received time.Time) Step
	// current says that a reader need not read the map again.
	current func(m Map, read, now time.Time) bool
}

var theRules = rules{2, Map.Path, Submit, Find, Take, Map.Current}

const modelShards = 3

// moving is a slot that is in another shard with each of the model's numbers of shards.
var moving, numbers = func() (Slot, []int) {
	for s := range Slot(Slots) {
		if s.Shard(2) == 1 && s.Shard(3) == 2 {
			return s, []int{1, 2, 3}
		}
	}
	panic("no slot moves twice")
}()

// stored is what stands under the id in a shard.
type stored struct {
	stand Stand
	at    int  // when it was stored
	taken bool // a dispatcher has decided about it
	ran   bool
}

// agent submits the batch. read is how old its map is. It may make no more moves: then it has stopped.
type agent struct {
	on       bool
	read     int
	path     [modelShards]bool
	stands   [modelShards]Stand
	accepted int // the shard where it was accepted, from 1
}

// world is a state of the model.
type world struct {
	now    int
	opened [2]int // when the two raises were opened
	shards [modelShards]stored
	agents [2]agent
	runs   [lastTick + 1]int // of submissions that were stored at a time
	reader agent
	fresh  bool // the reader's map
	alone  bool // the reader sees no fence: it takes the one shard of its path for the only one
}

// mapAt is the map as it was at a time. Each raise is announced for a grace before it is opened.
func (w *world) mapAt(read int) Map {
	m := Map{}
	for i, at := range w.opened {
		if at == 0 {
			break
		}
		var err error
		if at > read {
			if at-graceTick <= read {
				m, err = m.Prepare(numbers[i+1])
			}
			if err != nil {
				panic(err)
			}
			break
		}
		if m, err = m.Prepare(numbers[i+1]); err == nil {
			m, err = m.Open(clock(at))
		}
		if err != nil {
			panic(err)
		}
	}
	return m
}

func (a *agent) steps() (path []int, stands map[int]Stand) {
	stands = map[int]Stand{}
	for at, on := range a.path {
		if on {
			path = append(path, at)
			stands[at] = a.stands[at]
		}
	}
	return path, stands
}

func (w *world) begin(r *rules, read int) (a agent) {
	a.on, a.read = true, read
	for _, at := range r.path(w.mapAt(read), moving, clock(w.now), keptTicks*tick) {
		a.path[at] = true
	}
	return a
}

// put appends something that expects nothing, and returns what stands there.
func (w *world) put(at int, what Stand) Stand {
	if w.shards[at].stand == "" {
		w.shards[at] = stored{stand: what, at: w.now}
	}
	return w.shards[at].stand
}

// moves are the states to which one request leads, or the passing of time.
func (w *world) moves(r *rules) (out []*world, err error) {
	next := func(change func(*world)) {
		n := *w
		change(&n)
		out = append(out, &n)
	}
	switch {
	case w.opened[0] == 0 && w.now == firstRaise:
		next(func(n *world) { n.opened[0] = n.now })
	case w.opened[0] != 0 && w.opened[1] == 0 && w.now <= lastRaise:
		next(func(n *world) { n.opened[1] = n.now })
	}
	for i := range w.agents[:r.agents] {
		a := &w.agents[i]
		if !a.on && a.accepted == 0 {
			for _, read := range w.reads() {
				next(func(n *world) { n.agents[i] = n.begin(r, read) })
			}
		}
		if !a.on {
			continue
		}
		path, stands := a.steps()
		switch step := r.submit(path, stands); step.Kind {
		case Fence:
			next(func(n *world) { n.agents[i].stands[step.Shard] = n.put(step.Shard, Moved) })
		case Store:
			next(func(n *world) { n.agents[i].stands[step.Shard] = n.put(step.Shard, Taken) })
		case Answer:
			if a.stands[step.Shard] != Taken {
				return nil, errors.New("it was accepted, and is not stored")
			}
			next(func(n *world) { n.agents[i] = agent{accepted: step.Shard + 1} })
		case Renew:
			next(func(n *world) { n.agents[i] = n.begin(r, n.now) })
		default:
			return nil, fmt.Errorf("an agent does not know what to do: %v", step)
		}
	}
	for at := range w.shards {
		s := &w.shards[at]
		if s.stand != Taken || s.taken {
			continue
		}
		for read := range w.now + 1 {
			switch step := r.take(w.mapAt(read), clock(read), moving, at, clock(s.at), clock(w.now)); step.Kind {
			case Run:
				next(func(n *world) {
					n.shards[at].taken, n.shards[at].ran = true, true
					n.runs[s.at]++
				})
			case Refuse:
				next(func(n *world) { n.shards[at].taken = true })
			case Renew: // with the newest map there is an answer, or there is one soon
				if read == w.now && w.now > s.at {
					return nil, fmt.Errorf("a dispatcher of shard %d reads the map for ever", at)
				}
			default:
				return nil, fmt.Errorf("a dispatcher does not know what to do: %v", step)
			}
		}
	}
	if r.agents == 1 {
		if err := w.search(r, next); err != nil {
			return nil, err
		}
	}
	if w.now < lastTick && !w.late() && (w.now != firstRaise || w.opened[0] != 0) {
		next(func(n *world) {
			n.now++
			for at := range n.shards {
				if s := n.shards[at]; s.stand != "" && n.now > s.at+keptTicks {
					n.shards[at] = stored{}
					n.reader = agent{}
				}
			}
		})
	}
	return out, nil
}

// search moves a reader who begins when an agent was accepted, with a map of any age.
func (w *world) search(r *rules, next func(func(*world))) error {
	known := false
	for at, s := range w.shards { // what is late is answered where it stands
		left := append(w.opened[:], 0)[at]
		known = known || s.stand == Taken && (left == 0 || s.at <= left+graceTick)
	}
	if !w.reader.on {
		if known {
			for read := range w.now + 1 {
				next(func(n *world) {
					n.reader, n.fresh = n.begin(r, read), r.current(w.mapAt(read), clock(read), clock(w.now))
					path, _ := n.reader.steps()
					n.alone = n.fresh && len(path) == 1
				})
			}
		}
		return nil
	}
	path, stands := w.reader.steps()
	switch step := r.find(path, stands, w.fresh); step.Kind {
	case Look:
		next(func(n *world) {
			if n.reader.stands[step.Shard] = n.shards[step.Shard].stand; n.reader.stands[step.Shard] == "" ||
				n.alone && n.reader.stands[step.Shard] == Moved {
				n.reader.stands[step.Shard] = Nothing
			}
		})
	case Renew:
		next(func(n *world) { n.reader, n.fresh, n.alone = n.begin(r, n.now), true, false })
	case Answer:
		next(func(n *world) { n.reader = agent{} })
	case None:
		return errors.New("a batch that was accepted is not found")
	default:
		return fmt.Errorf("a reader does not know what to do: %v", step)
	}
	return nil
}

// reads are times at which different maps were read.
func (w *world) reads() (out []int) {
	out = []int{0}
	for _, at := range w.opened {
		if at != 0 && at != out[len(out)-1] {
			out = append(out, at)
		}
	}
	return out
}

// late says that a submission would go before a dispatcher has looked at it.
func (w *world) late() bool {
	for _, s := range w.shards {
		if s.stand == Taken && !s.taken && w.now == s.at+keptTicks {
			return true
		}
	}
	return false
}

func (w *world) check() error {
	for first, n := range w.runs {
		for again := first; again <= min(first+keptTicks, lastTick); again++ {
			if n > 1 || again > first && n > 0 && w.runs[again] > 0 {
				return fmt.Errorf("it runs twice: stored at %d and %d", first, again)
			}
		}
	}
	return nil
}

func (a *agent) less(b *agent) bool {
	if a.accepted != b.accepted || a.read != b.read {
		return a.accepted < b.accepted || a.accepted == b.accepted && a.read < b.read
	}
	return fmt.Sprint(*a) < fmt.Sprint(*b)
}

func (r rules) explore() (states int, err error) {
	first := world{}
	seen, open := map[world]bool{first: true}, []*world{&first}
	for len(open) > 0 {
		w := open[len(open)-1]
		open = open[:len(open)-1]
		err := w.check()
		var all []*world
		if err == nil {
			all, err = w.moves(&r)
		}
		if err != nil {
			return len(seen), fmt.Errorf("%w: %+v", err, *w)
		}
		for _, n := range all {
			if n.agents[0].less(&n.agents[1]) { // which of them is which does not matter
				n.agents[0], n.agents[1] = n.agents[1], n.agents[0]
			}
			if !seen[*n] {
				seen[*n] = true
				open = append(open, n)
			}
		}
	}
	return len(seen), nil
}

// TestSubmissionsWhileShardsAreAdded: an id runs once, and what was accepted is found, whoever has which map.
func TestSubmissionsWhileShardsAreAdded(t *testing.T) {
	t.Parallel()
	for agents := range 2 {
		r := theRules
		r.agents = agents + 1
		states, err := r.explore()
		if err != nil {
			t.Fatal(err)
		}
		if states < 10_000 {
			t.Errorf("only %d states", states)
		}
		t.Logf("%d states with %d who submit", states, r.agents)
	}
}

// TestEachRuleOfSubmissionsIsNeeded: without any one of them something breaks.
func TestEachRuleOfSubmissionsIsNeeded(t *testing.T) {
	t.Parallel()
	const twice = "it runs twice"
	home := func(path []int) []int { return path[len(path)-1:] }
	for name, c := range map[string]struct {
		change func(*rules)
		says   string
	}{
		"no fence": {func(r *rules) {
			r.submit = func(path []int, stands map[int]Stand) Step { return Submit(home(path), stands) }
		}, twice},
		"a fence in the last former shard alone": {func(r *rules) {
			r.submit = func(path []int, stands map[int]Stand) Step {
				return Submit(path[max(0, len(path)-2):], stands)
			}
		}, twice},
		"stored before the fences": {func(r *rules) {
			r.submit = func(path []int, stands map[int]Stand) Step {
				if at := home(path)[0]; stands[at] == Unread {
					return Step{Store, at}
				}
				return Submit(path, stands)
			}
		}, twice},
		"a fence counts as the batch": {func(r *rules) {
			r.submit = func(path []int, stands map[int]Stand) Step {
				for _, at := range path {
					if stands[at] == Moved {
						return Step{Answer, at}
					}
				}
				return Submit(path, stands)
			}
		}, "it was accepted, and is not stored"},
		"the former shards are forgotten without the grace": {func(r *rules) {
			r.path = func(m Map, s Slot, now time.Time, kept time.Duration) []int {
				return m.Path(s, now.Add(Grace), kept)
			}
		}, twice},
		"late submissions run": {func(r *rules) {
			r.take = func(m Map, read time.Time, s Slot, shard int, stored, received time.Time) Step {
				if step := Take(m, read, s, shard, stored, received); step.Kind != Refuse {
					return step
				}
				return Step{Run, shard}
			}
		}, twice},
		"dispatchers trust an old map": {func(r *rules) {
			r.take = func(m Map, _ time.Time, s Slot, shard int, stored, received time.Time) Step {
				return Take(m, received.Add(time.Hour), s, shard, stored, received)
			}
		}, twice},
		"readers look into the home alone": {func(r *rules) {
			r.agents = 1
			r.find = func(path []int, stands map[int]Stand, fresh bool) Step {
				return Find(home(path), stands, fresh)
			}
		}, "is not found"},
		"readers trust an old map": {func(r *rules) {
			r.agents = 1
			r.find = func(path []int, stands map[int]Stand, _ bool) Step { return Find(path, stands, true) }
		}, "is not found"},
		"readers do not look for a raise that is announced": {func(r *rules) {
			r.agents = 1
			r.current = func(m Map, read, now time.Time) bool { return now.Sub(read) <= freshFor }
		}, "is not found"},
		"readers trust a map for too long": {func(r *rules) {
			r.agents = 1
			r.current = func(m Map, read, now time.Time) bool { return m.Current(read.Add(Grace), now) }
		}, "is not found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := theRules
			c.change(&r)
			if states, err := r.explore(); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("after %d states: %v, want %s", states, err, c.says)
			}
		})
	}
}
