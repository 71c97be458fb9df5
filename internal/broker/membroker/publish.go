package membroker

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// ingest stores a message that was published on one of the stream's subjects, or refuses it, and answers whoever waits.
// The checks come in the order in which nats-server has them, which differs for a stream with replicas.
func (st *stream) ingest(from *conn, m *message) {
	if st.fault.stalled { // nats-server logs that it cannot write, and says nothing
		return
	}
	seq, duplicate, refused := uint64(0), false, (*server.ApiError)(nil)
	if st.fault.closed {
		if want, _ := number(m.hdr, server.JSExpectedLastSubjSeq); want == 0 {
			return // it goes to the replicas, and is lost there
		}
		refused = server.NewJSStreamWrongLastSequenceError(0)
	} else {
		seq, duplicate, refused = st.accept(m)
	}
	if m.reply == "" || st.cfg.NoAck {
		return
	}
	data := fmt.Appendf(nil, `{"stream":%q,"seq":%d}`, st.name(), seq)
	switch {
	case refused != nil:
		var err error
		ack := server.JSPubAckResponse{PubAck: &server.PubAck{Stream: st.name()}, Error: refused}
		if data, err = json.Marshal(ack); err != nil {
			panic(err) // plain types
		}
	case duplicate:
		data = fmt.Appendf(data[:len(data)-1], `,"duplicate": true}`)
	}
	st.js.s.route(nil, &message{subject: m.reply, data: data})
}

// check is one condition of storing. done says that there is nothing to store: seq has the message already.
type check func(m *message) (seq uint64, done bool, refused *server.ApiError)

func (st *stream) accept(m *message) (seq uint64, duplicate bool, refused *server.ApiError) {
	checks := []check{
		st.checkSize, st.checkStream, st.checkTTLAllowed, st.checkExpected, st.checkID, st.checkLastID, st.checkRollup,
		st.checkResources, st.checkTTL, st.checkRoom,
	}
	if st.replicated() {
		checks = []check{
			st.checkSize, st.checkStream, st.checkID, st.checkTTLAllowed, st.checkTTL, st.checkExpected, st.checkRollup,
			st.checkResources, st.checkRoom, st.checkLastID,
		}
	}
	for _, c := range checks {
		if seq, done, refused := c(m); done || refused != nil {
			return seq, done, refused
		}
	}
	return st.store(m), false, nil
}

func (st *stream) checkSize(m *message) (uint64, bool, *server.ApiError) {
	most := int(st.cfg.MaxMsgSize)
	if most >= 0 && len(m.hdr)+len(m.data) > most {
		return 0, false, server.NewJSStreamMessageExceedsMaximumError()
	}
	if len(m.hdr) > math.MaxUint16 {
		return 0, false, server.NewJSStreamHeaderExceedsMaximumError()
	}
	return 0, false, nil
}

func (st *stream) checkStream(m *message) (uint64, bool, *server.ApiError) {
	if want := header(m.hdr, server.JSExpectedStream); want != "" && want != st.name() {
		return 0, false, server.NewJSStreamNotMatchError()
	}
	return 0, false, nil
}

func (st *stream) checkTTLAllowed(m *message) (uint64, bool, *server.ApiError) {
	if ttl, err := messageTTL(header(m.hdr, server.JSMessageTTL)); err == nil && ttl != 0 && !st.cfg.AllowMsgTTL {
		return 0, false, server.NewJSMessageTTLDisabledError()
	}
	return 0, false, nil
}

func (st *stream) checkTTL(m *message) (uint64, bool, *server.ApiError) {
	if _, err := messageTTL(header(m.hdr, server.JSMessageTTL)); err != nil {
		return 0, false, server.NewJSMessageTTLInvalidError()
	}
	return 0, false, nil
}

// messageTTL reads the header of that name: seconds, a duration, or "never", which is negative.
func messageTTL(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	if strings.EqualFold(text, "never") {
		return -1, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		if d < time.Second {
			return 0, errors.New("the shortest TTL is a second")
		}
		return d.Truncate(time.Second), nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, errors.New("the TTL is no number")
	}
	return time.Duration(n) * time.Second, nil
}

func (st *stream) checkExpected(m *message) (uint64, bool, *server.ApiError) {
	other := header(m.hdr, server.JSExpectedLastSubjSeqSubj)
	if want, ok := number(m.hdr, server.JSExpectedLastSubjSeq); ok {
		subject := m.subject
		if other != "" {
			subject = other
		}
		have := uint64(0)
		if last := st.lastOn(subject); last != nil {
			have = last.seq
		}
		unfenced := st.js.s.opts.Unfenced
		if have != want && (unfenced == nil || !unfenced(m.subject,
			func(n string) string { return header(m.hdr, n) })) {
			return 0, false, server.NewJSStreamWrongLastSequenceError(have)
		}
	} else if other != "" {
		return 0, false, server.NewJSStreamExpectedLastSeqPerSubjectInvalidError()
	}
	if want, ok := number(m.hdr, server.JSExpectedLastSeq); ok && want != st.last {
		return 0, false, server.NewJSStreamWrongLastSequenceError(st.last)
	}
	return 0, false, nil
}

// number reads a header that has one. It is not ok when there is no such header, or no number in it.
func number(hdr []byte, name string) (n uint64, ok bool) {
	n, err := strconv.ParseUint(header(hdr, name), 10, 64)
	return n, err == nil
}

func (st *stream) checkID(m *message) (uint64, bool, *server.ApiError) {
	id := header(m.hdr, server.JSMsgId)
	if id == "" {
		return 0, false, nil
	}
	st.window()
	d, known := st.ids[id]
	return d.seq, known, nil
}

