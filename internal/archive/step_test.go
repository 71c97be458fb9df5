package archive

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The model has one batch that is over, two archivers that may stop anywhere, of which one begins again, and writers
// that come late. Every order of their moves is tried. Each move is one request to the store.

// The chains of the model's batch, and the streams on which they stand.
const (
	sub     = "sub"
	plan    = "batch"
	item    = "item"
	control = "control"
	reply   = "reply"
)

var streamOf = map[string]string{sub: "S", plan: "E", item: "E", control: "E", reply: "R"}

// note is a stored message. A fence has no content; a record is a fence that names an object.
type note struct {
	chain  string
	seq    uint64
	fence  bool
	object int // from 1; 0 for all that is no record
	before uint64
}

// history is what is stored in the model: by stream, and the objects, each with what it holds.
type history struct {
	streams map[string][]note
	ends    map[string]uint64
	objects []string
	parsed  map[string][]note // of the objects, for all states
	// accepted is all content that was ever stored.
	accepted []note
}

func (h *history) copy() *history {
	c := &history{streams: map[string][]note{}, ends: map[string]uint64{}, objects: slices.Clip(h.objects),
		parsed: h.parsed, accepted: slices.Clip(h.accepted)}
	for s, n := range h.streams {
		c.streams[s] = slices.Clip(n)
	}
	for s, n := range h.ends {
		c.ends[s] = n
	}
	return c
}

func (h *history) last(chain string) (out note) {
	for _, n := range h.streams[streamOf[chain]] {
		if n.chain == chain {
			out = n
		}
	}
	return out
}

// append is the primitive. expected -1 expects nothing, as foreign agents do.
func (h *history) append(n note, expected int) bool {
	s := streamOf[n.chain]
	if expected >= 0 && h.last(n.chain).seq != uint64(expected) {
		return false
	}
	h.ends[s]++
	n.seq = h.ends[s]
	h.streams[s] = append(h.streams[s], n)
	if !n.fence {
		h.accepted = append(h.accepted, n)
	}
	return true
}

func (h *history) delete(which func(note) bool) {
	for s, notes := range h.streams {
		h.streams[s] = slices.DeleteFunc(slices.Clone(notes), which)
	}
}

// archived is what the object holds that the batch chain names; nil if it names none.
func (h *history) archived() []note {
	for _, n := range h.streams["E"] {
		if n.object > 0 {
			text := h.objects[n.object-1]
			if h.parsed[text] == nil {
				h.parsed[text] = parseNotes(text)
			}
			return h.parsed[text]
		}
	}
	return nil
}

func written(notes []note) string {
	var b strings.Builder
	for _, n := range notes {
		fmt.Fprintf(&b, "%s %d\n", n.chain, n.seq)
	}
	return b.String()
}

func parseNotes(text string) (out []note) {
	for line := range strings.Lines(text) {
		var n note
		if _, err := fmt.Sscanf(line, "%s %d", &n.chain, &n.seq); err != nil {
			panic(err)
		}
		out = append(out, n)
	}
	return out
}

// after is how a reader gets the first message behind a sequence: of a chain, or of a whole stream if it is "".
func (h *history) after(stream, chain string, seq uint64) (note, bool) {
	find := func(notes []note) (note, bool) {
		i := slices.IndexFunc(notes, func(n note) bool {
			return streamOf[n.chain] == stream && n.seq > seq && (chain == "" || n.chain == chain)
		})
		if i < 0 {
			return note{}, false
		}
		return notes[i], true
	}
	for {
		n, ok := find(h.streams[stream])
		if !ok || !n.fence {
			return n, ok
		}
		if a := h.archived(); a != nil {
			return find(a)
		}
		seq = n.seq
	}
}

