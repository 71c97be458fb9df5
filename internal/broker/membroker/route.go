package membroker

import (
	"slices"
	"strconv"
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
	c.subs = append(c.subs, &sub{c: c, subject: o.subject, queue: o.queue, sid: o.sid})
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
	verb := "MSG"
	if len(hdr) > 0 {
		verb = "HMSG"
	}
	const lengths = 32 // of two numbers, blanks and ends of lines
	b := make([]byte, 0, len(verb)+len(m.subject)+len(s.sid)+len(m.reply)+len(hdr)+len(data)+lengths)
	b = append(append(append(b, verb...), ' '), m.subject...)
	b = append(append(append(b, ' '), s.sid...), ' ')
	if m.reply != "" {
		b = append(append(b, m.reply...), ' ')
	}
	if len(hdr) > 0 {
		b = append(strconv.AppendInt(b, int64(len(hdr)), 10), ' ')
	}
	b = append(strconv.AppendInt(b, int64(len(hdr)+len(data)), 10), "\r\n"...)
	b = append(append(append(b, hdr...), data...), "\r\n"...)
	s.c.send(verb, m.target(), b)
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
	for _, sub := range c.subs {
		if subjectMatches(m.reply, sub.subject) {
			sub.give(&message{subject: m.reply, hdr: []byte("NATS/1.0 503\r\n\r\n")})
			return
		}
	}
}

// route sends a message to all subscriptions that match, one of each queue group. from is nil when the server sends it.
func (s *Server) route(from *conn, m *message) (heard bool) {
	target := m.target()
	var found []*sub // of one connection: what is given may end a subscription
	var groups []string
	var members map[string][]*sub
	for _, c := range slices.Clone(s.conns) {
		if c == from && !c.echo {
			continue
		}
		found = found[:0]
		for _, o := range c.subs {
			if subjectMatches(target, o.subject) {
				found = append(found, o)
			}
		}
		for _, o := range found {
			heard = true
			if o.queue == "" {
				o.give(m)
				continue
			}
			if members == nil {
				members = map[string][]*sub{}
			}
			if len(members[o.queue]) == 0 {
				groups = append(groups, o.queue)
			}
			members[o.queue] = append(members[o.queue], o)
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
	for _, c := range s.conns {
		for _, sub := range c.subs {
			if subjectMatches(subject, sub.subject) {
				return true
			}
		}
	}
	return false
}

// subjectMatches reports whether a literal subject matches a filter, which is valid. An empty filter matches all. A
// server does nothing as often as this: it neither splits the two nor makes garbage.
func subjectMatches(subject, filter string) bool {
	if filter == "" {
		return true
	}
	at, begins := 0, true // where the subject is read, and whether a token begins there
	for i := range len(filter) {
		if begins {
			if filter[i:] == ">" {
				return true
			}
			if filter[i] == '*' {
				for at < len(subject) && subject[at] != '.' {
					at++
				}
				begins = false
				continue
			}
		}
		if at == len(subject) || subject[at] != filter[i] {
			return false
		}
		begins = filter[i] == '.'
		at++
	}
	return at == len(subject)
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
