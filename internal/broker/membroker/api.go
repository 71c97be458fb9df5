package membroker

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// api answers a request of the JetStream API. It returns false when nobody answers such requests.
func (js *jetStream) api(from *conn, m *message) bool {
	t := strings.Split(m.subject, ".")
	name := func(i int) string {
		if i < len(t) {
			return t[i]
		}
		return ""
	}
	q := &query{js: js, m: m}
	what := strings.Join(t[2:min(4, len(t))], ".")
	switch {
	case what == "INFO":
		js.account(q)
	case what == "STREAM.NAMES" || what == "STREAM.LIST":
		js.list(q, what == "STREAM.NAMES")
	case what == "STREAM.CREATE" || what == "STREAM.UPDATE":
		js.make(q, name(4), what == "STREAM.UPDATE")
	case what == "STREAM.MSG" && name(4) == "GET":
		js.onStream(q, name(5), server.JSApiMsgGetResponseType, js.messageGet)
	case what == "STREAM.MSG" && name(4) == "DELETE":
		js.onStream(q, name(5), server.JSApiMsgDeleteResponseType, js.messageDelete)
	case what == "STREAM.INFO":
		js.onStream(q, name(4), server.JSApiStreamInfoResponseType, js.streamInfo)
	case what == "STREAM.DELETE":
		js.onStream(q, name(4), server.JSApiStreamDeleteResponseType, js.streamDelete)
	case what == "STREAM.PURGE":
		js.onStream(q, name(4), server.JSApiStreamPurgeResponseType, js.streamPurge)
	case what == "DIRECT.GET":
		return js.direct(m)
	case what == "CONSUMER.CREATE":
		js.onStream(q, name(4), server.JSApiConsumerCreateResponseType, func(q *query, st *stream) {
			js.consumerCreate(q, st, name(5), strings.Join(t[min(6, len(t)):], "."))
		})
	case what == "CONSUMER.DURABLE" && name(4) == "CREATE":
		js.onStream(q, name(5), server.JSApiConsumerCreateResponseType, func(q *query, st *stream) {
			js.consumerCreate(q, st, name(6), "")
		})
	case what == "CONSUMER.NAMES" || what == "CONSUMER.LIST":
		kind := server.JSApiConsumerNamesResponseType
		if what == "CONSUMER.LIST" {
			kind = server.JSApiConsumerListResponseType
		}
		js.onStream(q, name(4), kind, func(q *query, st *stream) { js.consumers(q, st, what == "CONSUMER.NAMES") })
	case what == "CONSUMER.INFO":
		js.onStream(q, name(4), server.JSApiConsumerInfoResponseType, func(q *query, st *stream) {
			if o := st.consumer(name(5)); o != nil {
				q.answer(server.JSApiConsumerInfoResponse{ApiResponse: q.ok(), ConsumerInfo: o.info()})
			} else {
				q.refuse(server.NewJSConsumerNotFoundError())
			}
		})
	case what == "CONSUMER.DELETE":
		js.onStream(q, name(4), server.JSApiConsumerDeleteResponseType, func(q *query, st *stream) {
			if o := st.consumer(name(5)); o != nil {
				o.delete()
				q.answer(server.JSApiConsumerDeleteResponse{ApiResponse: q.ok(), Success: true})
			} else {
				q.refuse(server.NewJSConsumerNotFoundError())
			}
		})
	case what == "CONSUMER.MSG" && name(4) == "NEXT":
		o := js.consumer(t, 5)
		if o != nil {
			o.pull(m.reply, m.data)
		}
		return o != nil
	default:
		return false
	}
	return true
}

// query is one request and its answer.
type query struct {
	js   *jetStream
	m    *message
	kind string // of the answer
}

func (q *query) ok() server.ApiResponse { return server.ApiResponse{Type: q.kind} }

func (q *query) answer(v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain types
	}
	if q.m.reply != "" {
		q.js.s.route(nil, &message{subject: q.m.reply, data: data})
	}
}

func (q *query) refuse(why *server.ApiError) {
	q.answer(server.ApiResponse{Type: q.kind, Error: why})
}

// read reads the request's JSON. It has refused the request when it returns false. An empty request is none.
func (q *query) read(v any) bool {
	if len(q.m.data) == 0 {
		return true
	}
	if err := json.Unmarshal(q.m.data, v); err != nil {
		q.refuse(server.NewJSInvalidJSONError(err))
		return false
	}
	return true
}

// onStream answers a request about one stream.
func (js *jetStream) onStream(q *query, name, kind string, do func(*query, *stream)) {
	q.kind = kind
	st := js.stream(name)
	switch {
	case st != nil && st.fault.closed && kind == server.JSApiMsgGetResponseType:
		q.refuse(server.NewJSNoMessageFoundError())
	case js.leaderless || st != nil && st.fault.leaderless:
		q.refuse(server.NewJSClusterNotAvailError())
	case st == nil:
		q.refuse(server.NewJSStreamNotFoundError())
	default:
		do(q, st)
	}
}

func (js *jetStream) account(q *query) {
	q.kind = server.JSApiAccountInfoResponseType
	stats := &server.JetStreamAccountStats{API: server.JetStreamAPIStats{Level: server.JSApiLevel}}
	for _, st := range js.streams {
		stats.Streams++
		stats.Consumers += len(st.consumers)
		if st.cfg.Storage == server.MemoryStorage {
			stats.Memory += st.bytes
		} else {
			stats.Store += st.bytes
		}
	}
	stats.Limits = server.JetStreamAccountLimits{
		MaxMemory: -1, MaxStore: -1, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1,
		MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1,
	}
	q.answer(server.JSApiAccountInfoResponse{ApiResponse: q.ok(), JetStreamAccountStats: stats})
}

