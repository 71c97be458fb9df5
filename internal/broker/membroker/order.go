package membroker

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// order puts what a client has sent since it was blocked last into an order that does not depend on which of its
// goroutines ran first. Messages that want no answer keep theirs, and so do requests on one subject. Requests on two
// subjects may change places: nats-server promises nothing about the order in which it takes those up. Subscriptions
// come first, so that no answer is missed, and then their ends, so that nothing is sent to who has gone; a PING comes
// last, since its PONG says that all before it was done.
func (c *conn) order() {
	fresh := c.in[c.ordered:]
	c.ordered = len(c.in)
	if len(fresh) < 2 {
		return
	}
	type keyed struct {
		orderKey
		op *op
	}
	all := make([]keyed, len(fresh))
	for i, o := range fresh {
		all[i] = keyed{c.orderKey(o), o}
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return a.compare(b.orderKey) })
	for i, k := range all {
		fresh[i] = k.op
	}
}

// orderKey has of subscriptions their number too: nats.go makes them anew, in any order, when it connects again.
type orderKey struct {
	rank, sid     int
	subject, data string
}

// compare compares texts without random names. Those are looked for only where it comes to that.
func (k orderKey) compare(other orderKey) int {
	if d := cmp.Compare(k.rank, other.rank); d != 0 {
		return d
	}
	if d := compareMasked(k.subject, other.subject); d != 0 {
		return d
	}
	if d := cmp.Compare(k.sid, other.sid); d != 0 {
		return d
	}
	return compareMasked(k.data, other.data)
}

func compareMasked(a, b string) int {
	if a == b {
		return 0
	}
	return strings.Compare(mask(a), mask(b))
}

func (c *conn) orderKey(o *op) orderKey {
	switch o.verb {
	case opSub:
		return orderKey{rank: 0, subject: o.subject, sid: sidNumber(o.sid)}
	case opPub, opHPub:
		if o.reply == "" {
			return orderKey{rank: 2}
		}
		// Reads change nothing for each other. Pulls of one consumer do: the first is served first.
		if strings.HasPrefix(o.subject, "$JS.API.STREAM.MSG.GET.") ||
			strings.HasPrefix(o.subject, "$JS.API.STREAM.INFO.") || strings.HasPrefix(o.subject, prefixDirect) {
			return orderKey{rank: 2, subject: o.subject, data: string(o.data)}
		}
		return orderKey{rank: 2, subject: o.subject}
	case opUnsub:
		i := slices.IndexFunc(c.subs, func(s *sub) bool { return s.sid == o.sid })
		if i < 0 {
			return orderKey{rank: 1, sid: sidNumber(o.sid)}
		}
		return orderKey{rank: 1, subject: c.subs[i].subject, sid: sidNumber(o.sid)}
	case opPing, opPong:
		return orderKey{rank: 4}
	}
	return orderKey{rank: 5}
}

// sidNumber is that of a subscription of nats.go; 0 for what another client names otherwise.
func sidNumber(sid string) int {
	n, err := strconv.Atoi(sid)
	if err != nil {
		return 0
	}
	return n
}

// drawn are random names: UUIDs, those of package nuid, those of consumers that watch a bucket, the ends of inboxes,
// and sums of what has random names in it.
var drawn = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|` +
	`\b[0-9A-Za-z]{22}(?:\.[0-9A-Za-z]{8}\b)?|` +
	`\b[0-9a-f]{64}\b|` +
	`\b((?:KV|OBJ)_[0-9A-Za-z_-]+\.)[0-9A-Za-z]{8}\b`)

// mask takes random names out of a text.
func mask(text string) string { return drawn.ReplaceAllString(text, "${1}?") }
