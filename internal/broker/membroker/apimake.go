package membroker

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// make makes or changes a stream.
func (js *jetStream) make(q *query, name string, update bool) {
	q.kind = server.JSApiStreamCreateResponseType
	if update {
		q.kind = server.JSApiStreamUpdateResponseType
	}
	if js.leaderless {
		q.refuse(server.NewJSClusterNotAvailError())
		return
	}
	var req server.StreamConfigRequest
	if len(q.m.data) == 0 {
		q.refuse(server.NewJSInvalidJSONError(errors.New("unexpected end of JSON input")))
		return
	}
	if !q.read(&req) {
		return
	}
	cfg := req.StreamConfig
	if cfg.Name != name {
		q.refuse(server.NewJSStreamMismatchError())
		return
	}
	if refused := js.complete(&cfg); refused != nil {
		q.refuse(refused)
		return
	}
	st := js.stream(name)
	switch {
	case update && st == nil:
		q.refuse(server.NewJSStreamNotFoundError())
		return
	case update:
		if refused := st.update(cfg); refused != nil {
			q.refuse(refused)
			return
		}
	case st != nil && !reflect.DeepEqual(st.cfg, cfg):
		q.refuse(server.NewJSStreamNameExistError())
		return
	case st == nil:
		for _, other := range js.streams {
			for _, a := range other.cfg.Subjects {
				if slices.ContainsFunc(cfg.Subjects, func(b string) bool { return overlap(a, b) }) {
					q.refuse(server.NewJSStreamSubjectOverlapError())
					return
				}
			}
		}
		st = &stream{
			js: js, cfg: cfg, created: js.s.now(), bySubject: map[string][]*stored{}, ids: map[string]dedupe{},
		}
		i, _ := js.find(name)
		js.streams = slices.Insert(js.streams, i, st)
	}
	q.answer(server.JSApiStreamCreateResponse{ApiResponse: q.ok(), StreamInfo: st.info("", false)})
}

// defaultWindow is how long message ids are remembered.
const defaultWindow = 2 * time.Minute

// complete fills in the defaults of a stream, and reports what is wrong with it.
func (js *jetStream) complete(cfg *server.StreamConfig) *server.ApiError {
	if cfg.Name == "" || strings.ContainsAny(cfg.Name, ". *>") {
		return server.NewJSStreamInvalidConfigError(errors.New("stream name is required and can not contain '.', " +
			"'*', '>'"))
	}
	for _, limit := range []*int64{&cfg.MaxMsgs, &cfg.MaxMsgsPer, &cfg.MaxBytes} {
		if *limit == 0 {
			*limit = -1
		}
	}
	if cfg.MaxMsgSize == 0 {
		cfg.MaxMsgSize = -1
	}
	if cfg.MaxConsumers == 0 {
		cfg.MaxConsumers = -1
	}
	if cfg.Replicas == 0 {
		cfg.Replicas = 1
	}
	if js.s.opts.Indirect {
		cfg.AllowDirect = false
	}
	if len(cfg.Subjects) == 0 {
		cfg.Subjects = []string{cfg.Name}
	}
	if cfg.Duplicates == 0 {
		cfg.Duplicates = defaultWindow
		if cfg.MaxAge > 0 {
			cfg.Duplicates = min(cfg.Duplicates, cfg.MaxAge)
		}
	}
	if cfg.SubjectDeleteMarkerTTL > 0 {
		cfg.AllowRollup, cfg.AllowMsgTTL = true, true
	}
	cfg.Metadata = versioned(cfg.Metadata, cfg.AllowMsgTTL)
	switch {
	case cfg.Replicas > 1 && !js.clustered:
		return server.NewJSStreamReplicasNotSupportedError()
	case cfg.MaxAge > 0 && cfg.Duplicates > cfg.MaxAge:
		return server.NewJSStreamInvalidConfigError(errors.New("duplicates window can not be larger then max age"))
	case cfg.DiscardNewPer && (cfg.Discard != server.DiscardNew || cfg.MaxMsgsPer <= 0):
		return server.NewJSStreamInvalidConfigError(
			errors.New("discard new per subject requires discard new policy to be set"))
	case cfg.Retention == server.InterestPolicy, cfg.Mirror != nil, len(cfg.Sources) > 0, cfg.SubjectTransform != nil,
		cfg.AllowMsgCounter, cfg.AllowMsgSchedules, cfg.AllowAtomicPublish:
		return server.NewJSStreamInvalidConfigError(errors.New("membroker has no such streams"))
	}
	for i, a := range cfg.Subjects {
		if !validFilter(a) {
			return server.NewJSStreamInvalidConfigError(errors.New("invalid subject"))
		}
		for _, b := range cfg.Subjects[:i] {
			if overlap(a, b) {
				return server.NewJSStreamInvalidConfigError(fmt.Errorf("subject %q overlaps with %q", b, a))
			}
		}
	}
	return nil
}