func (js *jetStream) list(q *query, names bool) {
	q.kind = server.JSApiStreamListResponseType
	if names {
		q.kind = server.JSApiStreamNamesResponseType
	}
	var req server.JSApiStreamNamesRequest // a list is asked for in the same way
	if !q.read(&req) {
		return
	}
	var found []*stream
	for _, st := range js.streams {
		if req.Subject == "" ||
			slices.ContainsFunc(st.cfg.Subjects, func(f string) bool { return overlap(f, req.Subject) }) {
			found = append(found, st)
		}
	}
	limit := server.JSApiListLimit
	if names {
		limit = server.JSApiNamesLimit
	}
	page := server.ApiPaged{Total: len(found), Offset: min(max(req.Offset, 0), len(found)), Limit: limit}
	found = found[page.Offset:]
	found = found[:min(limit, len(found))]
	if names {
		all := make([]string, len(found))
		for i, st := range found {
			all[i] = st.name()
		}
		q.answer(server.JSApiStreamNamesResponse{ApiResponse: q.ok(), ApiPaged: page, Streams: all})
		return
	}
	all := make([]*server.StreamInfo, len(found))
	for i, st := range found {
		all[i] = st.info("", false)
	}
	q.answer(server.JSApiStreamListResponse{ApiResponse: q.ok(), ApiPaged: page, Streams: all})
}

func (js *jetStream) streamInfo(q *query, st *stream) {
	var req server.JSApiStreamInfoRequest
	if !q.read(&req) {
		return
	}
	info := st.info(req.SubjectsFilter, req.DeletedDetails)
	var page server.ApiPaged
	if len(info.State.Subjects) > 0 {
		page = server.ApiPaged{Total: len(info.State.Subjects), Offset: req.Offset, Limit: server.JSMaxSubjectDetails}
	}
	q.answer(server.JSApiStreamInfoResponse{ApiResponse: q.ok(), ApiPaged: page, StreamInfo: info})
}

func (js *jetStream) streamDelete(q *query, st *stream) {
	for _, o := range slices.Clone(st.consumers) {
		o.delete()
	}
	js.s.stop(st.expiry)
	js.streams = slices.DeleteFunc(js.streams, func(o *stream) bool { return o == st })
	q.answer(server.JSApiStreamDeleteResponse{ApiResponse: q.ok(), Success: true})
}

func (js *jetStream) streamPurge(q *query, st *stream) {
	var req server.JSApiStreamPurgeRequest
	switch {
	case !q.read(&req):
	case req.Sequence > 0 && req.Keep > 0:
		q.refuse(server.NewJSBadRequestError())
	case st.cfg.DenyPurge:
		q.refuse(server.NewJSStreamPurgeFailedError(errors.New("stream purge not permitted")))
	default:
		q.answer(server.JSApiStreamPurgeResponse{ApiResponse: q.ok(), Success: true, Purged: st.purge(req)})
	}
}

func (js *jetStream) messageDelete(q *query, st *stream) {
	var req server.JSApiMsgDeleteRequest
	if len(q.m.data) == 0 {
		q.refuse(server.NewJSBadRequestError())
		return
	}
	if !q.read(&req) {
		return
	}
	if st.cfg.DenyDelete {
		q.refuse(server.NewJSStreamMsgDeleteFailedError(errors.New("message delete not permitted")))
		return
	}
	m := st.get(req.Seq)
	if m == nil {
		why := server.ErrStoreMsgNotFound
		if req.Seq > st.last {
			why = server.ErrStoreEOF
		}
		// A sequence between the first and the last is looked for in vain; others are not even looked for.
		if st.replicated() || req.Seq >= st.first && req.Seq <= st.last && len(st.msgs) > 0 {
			q.refuse(server.NewJSSequenceNotFoundError(req.Seq))
		} else {
			q.refuse(server.NewJSStreamMsgDeleteFailedError(why, server.Unless(why)))
		}
		return
	}
	st.remove(m)
	q.answer(server.JSApiMsgDeleteResponse{ApiResponse: q.ok(), Success: true})
}

func (js *jetStream) messageGet(q *query, st *stream) {
	var req server.JSApiMsgGetRequest
	if len(q.m.data) == 0 {
		q.refuse(server.NewJSBadRequestError())
		return
	}
	if !q.read(&req) {
		return
	}
	none := req.Seq == 0 && req.LastFor == "" && req.NextFor == "" && req.StartTime == nil
	many := req.Batch > 0 || req.MaxBytes > 0
	if none || many || req.LastFor != "" && (req.Seq > 0 || req.NextFor != "") {
		q.refuse(server.NewJSBadRequestError())
		return
	}
	var m *stored
	switch {
	case st.fault.deposed > 0:
		m = (&view{msgs: st.behind(st.fault.deposed)}).one(&req)
	case req.Seq > 0 && req.NextFor == "":
		m = st.get(req.Seq)
	case req.NextFor != "":
		m = st.nextOn(req.Seq, req.NextFor)
	default:
		m = st.lastOn(req.LastFor)
	}
	if m == nil {
		q.refuse(server.NewJSNoMessageFoundError())
		return
	}
	found := &server.StoredMsg{Subject: m.subject, Sequence: m.seq, Data: m.data, Time: m.stamp}
	if !req.NoHeaders {
		found.Header = m.hdr
	}
	q.answer(server.JSApiMsgGetResponse{ApiResponse: q.ok(), Message: found})
}
