package membroker

import (
	"cmp"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// stored is a message of a stream. It does not change.
type stored struct {
	seq       uint64
	subject   string
	hdr, data []byte
	at        time.Time
	stamp     time.Time     // at, by the server's clock
	ttl       time.Duration // 0: none; negative: it never expires
	bytes     uint64
}

// change is one message that was stored or removed, by which the stream's former states are found.
type change struct {
	m       *stored
	removed bool
}

// maxChanges is how many changes of a stream are remembered: how far a stale read can lie behind.
const maxChanges = 256

// stream is one stream.
type stream struct {
	js      *jetStream
	cfg     server.StreamConfig
	created time.Time

	msgs        []*stored // in the order of their sequences
	bySubject   map[string][]*stored
	first, last uint64 // first is the sequence that the state names; 0 before there was any message
	lastTime    time.Time
	bytes       uint64
	lastID      string // the message id of the last message

	ids     map[string]dedupe
	idOrder []string // in the order in which they came

	consumers []*consumer // in the order in which they were made
	expiry    *timer
	news      *timer // consumers are to be told of new messages
	changes   []change
	fault     streamFault
}

// dedupe is what a message id stands for, within the window.
type dedupe struct {
	seq uint64
	at  time.Time
}

func (st *stream) name() string { return st.cfg.Name }

// replicated reports whether the stream has replicas, as far as that shows.
func (st *stream) replicated() bool { return st.cfg.Replicas > 1 }

// index is where the first message stands whose sequence is at least seq.
func (st *stream) index(seq uint64) int {
	i, _ := slices.BinarySearchFunc(st.msgs, seq, func(m *stored, seq uint64) int { return cmp.Compare(m.seq, seq) })
	return i
}

// get returns the message of a sequence, or nil.
func (st *stream) get(seq uint64) *stored {
	if i := st.index(seq); i < len(st.msgs) && st.msgs[i].seq == seq {
		return st.msgs[i]
	}
	return nil
}

// lastOn returns the last message whose subject matches, or nil.
func (st *stream) lastOn(filter string) *stored {
	if validLiteral(filter) {
		if on := st.bySubject[filter]; len(on) > 0 {
			return on[len(on)-1]
		}
		return nil
	}
	return lastOf(st.msgs, filter)
}

func lastOf(msgs []*stored, filter string) *stored {
	for _, m := range slices.Backward(msgs) {
		if subjectMatches(m.subject, filter) {
			return m
		}
	}
	return nil
}

// nextOn returns the first message from a sequence on whose subject matches one of the filters; none stands for all.
func (st *stream) nextOn(seq uint64, filters ...string) *stored {
	for _, m := range st.msgs[st.index(seq):] {
		if matchesAny(m.subject, filters) {
			return m
		}
	}
	return nil
}

func matchesAny(subject string, filters []string) bool {
	return len(filters) == 0 || slices.ContainsFunc(filters, func(f string) bool { return subjectMatches(subject, f) })
}

// size is how many bytes of its limit a message takes.
func (st *stream) size(subject string, hdr, data []byte) uint64 {
	if st.cfg.Storage == server.MemoryStorage {
		const record = 16
		return uint64(len(subject) + len(hdr) + len(data) + record)
	}
	const record, headers = 22 + 8, 4
	n := record + len(subject) + len(data)
	if len(hdr) > 0 {
		n += headers + len(hdr)
	}
	return uint64(n)
}

// add puts a message at the end.
func (st *stream) add(subject string, hdr, data []byte, ttl time.Duration) *stored {
	m := &stored{
		seq: st.last + 1, subject: subject, hdr: hdr, data: data, at: st.js.s.now(), stamp: st.js.s.stamp(), ttl: ttl,
		bytes: st.size(subject, hdr, data),
	}
	if len(st.msgs) == 0 {
		st.first = m.seq
	}
	st.last, st.lastTime = m.seq, m.stamp
	st.insert(m)
	st.changed(change{m: m})
	st.schedule(st.expires(m))
	return m
}

// insert puts a message where it belongs.
func (st *stream) insert(m *stored) {
	st.msgs = slices.Insert(st.msgs, st.index(m.seq), m)
	st.bySubject[m.subject] = append(st.bySubject[m.subject], m)
	st.bytes += m.bytes
}

// take takes a message out, and tells nobody.
func (st *stream) take(m *stored) {
	i := st.index(m.seq)
	st.msgs = slices.Delete(st.msgs, i, i+1)
	on := slices.DeleteFunc(st.bySubject[m.subject], func(o *stored) bool { return o == m })
	if st.bySubject[m.subject] = on; len(on) == 0 {
		delete(st.bySubject, m.subject)
	}
	st.bytes -= m.bytes
	st.changed(change{m: m, removed: true})
	if len(st.msgs) == 0 {
		st.first = st.last + 1
	} else {
		st.first = st.msgs[0].seq
	}
}

// remove takes a message out. A consumer that waits for its ack waits no longer.
func (st *stream) remove(m *stored) {
	st.take(m)
	for _, o := range slices.Clone(st.consumers) {
		o.removed(m)
	}
}

func (st *stream) changed(c change) {
	if len(st.changes) == maxChanges {
		st.changes = slices.Delete(st.changes, 0, 1)
	}
	st.changes = append(st.changes, c)
}

// behind returns the messages as they were some changes ago.
func (st *stream) behind(n int) []*stored {
	msgs := slices.Clone(st.msgs)
	for _, c := range slices.Backward(st.changes[len(st.changes)-min(n, len(st.changes)):]) {
		i, found := slices.BinarySearchFunc(msgs, c.m, func(a, b *stored) int { return cmp.Compare(a.seq, b.seq) })
		switch {
		case c.removed && !found:
			msgs = slices.Insert(msgs, i, c.m)
		case !c.removed && found:
			msgs = slices.Delete(msgs, i, i+1)
		}
	}
	return msgs
}

// enforce takes out the oldest messages past the stream's limits, as it does that discards them.
func (st *stream) enforce(subject string) {
	if most := st.cfg.MaxMsgsPer; most > 0 {
		for int64(len(st.bySubject[subject])) > most {
			st.remove(st.bySubject[subject][0])
		}
	}
	if st.cfg.Discard != server.DiscardOld {
		return
	}
	for st.cfg.MaxMsgs > 0 && int64(len(st.msgs)) > st.cfg.MaxMsgs {
		st.remove(st.msgs[0])
	}
	for st.cfg.MaxBytes > 0 && st.bytes > uint64(st.cfg.MaxBytes) && len(st.msgs) > 0 {
		st.remove(st.msgs[0])
	}
}

// expires returns when a message expires; the zero time when it never does.
func (st *stream) expires(m *stored) (at time.Time) {
	if st.cfg.MaxAge > 0 && m.ttl >= 0 {
		at = m.at.Add(st.cfg.MaxAge)
	}
	if m.ttl > 0 && (at.IsZero() || m.at.Add(m.ttl).Before(at)) {
		at = m.at.Add(m.ttl)
	}
	return at
}

// schedule makes sure that the stream looks for what has expired at this time.
func (st *stream) schedule(at time.Time) {
	if at.IsZero() || st.expiry != nil && !at.Before(st.expiry.at) {
		return
	}
	st.js.s.stop(st.expiry)
	st.expiry = st.js.s.at(at, "expiry of "+st.name(), st.expire)
}

// expire takes out what has expired. In a stream with markers a mark takes the place of the last message of a subject.
func (st *stream) expire() {
	st.expiry = nil
	now := st.js.s.now()
	for _, m := range slices.Clone(st.msgs) {
		at := st.expires(m)
		if at.IsZero() || at.After(now) || st.get(m.seq) != m {
			continue
		}
		marked := header(m.hdr, server.JSMarkerReason) != ""
		if st.cfg.SubjectDeleteMarkerTTL > 0 && !marked && len(st.bySubject[m.subject]) == 1 {
			st.mark(m.subject)
			continue
		}
		st.remove(m)
	}
	var next time.Time
	for _, m := range st.msgs {
		if at := st.expires(m); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if !next.IsZero() && !next.After(now) { // a mark found no room
		next = now.Add(time.Second)
	}
	st.schedule(next)
}

// mark stores the mark of an expired subject, which takes the place of what stood there.
func (st *stream) mark(subject string) {
	st.ingest(nil, &message{subject: subject, hdr: withHeaders(nil,
		server.JSMarkerReason, server.JSMarkerReasonMaxAge,
		server.JSMessageTTL, st.cfg.SubjectDeleteMarkerTTL.String(),
		server.JSMsgRollup, server.JSMsgRollupSubject)})
}

// purge takes out messages: those before a sequence, those of a subject, all but the last ones.
func (st *stream) purge(req server.JSApiStreamPurgeRequest) (purged uint64) {
	var gone []*stored
	for _, m := range st.msgs {
		if req.Sequence != 1 && (req.Sequence == 0 || m.seq < req.Sequence) && subjectMatches(m.subject, req.Subject) {
			gone = append(gone, m)
		}
	}
	if req.Keep > 0 {
		gone = gone[:max(0, len(gone)-int(min(req.Keep, uint64(len(gone)))))]
	}
	for _, m := range gone {
		st.take(m)
	}
	all := req.Subject == "" || req.Subject == ">"
	if all && req.Sequence > st.last+1 { // nats-server takes this as where the stream goes on
		st.first, st.last = req.Sequence, req.Sequence-1
	}
	for _, o := range slices.Clone(st.consumers) { // also when there was nothing to purge
		o.purged(req.Subject)
	}
	return uint64(len(gone))
}

// window forgets the message ids that are older than the window.
func (st *stream) window() {
	now := st.js.s.now()
	for len(st.idOrder) > 0 {
		id := st.idOrder[0]
		if d, ok := st.ids[id]; ok && now.Sub(d.at) < st.cfg.Duplicates {
			return
		}
		delete(st.ids, id)
		st.idOrder = st.idOrder[1:]
	}
}

// state is what the server says of the stream.
func (st *stream) state(filter string, deleted bool) server.StreamState {
	s := server.StreamState{
		Msgs: uint64(len(st.msgs)), Bytes: st.bytes, FirstSeq: st.first, LastSeq: st.last, LastTime: st.lastTime,
		NumSubjects: len(st.bySubject), Consumers: len(st.consumers),
	}
	if len(st.msgs) > 0 {
		s.FirstTime = st.msgs[0].stamp
		s.NumDeleted = int(st.last-st.first+1) - len(st.msgs)
	}
	if deleted && s.NumDeleted > 0 {
		for seq := st.first; seq <= st.last; seq++ {
			if st.get(seq) == nil {
				s.Deleted = append(s.Deleted, seq)
			}
		}
	}
	if filter != "" {
		s.Subjects = map[string]uint64{}
		for subject, on := range st.bySubject { // encoded in order
			if subjectMatches(subject, filter) {
				s.Subjects[subject] = uint64(len(on))
			}
		}
	}
	return s
}

func (st *stream) info(filter string, deleted bool) *server.StreamInfo {
	return &server.StreamInfo{
		Config: st.cfg, Created: st.created.UTC(), State: st.state(filter, deleted), TimeStamp: st.js.s.stamp(),
		Cluster: st.js.cluster(),
	}
}

// consumer returns one by name, or nil.
func (st *stream) consumer(name string) *consumer {
	for _, o := range st.consumers {
		if o.name == name {
			return o
		}
	}
	return nil
}

// takes reports whether the stream stores messages of a subject.
func (st *stream) takes(subject string) bool { return matchesAny(subject, st.cfg.Subjects) }
