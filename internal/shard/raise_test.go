package shard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The model has two operators who raise the number of shards to different numbers, and may stop anywhere; who stopped
// may begin again. Processes begin to serve what the map says, late.

type operator struct {
	want     int
	read     int // the version of the map that it has read, from 1; 0: none
	finished bool
}

type raising struct {
	versions     string // all maps there were, as text, so that the state can be compared
	made, served int
	operators    [2]operator
}

// raiseRules are the decisions. A test replaces one.
type raiseRules struct {
	next func(Raised, int) (Kind, error)
	// blind: the map is stored whatever its revision is.
	blind bool
}

// explore tries every order. maps has all maps by their text.
func (r *raiseRules) explore() (states int, most int, err error) {
	maps := map[string]Map{}
	text := func(m Map) string {
		s := fmt.Sprint(m) + "\n"
		maps[s] = m
		return s
	}
	begin := raising{versions: text(Map{}), made: 1, served: 1, operators: [2]operator{{want: 2}, {want: 3}}}
	seen, open := map[raising]bool{begin: true}, []raising{begin}
	for len(open) > 0 {
		s := open[len(open)-1]
		open = open[:len(open)-1]
		versions := slices.Collect(strings.Lines(s.versions))
		now := maps[versions[len(versions)-1]]
		most = max(most, now.Shards())
		if now.Shards() > s.made || now.Shards() > s.served {
			return len(seen), most, fmt.Errorf("%d shards are open, %d made and %d served", now.Shards(), s.made,
				s.served)
		}
		for i := range versions[1:] {
			was, is := maps[versions[i]], maps[versions[i+1]]
			if n := len(was.Epochs); len(is.Epochs) < n || !slices.Equal(is.Epochs[:n], was.Epochs) {
				return len(seen), most, fmt.Errorf("an epoch is lost: %v after %v", is, was)
			}
		}
		var all []raising
		if n := s; s.served < now.Served() && s.served < s.made {
			n.served++
			all = append(all, n)
		}
		for i := range s.operators {
			n := s
			o := &n.operators[i]
			switch {
			case o.finished:
			case o.read == 0: // it reads everything
				o.read = len(versions)
				all = append(all, n)
			default:
				m := maps[versions[o.read-1]]
				kind, err := r.next(Raised{m, s.made, s.served}, o.want)
				read := o.read
				o.read = 0
				store := func(m Map, err error) {
					if err == nil && (r.blind || read == len(versions)) {
						n.versions += text(m)
					}
				}
				switch {
				case err != nil, kind == Done:
					o.finished = true
				case kind == Make:
					n.made, o.read = max(n.made, o.want), read
				case kind == Announce:
					store(m.Prepare(o.want))
				case kind == Open:
					store(m.Open(clock(len(versions))))
				}
				if len(n.versions) < 1000 {
					all = append(all, n)
				}
			}
		}
		for _, n := range all {
			if !seen[n] {
				seen[n] = true
				open = append(open, n)
			}
		}
	}
	return len(seen), most, nil
}

// TestRaising: whoever raises, no epoch is lost, and no shard is used that is not there or that nobody serves.
func TestRaising(t *testing.T) {
	t.Parallel()
	r := raiseRules{next: Raise}
	states, most, err := r.explore()
	if err != nil {
		t.Fatal(err)
	}
	if most != 3 || states < 50 {
		t.Errorf("at most %d shards in %d states", most, states)
	}
	t.Logf("%d states", states)
}

// TestEachRuleOfRaisingIsNeeded: without any one of them something breaks.
func TestEachRuleOfRaisingIsNeeded(t *testing.T) {
	t.Parallel()
	instead := func(of, with Kind) raiseRules {
		return raiseRules{next: func(r Raised, want int) (Kind, error) {
			k, err := Raise(r, want)
			if k == of {
				k = with
			}
			if k == Open && r.Map.Next == 0 {
				k = Announce
			}
			return k, err
		}}
	}
	for name, c := range map[string]struct {
		rules raiseRules
		says  string
	}{
		"a map that is stored whatever there is": {raiseRules{next: Raise, blind: true}, "an epoch is lost"},
		"opened before it is served":             {instead(Await, Open), "are open"},
		"opened before it is made":               {instead(Make, Open), "are open"},
	} {
		t.Run(name, func(t *testing.T) {
			if states, _, err := c.rules.explore(); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("after %d states: %v, want %s", states, err, c.says)
			}
		})
	}
}
