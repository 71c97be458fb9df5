package shard

import (
	"cmp"
	"slices"
)

// Led is a stream with several replicas.
type Led struct {
	Stream string
	// Kind is its name in shard 0: what streams of one kind carry is the same part of each batch's work.
	Kind string
	// Leader is the server that leads it, and Servers all that may: the leader too.
	Leader  string
	Servers []string
}

// Move has another server lead a stream.
type Move struct {
	Stream string `json:"stream"`
	From   string `json:"from"`
	To     string `json:"to"`
}

// crowding is how unevenly leaders are spread: first those of each kind, and then all together. Each is the sum of the
// squares of how many a server leads, which is least when they are even.
type crowding struct{ kinds, all int }

func (c crowding) compare(other crowding) int {
	return cmp.Or(cmp.Compare(c.kinds, other.kinds), cmp.Compare(c.all, other.all))
}

// Spread decides which leaders move so that the streams of one kind are led by different servers, as far as there are
// some, and all servers lead equally many. It moves nothing that makes no difference, so a second call moves nothing.
func Spread(all []Led) (moves []Move) {
	type ofKind struct{ server, kind string }
	kinds, total := map[ofKind]int{}, map[string]int{}
	all = slices.Clone(all)
	slices.SortFunc(all, func(x, y Led) int { return cmp.Compare(x.Stream, y.Stream) })
	at := make([]string, len(all))
	for i, l := range all {
		at[i] = l.Leader
		kinds[ofKind{l.Leader, l.Kind}]++
		total[l.Leader]++
	}
	// gain is how the crowding changes when a stream goes to another server.
	gain := func(i int, to string) crowding {
		change := func(from, to int) int { return (to+1)*(to+1) - to*to - from*from + (from-1)*(from-1) }
		k := all[i].Kind
		return crowding{change(kinds[ofKind{at[i], k}], kinds[ofKind{to, k}]), change(total[at[i]], total[to])}
	}
	for {
		best, which, where := crowding{}, -1, ""
		for i, l := range all {
			for _, to := range slices.Sorted(slices.Values(l.Servers)) {
				if to == at[i] {
					continue
				}
				if g := gain(i, to); g.compare(best) < 0 {
					best, which, where = g, i, to
				}
			}
		}
		if which < 0 {
			break
		}
		k := all[which].Kind
		kinds[ofKind{at[which], k}]--
		kinds[ofKind{where, k}]++
		total[at[which]]--
		total[where]++
		at[which] = where
	}
	for i, l := range all {
		if at[i] != l.Leader {
			moves = append(moves, Move{l.Stream, l.Leader, at[i]})
		}
	}
	return moves
}
