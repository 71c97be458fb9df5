package shard

import (
	"cmp"
	"maps"
	"slices"
)

// Led is a stream with several replicas.
type Led struct {
	Stream string
	// Shard is whose it is, and Kind its name in shard 0: what streams of one kind carry is the same part of each
	// batch's work.
	Shard int
	Kind  string
	// Leader is the server that leads it, and Servers all that may: the leader too.
	Leader  string
	Servers []string
}

// Consumer is one that the streams keep for dispatchers or workers, with several replicas.
type Consumer struct {
	Stream, Name string
	// Leader is the server that leads it.
	Leader string
}

// Move has another server lead a stream or, where it names one, a consumer of it.
type Move struct {
	Stream   string `json:"stream"`
	Consumer string `json:"consumer,omitempty"`
	From     string `json:"from"`
	To       string `json:"to"`
}

// crowding is how unevenly leaders are spread: first those of each kind, and then all together. Each is the sum of the
// squares of how many a server leads, which is least when they are even.
type crowding struct{ kinds, all int }

func (c crowding) compare(other crowding) int {
	return cmp.Or(cmp.Compare(c.kinds, other.kinds), cmp.Compare(c.all, other.all))
}

// Spread decides which leaders move so that the streams of one kind are led by different servers, as far as there are
// some, and all servers lead equally many. Where there are as many shards as servers, one server leads all of a shard
// ([Homes]). It moves nothing that makes no difference, so a second call moves nothing.
func Spread(all []Led) (moves []Move) {
	type ofKind struct{ server, kind string }
	kinds, total := map[ofKind]int{}, map[string]int{}
	all = slices.Clone(all)
	slices.SortFunc(all, func(x, y Led) int { return cmp.Compare(x.Stream, y.Stream) })
	at, settled := make([]string, len(all)), make([]bool, len(all))
	homes, everywhere := homesOf(all)
	for i, l := range all {
		at[i] = l.Leader
		if home, ok := homes[l.Shard]; ok && everywhere[l.Kind] {
			at[i], settled[i] = home, true
		}
		kinds[ofKind{at[i], l.Kind}]++
		total[at[i]]++
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
				if to == at[i] || settled[i] {
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
			moves = append(moves, Move{Stream: l.Stream, From: l.Leader, To: at[i]})
		}
	}
	return moves
}

// After is who leads the streams once the moves are made.
func After(all []Led, moves []Move) []Led {
	all = slices.Clone(all)
	for _, m := range moves {
		if i := slices.IndexFunc(all, func(l Led) bool { return l.Stream == m.Stream }); i >= 0 {
			all[i].Leader = m.To
		}
	}
	return all
}

// Join decides which leaders of consumers move so that each consumer is led where its stream is. So a message goes from
// its stream to who asked for it without a third server.
func Join(all []Led, consumers []Consumer) (moves []Move) {
	leads := map[string]string{}
	for _, l := range all {
		leads[l.Stream] = l.Leader
	}
	for _, c := range consumers {
		if to := leads[c.Stream]; to != "" && to != c.Leader {
			moves = append(moves, Move{c.Stream, c.Name, c.Leader, to})
		}
	}
	return moves
}

// Homes are the shards of which one server leads all streams of the kinds that every shard has. A process that serves
// such a shard, and is connected to that server, has the other servers pass on nothing of what it stores and reads.
func Homes(all []Led) map[int]string {
	_, everywhere := shardsOf(all)
	homes, apart := map[int]string{}, map[int]bool{}
	for _, l := range all {
		if !everywhere[l.Kind] {
			continue
		}
		if home, ok := homes[l.Shard]; ok && home != l.Leader {
			apart[l.Shard] = true
		}
		homes[l.Shard] = l.Leader
	}
	for n := range apart {
		delete(homes, n)
	}
	return homes
}

// shardsOf returns the shards, and the kinds of which each has a stream.
func shardsOf(all []Led) (shards map[int]bool, everywhere map[string]bool) {
	shards, everywhere = map[int]bool{}, map[string]bool{}
	times := map[string]int{}
	for _, l := range all {
		shards[l.Shard] = true
		times[l.Kind]++
	}
	for kind, n := range times {
		everywhere[kind] = n == len(shards)
	}
	return shards, everywhere
}

// homesOf decides which server leads all of which shard: as many shards a server as each can have, and none where there
// are fewer shards than servers. A shard goes where most of its streams are led. Those that are left over, beyond a
// multiple of the servers, have no home.
func homesOf(all []Led) (homes map[int]string, everywhere map[string]bool) {
	type place struct {
		shard  int
		server string
	}
	shards, everywhere := shardsOf(all)
	streams, may, leads, servers := map[int]int{}, map[place]int{}, map[place]int{}, map[string]int{}
	for _, l := range all {
		if !everywhere[l.Kind] {
			continue
		}
		streams[l.Shard]++
		leads[place{l.Shard, l.Leader}]++
		for _, server := range l.Servers {
			may[place{l.Shard, server}]++
			servers[server] = 0
		}
	}
	maps.DeleteFunc(may, func(p place, n int) bool { return n < streams[p.shard] })
	places := slices.SortedFunc(maps.Keys(may), func(x, y place) int {
		return cmp.Or(cmp.Compare(leads[y], leads[x]), cmp.Compare(x.shard, y.shard), cmp.Compare(x.server, y.server))
	})
	homes = map[int]string{}
	for _, p := range places {
		if _, ok := homes[p.shard]; !ok && servers[p.server] < len(shards)/len(servers) {
			homes[p.shard] = p.server
			servers[p.server]++
		}
	}
	return homes, everywhere
}