// versioned is metadata with what the server adds: its version, and the version of the API that is needed.
func versioned(metadata map[string]string, ttl bool) map[string]string {
	out := map[string]string{}
	maps.Copy(out, metadata)
	needed := "0"
	if ttl {
		needed = "1"
	}
	out[server.JSServerVersionMetadataKey] = serverVersion
	out[server.JSServerLevelMetadataKey] = strconv.Itoa(server.JSApiLevel)
	out[server.JSRequiredLevelMetadataKey] = needed
	return out
}

// update changes a stream.
func (st *stream) update(cfg server.StreamConfig) *server.ApiError {
	switch {
	case cfg.Retention != st.cfg.Retention: // the others are refused in any case
		return server.NewJSStreamInvalidConfigError(
			errors.New("stream configuration update can not change retention policy to/from workqueue"))
	case cfg.Storage != st.cfg.Storage:
		return server.NewJSStreamInvalidConfigError(errors.New("stream configuration update can not change storage " +
			"type"))
	case st.cfg.AllowMsgTTL && !cfg.AllowMsgTTL:
		return server.NewJSStreamInvalidConfigError(errors.New("message TTL status can not be disabled"))
	case st.cfg.DenyDelete && !cfg.DenyDelete:
		return server.NewJSStreamInvalidConfigError(
			errors.New("stream configuration update can not cancel deny message deletes"))
	case st.cfg.DenyPurge && !cfg.DenyPurge:
		return server.NewJSStreamInvalidConfigError(errors.New("stream configuration update can not cancel deny purge"))
	}
	st.cfg = cfg
	subjects := map[string]bool{}
	for _, m := range slices.Clone(st.msgs) {
		if !subjects[m.subject] {
			subjects[m.subject] = true
			st.enforce(m.subject)
		}
	}
	st.js.s.stop(st.expiry)
	st.expiry = nil
	if len(st.msgs) > 0 {
		st.expire()
	}
	return nil
}

// consumerCreate makes or changes a consumer. Name and filter are those of the request's subject.
func (js *jetStream) consumerCreate(q *query, st *stream, name, filter string) {
	var req server.CreateConsumerRequest
	if !q.read(&req) {
		return
	}
	cfg := req.Config
	if req.Stream != st.name() {
		q.refuse(server.NewJSStreamMismatchError())
		return
	}
	if filter != "" && len(cfg.FilterSubjects) > 0 {
		q.refuse(server.NewJSConsumerMultipleFiltersNotAllowedError())
		return
	}
	if filter != "" && cfg.FilterSubject != filter {
		q.refuse(server.NewJSConsumerCreateFilterSubjectMismatchError())
		return
	}
	if cfg.Durable != "" && name != "" && cfg.Durable != name {
		q.refuse(server.NewJSConsumerDurableNameNotMatchSubjectError())
		return
	}
	if cfg.Name = cfg.Durable; cfg.Name == "" {
		cfg.Name = name
	}
	if cfg.Name == "" {
		js.advisories++
		cfg.Name = "consumer" + strconv.Itoa(js.advisories)
	}
	o, refused := st.makeConsumer(cfg, req.Action)
	if refused != nil {
		q.refuse(refused)
		return
	}
	o.await(q.m.reply)
	q.answer(server.JSApiConsumerCreateResponse{ApiResponse: q.ok(), ConsumerInfo: o.info()})
	o.listen()
	o.pump()
}

// ephemeralThreshold is how long an ephemeral consumer may be unused.
const ephemeralThreshold = 5 * time.Second

