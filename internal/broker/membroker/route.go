package membroker

import (
	"fmt"
	"slices"
	"strings"
)

// message is one on its way through the server.
type message struct {
	// subject is what the receiver reads. to is where it is sent, when that is another one: the inbox of a pull.
	subject, to string
	reply       string
	hdr, data   []byte // hdr is the block as it stands on the wire, or empty
}

func (m *message) target() string {
	if m.to != "" {
		return m.to
	}
	return m.subject
}

// sub is a subscription of a client.
type sub struct {
	c       *conn
	subject string
	tokens  []string
	queue   string
	sid     string
	got     int
	max     int // 0: no end
}

func (c *conn) subscribe(o *op) {
	if !validFilter(o.subject) {
		c.refuse(errSubject)
		return
	}
	i := slices.IndexFunc(c.subs, func(s *sub) bool { return s.sid == o.sid })
	if i >= 0 { // nats-server keeps the first one
		return
	}
	c.subs = append(c.subs, &sub{
		c: c, subject: o.subject, tokens: strings.Split(o.subject, "."), queue: o.queue, sid: o.sid,
	})
	c.s.js.interestCame()
}

func (c *conn) unsubscribe(o *op) {
	i := slices.IndexFunc(c.subs, func(s *sub) bool { return s.sid == o.sid })
	if i < 0 {
		return
	}
	if s := c.subs[i]; o.max > s.got {
		s.max = o.max
		return
	}
	c.subs = slices.Delete(c.subs, i, i+1)
	c.s.js.interestGone()
}

// give sends a message to a subscription.
func (s *sub) give(m *message) {
	hdr, data := m.hdr, m.data
	if lens := s.c.s.opts.Lens; lens != nil {
		hdr, data = lens(s.c.party.name, false, m.subject, hdr, data)
	}
	head, body := m.subject+" "+s.sid+" ", make([]byte, 0, len(hdr)+len(data)+2)
	if m.reply != "" {
		head += m.reply + " "
	}
	body = append(append(append(body, hdr...), data...), "\r\n"...)
	verb := "MSG"
	if len(hdr) > 0 {
		verb = "HMSG"
		head += fmt.Sprintf("%d ", len(hdr))
	}
	head = fmt.Sprintf("%s %s%d\r\n", verb, head, len(hdr)+len(data))
	s.c.send(verb, m.target(), append([]byte(head), body...))
	if s.got++; s.max > 0 && s.got >= s.max {
		s.c.subs = slices.DeleteFunc(s.c.subs, func(o *sub) bool { return o == s })
		s.c.s.js.interestGone()
	}
}

// publish performs the publish of a client: the JetStream of the server takes its part, subscribers get theirs, and the
// publisher is told when it waits for an answer and nobody listens.
func (s *Server) publish(from *conn, m *message) {
	taken := s.js.take(from, m)
	if heard := s.route(from, m); !taken && !heard && m.reply != "" && from.noResponders {
		s.noResponders(from, m)
	}
}

// noResponders tells a publisher that nobody listens.
func (s *Server) noResponders(c *conn, m *message) {
	tokens := strings.Split(m.reply, ".")
	for _, sub := range c.subs {
		if matches(tokens, sub.tokens) {
			sub.give(&message{subject: m.reply, hdr: []byte("NATS/1.0 503\r\n\r\n")})
			return
		}
	}
}

// route sends a message to all subscriptions that match, one of each queue group. from is nil when the server sends it.
func (s *Server) route(from *conn, m *message) (heard bool) {
	tokens := strings.Split(m.target(), ".")
	type group struct {
		queue, subject string
	}
	var groups []group
	members := map[group][]*sub{}
	for _, c := range slices.Clone(s.conns) {
		if c == from && !c.echo {
			continue
		}
		for _, sub := range slices.Clone(c.subs) {
			if !matches(tokens, sub.tokens) {
				continue
			}
			heard = true
			if sub.queue == "" {
				sub.give(m)
				continue
			}
			g := group{sub.queue, ""}
			if len(members[g]) == 0 {
				groups = append(groups, g)
			}
			members[g] = append(members[g], sub)
		}
	}
	for _, g := range groups {
		one := members[g]
		one[s.rng.IntN(len(one))].give(m)
	}
	return heard
}

// interested reports whether anybody listens on a subject.
func (s *Server) interested(subject string) bool {
	tokens := strings.Split(subject, ".")
	for _, c := range s.conns {
		for _, sub := range c.subs {
			if matches(tokens, sub.tokens) {
				return true
			}
		}
	}
	return false
}

// matches reports whether a literal subject matches a filter, both in tokens.
func matches(subject, filter []string) bool {
	for i, f := range filter {
		switch {
		case f == ">":
			return len(subject) > i
		case i >= len(subject) || f != "*" && f != subject[i]:
			return false
		}
	}
	return len(subject) == len(filter)
}

// subjectMatches is matches on strings. An empty filter matches all.
func subjectMatches(subject, filter string) bool {
	return filter == "" || filter == ">" || filter == subject ||
		matches(strings.Split(subject, "."), strings.Split(filter, "."))
}

// overlap reports whether a subject could match both filters.
func overlap(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := 0; ; i++ {
		switch {
		case i == len(x) || i == len(y):
			return len(x) == len(y)
		case x[i] == ">" || y[i] == ">":
			return true
		case x[i] != y[i] && x[i] != "*" && y[i] != "*":
			return false
		}
	}
}

// within reports whether every subject that matches a matches b.
func within(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i, t := range y {
		switch {
		case t == ">":
			return len(x) > i
		case i >= len(x) || x[i] == ">" || x[i] != t && t != "*":
			return false
		}
	}
	return len(x) == len(y)
}

func validFilter(subject string) bool {
	tokens := strings.Split(subject, ".")
	for i, t := range tokens {
		if t == "" || t == ">" && i < len(tokens)-1 {
			return false
		}
	}
	return true
}

func validLiteral(subject string) bool {
	for t := range strings.SplitSeq(subject, ".") {
		if t == "" || t == "*" || t == ">" {
			return false
		}
	}
	return true
}