// seen is what an archiver reads, and content what it would put into an object.
func (h *history) seen() (s Seen, content []note) {
	chain := func(name string) Chain {
		c := Chain{Subject: name}
		for _, n := range h.streams[streamOf[name]] {
			if n.chain != name {
				continue
			}
			if n.object > 0 {
				s.Before = n.before
			}
			if c.End = n.seq; !n.fence {
				c.Last = n.seq
				content = append(content, n)
			}
		}
		return c
	}
	s.Over, s.Released = true, true
	s.Submission, s.Batch, s.Control, s.Reply = chain(sub), chain(plan), chain(control), chain(reply)
	s.Items = []Chain{chain(item)}
	slices.SortFunc(content, func(a, b note) int { return int(a.seq) - int(b.seq) })
	return s, content
}

// archiver is one of two processes. The steps that are left of what it has decided to do stand in todo.
type archiver struct {
	todo []string
}

// world is one state of the model.
type world struct {
	h    *history
	who  [2]archiver
	late int // which late writers have come, as bits
	// items says that the batch has some: nobody claims a call that was never queued.
	items bool
}

func (w *world) key() string {
	key := w.stored()
	for _, a := range w.who {
		for _, do := range a.todo {
			key = append(append(key, do...), '/')
		}
		key = append(key, '#')
	}
	return string(append(key, byte(w.late)))
}

// stored identifies what is in the store.
func (w *world) stored() []byte {
	key := make([]byte, 0, 512)
	for _, stream := range []string{"S", "E", "R"} {
		for _, n := range w.h.streams[stream] {
			key = append(key, n.chain[0], byte(n.seq), byte(n.object), byte(n.before))
			if n.fence {
				key = append(key, '|')
			}
		}
		key = append(key, '/', byte(w.h.ends[stream]))
	}
	for _, o := range w.h.objects {
		key = append(append(key, o...), '/')
	}
	return key
}

func (w *world) copy() *world {
	c := &world{h: w.h.copy(), late: w.late, items: w.items}
	for i, a := range w.who {
		c.who[i].todo = slices.Clone(a.todo)
	}
	return c
}

// latecomers are writers that read the batch before, were paused, and write now. Those whose write is accepted before
// the fences stand have written what belongs to the log.
var latecomers = []struct {
	chain    string
	expected int
	harm     string // what an accepted write does
}{
	{item, 0, "a second execution (I5)"},
	{plan, 0, "the batch is planned again (I1)"},
	{reply, 0, "a second answer (I1)"},
	{sub, 0, "the batch runs again (Q10)"},
	{control, -1, ""}, // anybody may write there, and means nothing any more
	{item, 2, ""},     // what was expected before the fences stood
	{plan, 1, ""},
}

// decision is the function that the model tries: [Next], or one that makes a mistake.
type decision func(*Seen) Step

// moves returns all states that may follow.
func (w *world) moves(next decision) (out []*world, err error) {
	for i := range w.who {
		if i == 0 && len(w.who[i].todo) > 0 { // it crashes, and begins again; the other one may stop for ever
			c := w.copy()
			c.who[i].todo = nil
			out = append(out, c)
		}
		c := w.copy()
		c.step(&c.who[i], next)
		out = append(out, c)
	}
	for i, l := range latecomers {
		if w.late&(1<<i) != 0 || l.chain == item && !w.items {
			continue
		}
		c := w.copy()
		c.late |= 1 << i
		if c.h.append(note{chain: l.chain}, l.expected) && l.harm != "" {
			return nil, fmt.Errorf("%s is accepted on %s", l.harm, l.chain)
		}
		if l.harm == "" { // those with harm are refused, and change nothing
			out = append(out, c)
		}
	}
	return out, nil
}