func (st *stream) makeConsumer(cfg server.ConsumerConfig, action server.ConsumerAction) (*consumer, *server.ApiError) {
	completeConsumer(&cfg)
	cfg.Metadata = versioned(cfg.Metadata, false)
	if refused := st.checkConsumer(&cfg); refused != nil {
		return nil, refused
	}
	old, filters, queue := st.consumer(cfg.Name), filtersOf(&cfg), st.cfg.Retention == server.WorkQueuePolicy
	switch {
	case old != nil && action == server.ActionCreate && !reflect.DeepEqual(old.cfg, cfg):
		return nil, server.NewJSConsumerAlreadyExistsError()
	case old != nil && queue && !st.unique(old, filters):
		return nil, server.NewJSConsumerWQConsumerNotUniqueError()
	case old != nil:
		if why := old.fixed(&cfg); why != nil {
			return nil, server.NewJSConsumerCreateError(why, server.Unless(why))
		}
		old.cfg, old.filters = cfg, filters
		return old, nil
	case action == server.ActionUpdate:
		return nil, server.NewJSConsumerDoesNotExistError()
	case st.cfg.MaxConsumers > 0 && len(st.consumers) >= st.cfg.MaxConsumers:
		return nil, server.NewJSMaximumConsumersLimitError()
	case queue && cfg.AckPolicy != server.AckExplicit:
		return nil, server.NewJSConsumerWQRequiresExplicitAckError()
	case queue && cfg.DeliverPolicy != server.DeliverAll:
		return nil, server.NewJSConsumerWQConsumerNotDeliverAllError()
	case queue && len(st.consumers) > 0 && len(filters) == 0:
		return nil, server.NewJSConsumerWQMultipleUnfilteredError()
	case queue && !st.unique(nil, filters):
		return nil, server.NewJSConsumerWQConsumerNotUniqueError()
	}
	now := st.js.s.now()
	o := &consumer{st: st, name: cfg.Name, cfg: cfg, created: now, filters: filters, lastAsk: now}
	o.flow = flow{on: cfg.FlowControl, window: flowWindow}
	o.begin()
	st.consumers = append(st.consumers, o)
	o.watchBeat()
	return o, nil
}

// unique reports whether no other consumer than old could get what passes these filters.
func (st *stream) unique(old *consumer, filters []string) bool {
	for _, g := range filters {
		for _, o := range st.consumers {
			if o == old {
				continue
			}
			if len(o.filters) == 0 || slices.ContainsFunc(o.filters, func(f string) bool { return overlap(f, g) }) {
				return false
			}
		}
	}
	return true
}

// fixed reports what of a consumer may not change, and would.
func (o *consumer) fixed(cfg *server.ConsumerConfig) error {
	switch {
	case o.cfg.DeliverPolicy != cfg.DeliverPolicy:
		return errors.New("deliver policy can not be updated")
	case o.cfg.MemoryStorage != cfg.MemoryStorage:
		return errors.New("storage type can not be updated")
	case o.cfg.OptStartSeq != cfg.OptStartSeq:
		return errors.New("start sequence can not be updated")
	case o.cfg.AckPolicy != cfg.AckPolicy:
		return errors.New("ack policy can not be updated")
	case o.cfg.Heartbeat != cfg.Heartbeat:
		return errors.New("heart beats can not be updated")
	case o.cfg.FlowControl != cfg.FlowControl:
		return errors.New("flow control can not be updated")
	case (o.cfg.DeliverSubject == "") != (cfg.DeliverSubject == ""):
		return errors.New("can not update pull consumer to push based")
	case o.cfg.MaxWaiting != cfg.MaxWaiting:
		return errors.New("max waiting can not be updated")
	}
	return nil
}

func filtersOf(cfg *server.ConsumerConfig) []string {
	if cfg.FilterSubject != "" {
		return []string{cfg.FilterSubject}
	}
	return cfg.FilterSubjects
}

// completeConsumer fills in the defaults of a consumer.
func completeConsumer(cfg *server.ConsumerConfig) {
	if cfg.MaxDeliver == 0 {
		cfg.MaxDeliver = -1
	}
	pull, acks := cfg.DeliverSubject == "", cfg.AckPolicy != server.AckNone
	if pull && cfg.MaxWaiting == 0 {
		cfg.MaxWaiting = server.JSWaitQueueDefaultMax
	}
	if acks && cfg.AckWait == 0 {
		cfg.AckWait = server.JsAckWaitDefault
	}
	if len(cfg.BackOff) > 0 {
		cfg.AckWait = cfg.BackOff[0]
	}
	if acks && cfg.MaxAckPending == 0 {
		cfg.MaxAckPending = server.JsDefaultMaxAckPending
	}
	if cfg.Durable == "" && cfg.InactiveThreshold == 0 {
		cfg.InactiveThreshold = ephemeralThreshold
	}
}

