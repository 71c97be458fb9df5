package membroker

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// maxMultiLast is how many messages one request for the last ones of several subjects may bring.
const maxMultiLast = 1024

// direct answers a direct get, as any replica does: maybe from a state that lies behind, if there are several. It
// returns false when nobody answers: there is no such stream, or it does not allow it.
func (js *jetStream) direct(m *message) bool {
	name, subject, _ := strings.Cut(strings.TrimPrefix(m.subject, prefixDirect), ".")
	st := js.stream(name)
	if st == nil || !st.cfg.AllowDirect {
		return false
	}
	if m.reply == "" {
		return true
	}
	send := func(hdr, data []byte) { js.s.route(nil, &message{subject: m.reply, hdr: hdr, data: data}) }
	var req server.JSApiMsgGetRequest
	switch {
	case subject != "":
		req.LastFor = subject
	case len(m.data) == 0:
		send(status(408, "Empty Request"), nil)
		return true
	default:
		if err := json.Unmarshal(m.data, &req); err != nil {
			send(status(408, "Malformed Request"), nil)
			return true
		}
	}
	switch {
	case req.Seq == 0 && req.LastFor == "" && req.NextFor == "" && len(req.MultiLastFor) == 0 && req.StartTime == nil:
		send(status(408, "Empty Request"), nil)
		return true
	case req.Seq > 0 && req.LastFor != "", req.LastFor != "" && req.NextFor != "", req.LastFor != "" && req.Batch > 0,
		len(req.MultiLastFor) > 0 && (req.LastFor != "" || req.NextFor != ""), req.UpToSeq > 0 && req.UpToTime != nil:
		send(status(408, "Bad Request"), nil)
		return true
	}
	v := &view{st: st, msgs: st.msgs, send: send}
	if st.fault.closed {
		v.msgs, v.behind = nil, true
	}
	if st.replicated() && st.fault.lag > 0 {
		v.msgs, v.behind = st.behind(st.fault.lag), true
	}
	if len(req.MultiLastFor) > 0 {
		v.multiLast(&req)
	} else {
		v.get(&req)
	}
	return true
}

// view is a stream as one replica has it.
type view struct {
	st     *stream
	msgs   []*stored
	behind bool // the messages are not those that the stream has now
	send   func(hdr, data []byte)
}

// last is the last message on a subject.
func (v *view) last(filter string) *stored {
	if v.behind {
		return lastOf(v.msgs, filter)
	}
	return v.st.lastOn(filter)
}

// one is the message that a read through the leader asks for.
func (v *view) one(req *server.JSApiMsgGetRequest) *stored {
	if req.LastFor == "" {
		m := v.from(req.Seq, req.NextFor)
		if m == nil || req.NextFor == "" && m.seq != req.Seq {
			return nil
		}
		return m
	}
	for _, m := range slices.Backward(v.msgs) {
		if subjectMatches(m.subject, req.LastFor) {
			return m
		}
	}
	return nil
}

// from is the first message from a sequence on whose subject matches.
func (v *view) from(seq uint64, filter string) *stored {
	i, _ := slices.BinarySearchFunc(v.msgs, seq, func(m *stored, seq uint64) int { return cmp.Compare(m.seq, seq) })
	for _, m := range v.msgs[i:] {
		if subjectMatches(m.subject, filter) {
			return m
		}
	}
	return nil
}

func (v *view) headers(m *stored, more ...string) []byte {
	return withHeaders(m.hdr, append([]string{
		server.JSStream, v.st.name(), server.JSSubject, m.subject, server.JSSequence, strconv.FormatUint(m.seq, 10),
		server.JSTimeStamp, m.stamp.Format(time.RFC3339Nano),
	}, more...)...)
}

func (v *view) get(req *server.JSApiMsgGetRequest) {
	seq := req.Seq
	if req.StartTime != nil {
		for _, m := range slices.Backward(v.msgs) {
			if !m.stamp.Before(*req.StartTime) {
				seq = m.seq
			}
		}
	}
	if req.Batch == 0 {
		var m *stored
		switch {
		case req.NextFor != "":
			m = v.from(seq, req.NextFor)
		case seq > 0:
			if m = v.from(seq, ""); m != nil && m.seq != seq {
				m = nil
			}
		default:
			m = v.last(req.LastFor)
		}
		switch {
		case m == nil:
			v.send(status(404, "Message Not Found"), nil)
		case req.NoHeaders:
			v.send(nil, m.data)
		default:
			v.send(v.headers(m), m.data)
		}
		return
	}
	v.batch(req, seq)
}

// progress says how many messages are left, and which one came before, as headers.
func progress(left int, before uint64) []string {
	return []string{
		server.JSNumPending, strconv.Itoa(left), server.JSLastSequence, strconv.FormatUint(before, 10),
	}
}

// batch sends several messages, and a status behind them.
func (v *view) batch(req *server.JSApiMsgGetRequest, seq uint64) {
	left, before, sent, bytes := 0, uint64(0), 0, 0
	for _, m := range v.msgs {
		if m.seq >= seq && subjectMatches(m.subject, req.NextFor) {
			left++
		}
	}
	for m := v.from(seq, req.NextFor); m != nil && sent < req.Batch; m = v.from(m.seq+1, req.NextFor) {
		left--
		sent++
		v.send(v.headers(m, progress(left, before)...), m.data)
		before = m.seq
		if bytes += len(m.subject) + len(m.hdr) + len(m.data); req.MaxBytes > 0 && bytes >= req.MaxBytes {
			break
		}
	}
	if sent == 0 {
		v.send(status(404, "Message Not Found"), nil)
		return
	}
	v.send(status(204, "EOB", progress(left, before)...), nil)
}

// multiLast sends the last message of each subject that matches, in the order of their sequences.
func (v *view) multiLast(req *server.JSApiMsgGetRequest) {
	end := req.UpToSeq
	if end == 0 {
		end = v.st.last
	}
	lasts := map[string]*stored{}
	for _, m := range v.msgs {
		late := m.seq > end || req.UpToTime != nil && !m.stamp.Before(*req.UpToTime)
		if !late && matchesAny(m.subject, req.MultiLastFor) {
			lasts[m.subject] = m
		}
	}
	found := make([]*stored, 0, len(lasts))
	for _, m := range lasts { // sorted below
		if m.seq >= req.Seq {
			found = append(found, m)
		}
	}
	slices.SortFunc(found, func(a, b *stored) int { return cmp.Compare(a.seq, b.seq) })
	switch {
	case len(found) == 0:
		v.send(status(404, "No Results"), nil)
		return
	case len(found) > maxMultiLast:
		v.send(status(413, "Too Many Results"), nil)
		return
	}
	left, before, bytes := len(found), uint64(0), 0
	for i, m := range found {
		if req.Batch > 0 && i == req.Batch {
			break
		}
		left--
		v.send(v.headers(m, progress(left, before)...), m.data)
		before = m.seq
		if bytes += len(m.subject) + len(m.hdr) + len(m.data); req.MaxBytes > 0 && bytes >= req.MaxBytes {
			break
		}
	}
	v.send(status(204, "EOB", append(progress(left, before), server.JSUpToSequence, strconv.FormatUint(end, 10))...),
		nil)
}