// step takes the next step of an archiver.
func (w *world) step(a *archiver, next decision) {
	if len(a.todo) == 0 { // it reads, and decides
		s, content := w.h.seen()
		switch n := next(&s); n.Kind {
		case Fence:
			for _, c := range n.Chains {
				a.todo = append(a.todo, fmt.Sprint("fence ", c.Subject, " ", c.End))
			}
		case Commit:
			text := strings.ReplaceAll(written(content), "\n", ";")
			a.todo = append(a.todo, "store "+text, fmt.Sprint("commit ", s.Batch.End, " ", n.Before, " ", text))
		case Bury:
			a.todo = append(a.todo, fmt.Sprint("bury ", s.Submission.End))
		case Delete:
			a.todo = append(a.todo, fmt.Sprint("events ", n.Before), fmt.Sprint("replies ", s.Reply.Last),
				fmt.Sprint("submission ", s.Submission.Last))
		}
		return
	}
	do, arg, _ := strings.Cut(a.todo[0], " ")
	a.todo = a.todo[1:]
	number := func(text string) (n int) {
		if _, err := fmt.Sscan(text, &n); err != nil {
			panic(err)
		}
		return n
	}
	ok := true
	switch do {
	case "fence":
		chain, last, _ := strings.Cut(arg, " ")
		ok = w.h.append(note{chain: chain, fence: true}, number(last))
	case "store":
		if text := strings.ReplaceAll(arg, ";", "\n"); !slices.Contains(w.h.objects, text) {
			w.h.objects = append(w.h.objects, text)
		}
	case "commit":
		last, rest, _ := strings.Cut(arg, " ")
		before, text, _ := strings.Cut(rest, " ")
		object := 1 + slices.Index(w.h.objects, strings.ReplaceAll(text, ";", "\n"))
		ok = w.h.append(note{chain: plan, fence: true, object: object, before: uint64(number(before))}, number(last))
	case "bury":
		ok = w.h.append(note{chain: sub, fence: true}, number(arg))
	case "events":
		w.h.delete(func(n note) bool { return streamOf[n.chain] == "E" && n.seq < uint64(number(arg)) })
	case "replies":
		w.h.delete(func(n note) bool { return n.chain == reply && n.seq <= uint64(number(arg)) })
	case "submission":
		w.h.delete(func(n note) bool { return n.chain == sub && n.seq == uint64(number(arg)) })
	}
	if !ok { // it leaves the batch, and reads it again later
		a.todo = nil
	}
}

// check says what is wrong with a state: from wherever a reader goes on, it gets what was accepted next.
func (w *world) check() error {
	first := uint64(1 << 62) // of the fences on the stream of events
	for _, n := range w.h.streams["E"] {
		if n.fence {
			first = min(first, n.seq)
		}
	}
	archived := w.h.archived()
	// certain is what every reader must get: not what somebody wrote when all was archived.
	certain := func(n note) bool {
		return archived == nil || slices.Contains(archived, n) || streamOf[n.chain] == "E" && n.seq < first ||
			n.chain == sub || n.chain == reply
	}
	for _, of := range []struct{ stream, chain string }{{"S", sub}, {"R", reply}, {"E", ""}, {"E", plan}, {"E", item},
		{"E", control}} {
		for seq := uint64(0); seq <= w.h.ends[of.stream]; seq++ {
			got, ok := w.h.after(of.stream, of.chain, seq)
			for _, n := range w.h.accepted {
				if streamOf[n.chain] != of.stream || of.chain != "" && n.chain != of.chain || n.seq <= seq {
					continue
				}
				if certain(n) && (!ok || got.seq > n.seq) {
					return fmt.Errorf("behind %d of %s%s a reader gets %v, %t and not %v", seq, of.stream, of.chain,
						got, ok, n)
				}
			}
		}
	}
	return nil
}