// checkConsumer reports what is wrong with a consumer.
func (st *stream) checkConsumer(cfg *server.ConsumerConfig) *server.ApiError {
	queue := st.cfg.Retention == server.WorkQueuePolicy
	switch {
	case strings.ContainsAny(cfg.Name, ".*>\\/"):
		return server.NewJSStreamInvalidConfigError(errors.New(`consumer name can not contain '.', '*', '>', '\', '/'`))
	case cfg.Replicas > 1 && !st.js.clustered:
		return server.NewJSStreamReplicasNotSupportedError()
	case cfg.Replicas > st.cfg.Replicas:
		return server.NewJSConsumerReplicasExceedsStreamError()
	case queue && cfg.Replicas != 0 && cfg.Replicas != st.cfg.Replicas:
		return server.NewJSConsumerReplicasShouldMatchStreamError()
	case len(cfg.BackOff) > 0 && cfg.MaxDeliver != -1 && len(cfg.BackOff) > cfg.MaxDeliver:
		return server.NewJSConsumerMaxDeliverBackoffError()
	case cfg.DeliverSubject != "" && !validLiteral(cfg.DeliverSubject):
		return server.NewJSConsumerDeliverToWildcardsError()
	case cfg.DeliverSubject == "" && cfg.Heartbeat > 0:
		return server.NewJSConsumerHBRequiresPushError()
	case cfg.DeliverSubject == "" && cfg.FlowControl:
		return server.NewJSConsumerFCRequiresPushError()
	case cfg.FilterSubject != "" && len(cfg.FilterSubjects) > 0:
		return server.NewJSConsumerDuplicateFilterSubjectsError()
	case slices.Contains(cfg.FilterSubjects, ""):
		return server.NewJSConsumerEmptyFilterError()
	case cfg.FlowControl && cfg.Heartbeat == 0:
		return server.NewJSConsumerWithFlowControlNeedsHeartbeatsError()
	case cfg.DeliverPolicy == server.DeliverByStartSequence && cfg.OptStartSeq == 0:
		return server.NewJSConsumerInvalidPolicyError(
			errors.New("consumer delivery policy is deliver by start sequence, but optional start sequence is not set"))
	case cfg.DeliverPolicy == server.DeliverByStartTime && cfg.OptStartTime == nil:
		return server.NewJSConsumerInvalidPolicyError(
			errors.New("consumer delivery policy is deliver by start time, but optional start time is not set"))
	case cfg.DeliverPolicy == server.DeliverLastPerSubject && len(filtersOf(cfg)) == 0:
		return server.NewJSConsumerInvalidPolicyError(
			errors.New("consumer delivery policy is deliver last per subject, but optional filter subject is not set"))
	case queue && cfg.AckPolicy == server.AckNone && cfg.DeliverSubject == "":
		return server.NewJSConsumerPullRequiresAckError()
	case cfg.PriorityPolicy != server.PriorityNone || cfg.PauseUntil != nil:
		return server.NewJSStreamInvalidConfigError(errors.New("membroker has no such consumers"))
	}
	for i, a := range cfg.FilterSubjects {
		for j, b := range cfg.FilterSubjects {
			if i != j && within(a, b) {
				return server.NewJSConsumerOverlappingSubjectFiltersError()
			}
		}
	}
	return nil
}

func (js *jetStream) consumers(q *query, st *stream, names bool) {
	var req server.ApiPagedRequest
	if !q.read(&req) {
		return
	}
	all := slices.SortedFunc(slices.Values(st.consumers), func(a, b *consumer) int {
		return strings.Compare(a.name, b.name)
	})
	limit := server.JSApiListLimit
	if names {
		limit = server.JSApiNamesLimit
	}
	page := server.ApiPaged{Total: len(all), Offset: min(max(req.Offset, 0), len(all)), Limit: limit}
	all = all[page.Offset:]
	all = all[:min(limit, len(all))]
	if names {
		out := make([]string, len(all))
		for i, o := range all {
			out[i] = o.name
		}
		q.answer(server.JSApiConsumerNamesResponse{ApiResponse: q.ok(), ApiPaged: page, Consumers: out})
		return
	}
	out := make([]*server.ConsumerInfo, len(all))
	for i, o := range all {
		out[i] = o.info()
	}
	q.answer(server.JSApiConsumerListResponse{ApiResponse: q.ok(), ApiPaged: page, Consumers: out})
}