func (st *stream) checkLastID(m *message) (uint64, bool, *server.ApiError) {
	if want := header(m.hdr, server.JSExpectedLastMsgId); want != "" && want != st.lastID {
		return 0, false, server.NewJSStreamWrongLastMsgIDError(st.lastID)
	}
	return 0, false, nil
}

func (st *stream) checkRollup(m *message) (uint64, bool, *server.ApiError) {
	var why error
	switch rollup := header(m.hdr, server.JSMsgRollup); {
	case rollup == "":
		return 0, false, nil
	case !st.cfg.AllowRollup || st.cfg.DenyPurge:
		why = errors.New("rollup not permitted")
	case rollup != server.JSMsgRollupSubject && rollup != server.JSMsgRollupAll:
		why = errors.New("rollup value invalid: " + strconv.Quote(rollup))
	default:
		return 0, false, nil
	}
	return 0, false, server.NewJSStreamRollupFailedError(why)
}

func (st *stream) checkResources(*message) (uint64, bool, *server.ApiError) {
	if st.js.full {
		return 0, false, server.NewJSInsufficientResourcesError()
	}
	return 0, false, nil
}

func (st *stream) checkRoom(m *message) (uint64, bool, *server.ApiError) {
	err := st.room(m)
	if st.fault.full {
		err = server.ErrMaxBytes
	}
	if err != nil {
		return 0, false, server.NewJSStreamStoreFailedError(err, server.Unless(err))
	}
	return 0, false, nil
}

// room reports which limit a message would pass, in a stream that refuses new ones then.
func (st *stream) room(m *message) error {
	if st.cfg.Discard != server.DiscardNew {
		return nil
	}
	on := st.bySubject[m.subject]
	// With replicas the leader refuses before it looks whether the message takes the place of another.
	replaces := st.cfg.MaxMsgsPer > 0 && int64(len(on)) >= st.cfg.MaxMsgsPer && !st.replicated()
	size := st.size(m.subject, m.hdr, m.data)
	switch {
	case st.cfg.DiscardNewPer && int64(len(on)) >= st.cfg.MaxMsgsPer && header(m.hdr, server.JSMsgRollup) == "":
		return server.ErrMaxMsgsPerSubject
	case st.cfg.MaxMsgs > 0 && int64(len(st.msgs)) >= st.cfg.MaxMsgs && !replaces:
		return server.ErrMaxMsgs
	case st.cfg.MaxBytes > 0 && st.bytes+size > uint64(st.cfg.MaxBytes) && (!replaces || on[0].bytes < size):
		return server.ErrMaxBytes
	}
	return nil
}

// store stores a message that has passed all checks, and does what follows from that.
func (st *stream) store(m *message) uint64 {
	ttl, _ := messageTTL(header(m.hdr, server.JSMessageTTL)) // it was checked
	if least := st.cfg.SubjectDeleteMarkerTTL; ttl > 0 && ttl < least && st.cfg.MaxMsgsPer != 1 {
		ttl = least
		m.hdr = withHeaders(withoutHeader(m.hdr, server.JSMessageTTL),
			server.JSMessageTTL, strconv.Itoa(int(ttl.Seconds())))
	}
	before := uint64(0)
	if last := st.lastOn(m.subject); last != nil {
		before = last.seq
	}
	sm := st.add(m.subject, m.hdr, m.data, ttl)
	st.lastID = header(m.hdr, server.JSMsgId)
	if st.lastID != "" {
		st.ids[st.lastID] = dedupe{sm.seq, sm.at}
		st.idOrder = append(st.idOrder, st.lastID)
	}
	st.enforce(m.subject)
	switch header(m.hdr, server.JSMsgRollup) {
	case server.JSMsgRollupSubject:
		st.purge(server.JSApiStreamPurgeRequest{Subject: m.subject, Keep: 1})
	case server.JSMsgRollupAll:
		st.purge(server.JSApiStreamPurgeRequest{Keep: 1})
	}
	st.republish(sm, before)
	st.tell()
	return sm.seq
}

// tell tells the consumers of new messages: in a step of its own, since nats-server does not wait for them either. A
// publish may be answered before anybody is handed its message.
func (st *stream) tell() {
	if st.news != nil {
		return
	}
	st.news = st.js.s.at(st.js.s.now(), "news for the consumers of "+st.name(), func() {
		st.news = nil
		for _, o := range slices.Clone(st.consumers) {
			o.pump()
		}
	})
}

// republish sends the live copy of a message.
func (st *stream) republish(m *stored, before uint64) {
	r := st.cfg.RePublish
	if r == nil || !subjectMatches(m.subject, r.Source) {
		return
	}
	to, ok := transform(m.subject, r.Source, r.Destination)
	if !ok {
		return
	}
	pairs := []string{
		server.JSStream, st.name(), server.JSSubject, m.subject, server.JSSequence, strconv.FormatUint(m.seq, 10),
		server.JSTimeStamp, m.stamp.Format(time.RFC3339Nano), server.JSLastSequence, strconv.FormatUint(before, 10),
	}
	data := m.data
	if r.HeadersOnly {
		pairs, data = append(pairs, server.JSMsgSize, strconv.Itoa(len(data))), nil
	}
	st.js.s.route(nil, &message{subject: to, hdr: withHeaders(m.hdr, pairs...), data: data})
}

// transform is the destination of a subject, where both sides end in ">", or the destination has no wildcard.
func transform(subject, source, destination string) (string, bool) {
	tail, wild := strings.CutSuffix(destination, ">")
	if !wild {
		return destination, validLiteral(destination)
	}
	head := strings.TrimSuffix(source, ">")
	if source == "" {
		head = ""
	}
	rest, ok := strings.CutPrefix(subject, head)
	return tail + rest, ok
}