// explore tries every order, and returns how many states there are and what the first wrong one is. Without reading it
// looks for late writes that are accepted alone.
func explore(next decision, extra func(*history), reading bool) (states int, ended bool, err error) {
	first := &world{h: &history{streams: map[string][]note{}, ends: map[string]uint64{},
		parsed: map[string][]note{}}}
	for _, chain := range []string{sub, plan, item, reply} {
		if !first.h.append(note{chain: chain}, 0) {
			return 0, false, errors.New("the model does not begin")
		}
	}
	if extra != nil {
		extra(first.h)
	}
	first.items = first.h.last(item).seq > 0
	seen, open, checked := map[string]bool{first.key(): true}, []*world{first}, map[string]bool{}
	for len(open) > 0 {
		w := open[len(open)-1]
		open = open[:len(open)-1]
		store := string(append(w.stored(), byte(w.late)))
		if reading && !checked[store] {
			err = w.check()
		}
		if checked[store] = true; err != nil {
			return len(seen), ended, fmt.Errorf("%w\n%v %q %v", err, w.h.streams, w.h.objects, w.who)
		}
		all, err := w.moves(next)
		if err != nil {
			return len(seen), ended, fmt.Errorf("%w\n%v %q %v", err, w.h.streams, w.h.objects, w.who)
		}
		for _, n := range all {
			if k := n.key(); !seen[k] {
				seen[k] = true
				open = append(open, n)
			}
		}
		s, _ := w.h.seen()
		ended = ended || Next(&s).Kind == Done
	}
	return len(seen), ended, nil
}

// shapes are batches of other shapes than the first one, which has an item.
var shapes = map[string]func(*history){
	"with an item": nil,
	"canceled":     func(h *history) { h.append(note{chain: control}, 0) },
	"without items, as one that was refused": func(h *history) {
		h.delete(func(n note) bool { return n.chain == item })
		h.accepted = slices.DeleteFunc(h.accepted, func(n note) bool { return n.chain == item })
	},
}

// TestArchiving: whatever two archivers do, crash or not, no late write does harm, and readers read on.
func TestArchiving(t *testing.T) {
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states, ended, err := explore(Next, shape, true)
			if err != nil {
				t.Fatal(err)
			}
			if !ended || states < 500 {
				t.Errorf("of %d states none is the end (%t)", states, ended)
			}
			t.Logf("%d states", states)
		})
	}
}

// TestEachFenceIsNeeded: a decision that makes a mistake breaks something.
func TestEachFenceIsNeeded(t *testing.T) {
	without := func(chain string) decision {
		return func(s *Seen) Step {
			n := Next(s)
			n.Chains = slices.DeleteFunc(n.Chains, func(c Chain) bool { return c.Subject == chain })
			if n.Kind == Fence && len(n.Chains) == 0 {
				return Step{Kind: Commit, Before: max(s.firstFence(), s.Batch.End+1)}
			}
			return n
		}
	}
	const reads = "a reader gets"
	for name, c := range map[string]struct {
		next  decision
		shape string
		says  string
	}{
		"no fence of items": {without(item), "with an item", "second execution"},
		"an older fence is enough": {func(s *Seen) Step {
			n := Next(s)
			n.Chains = slices.DeleteFunc(n.Chains, func(c Chain) bool { return c.fence() > 0 })
			if n.Kind == Fence && len(n.Chains) == 0 {
				return Step{Kind: Commit, Before: s.firstFence()}
			}
			return n
		}, "with an item", reads},
		"no fence of replies":  {without(reply), "with an item", "second answer"},
		"no fence of requests": {without(control), "canceled", reads},
		"no fence at all":      {without(control), "without items, as one that was refused", reads},
		"the object before the fences": {func(s *Seen) Step {
			if s.Before == 0 {
				return Step{Kind: Commit, Before: s.Batch.End + 1}
			}
			return Next(s)
		}, "with an item", "is accepted on"},
		"deleted before the record": {func(s *Seen) Step {
			n := Next(s)
			if n.Kind == Commit {
				return Step{Kind: Delete, Before: s.Items[0].End}
			}
			return n
		}, "with an item", reads},
		"no record behind the submission": {func(s *Seen) Step {
			n := Next(s)
			if n.Kind == Bury {
				return Step{Kind: Delete, Before: s.Before}
			}
			return n
		}, "with an item", "runs again"},
		"all before the record is deleted": {func(s *Seen) Step {
			n := Next(s)
			if n.Kind == Delete {
				n.Before = s.Batch.End
			}
			return n
		}, "with an item", "second execution"},
	} {
		t.Run(name, func(t *testing.T) {
			states, _, err := explore(c.next, shapes[c.shape], c.says == reads)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("after %d states: %v, want %s", states, err, c.says)
			}
		})
	}
}
