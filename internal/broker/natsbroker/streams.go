package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/toolyard/toolyard/internal/broker"
)

// The streams and buckets. The package comment says what each is for, who writes it and what fences it.
const (
	streamBatch = "TY_BATCH"
	streamEvent = "TY_EVENT"
	streamCall  = "TY_CALL"
	streamReply = "TY_REPLY"
	streamDead  = "TY_DEAD"
	bucketLock  = "ty_ticket"
	bucketAlive = "ty_worker"
	bucketBlob  = "ty_blob"

	bucketSession  = "ty_session"
	bucketIndex    = "ty_index"
	bucketApproval = "ty_approval"

	streamWorkers = "KV_" + bucketAlive // read as a stream, to see the markers of expired entries
	streamTickets = "KV_" + bucketLock  // the same, to delete keys without a marker
	streamIndex   = "KV_" + bucketIndex // the same, for its subjects

	consumerDispatchers = "dispatchers"
)

// storeParts divides [Settings.MaxStoreBytes]. The small ones (the key-value buckets except the index, and the dead
// letters) share one part, by eighths.
const (
	partBatch, partEvent, partCall, partReply, partBlob, partIndex = 2, 4, 2, 4, 2, 1
	partsAll                                                       = 16
	smallParts                                                     = 8
)

func storage(s broker.Settings) jetstream.StorageType {
	if s.InMemory {
		return jetstream.MemoryStorage
	}
	return jetstream.FileStorage
}

// definitions are the configurations of the streams and of the buckets' streams, the batch stream last: if it exists,
// all of them do. Reads that decide something go to the leader: see [direct]. None allows rollups, with which any
// publisher could empty it. Raise layout with every change of a definition.
func definitions(s broker.Settings) ([]jetstream.StreamConfig, error) {
	settings, err := metadataOf(s)
	if err != nil {
		return nil, err
	}
	var out []jetstream.StreamConfig
	for n := s.ShardCount() - 1; n >= 0; n-- { // the batch stream of shard 0 is the last one
		out = append(out, definitionsIn(s, n, settings)...)
	}
	return out, nil
}

// direct reports whether streams allow direct gets, which any replica answers, also one that is behind its leader. Of a
// stream with one replica there is nothing else to read, and the server spends half of the time on an answer.
func direct(s broker.Settings) bool { return s.Replicas == 1 }

// definitionsIn are those of one shard. Each has the same part of the store.
func definitionsIn(s broker.Settings, shard int, settings map[string]string) []jetstream.StreamConfig {
	shards := int64(s.ShardCount())
	part := func(n int64) int64 { return s.MaxStoreBytes / partsAll * n / shards }
	common := func(name, subject string, bytes int64) jetstream.StreamConfig {
		return jetstream.StreamConfig{
			Name: nameIn(shard, name), Subjects: []string{subjectIn(shard, subject)}, Storage: storage(s),
			Replicas: s.Replicas, Retention: jetstream.LimitsPolicy, MaxAge: s.Lifetime + s.Slack, MaxBytes: bytes,
			// If it is full, the newest message is refused and its writer gets an error; the oldest would vanish
			// silently.
			Discard: jetstream.DiscardNew, MaxMsgs: -1, MaxMsgsPerSubject: -1, MaxMsgSize: -1, AllowDirect: direct(s),
			Metadata: madeBy(),
		}
	}
	event := common(streamEvent, prefixEvent+"*.*.*.*", part(partEvent))
	live := func(source, destination string) *jetstream.RePublish {
		return &jetstream.RePublish{Source: subjectIn(shard, source+">"), Destination: destination + ">"}
	}
	event.RePublish = live(prefixEvent, prefixLiveEvent)
	call := common(streamCall, prefixCall+">", part(partCall))
	call.Retention, call.MaxMsgs = jetstream.WorkQueuePolicy, broker.MaxQueuedCalls
	reply := common(streamReply, prefixReply+"*.*", part(partReply))
	reply.RePublish = live(prefixReply, prefixLiveReply)
	submissions := common(streamBatch, prefixBatch+"*.*", part(partBatch))
	// its consumer delivers both
	submissions.Subjects = append(submissions.Subjects, subjectIn(shard, prefixWake+"*.*"))
	// Calls go within moments, and dead letters and keys fill no block.
	for _, large := range []*jetstream.StreamConfig{&event, &reply, &submissions} {
		large.Compression = compression(s)
	}
	small := smallBytes(s)
	own := []jetstream.StreamConfig{
		bucket(s, nameIn(shard, bucketLock), small/shards, 0, 0),
		bucket(s, nameIn(shard, bucketApproval), small/shards, s.Lifetime+s.Slack, s.WorkerTTL),
		bucket(s, nameIn(shard, bucketIndex), part(partIndex), s.Lifetime+s.Slack, 0),
		event, call, reply,
	}
	if shard > 0 {
		return append(own, submissions)
	}
	submissions.Metadata = settings
	dead := common(streamDead, prefixDead+"*.*.*", small)
	// the only stream that drops the oldest messages: nobody waits for them
	dead.Discard, dead.MaxMsgs = jetstream.DiscardOld, broker.MaxDeadLetters
	return append(own,
		bucket(s, bucketAlive, small, 0, s.WorkerTTL),
		bucket(s, bucketSession, small, s.Lifetime+s.Slack, 0),
		objects(s, bucketBlob, part(partBlob)*shards, s.Lifetime+s.Slack),
		dead, submissions)
}

// bucket is the stream of a key-value bucket, as the client library creates it, but for direct gets: see [direct].
// markers is how long the marker of an expired key stays; 0 if keys do not expire.
func bucket(s broker.Settings, name string, bytes int64, age, markers time.Duration) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: "KV_" + name, Subjects: []string{"$KV." + name + ".>"}, Storage: storage(s), Replicas: s.Replicas,
		MaxMsgsPerSubject: 1, MaxBytes: bytes, MaxAge: age, MaxMsgSize: -1, MaxMsgs: -1, MaxConsumers: -1,
		Discard: jetstream.DiscardNew, AllowRollup: true, DenyDelete: true, AllowMsgTTL: markers > 0,
		SubjectDeleteMarkerTTL: markers, AllowDirect: direct(s), Metadata: madeBy(),
	}
}

// objects is the stream of an object store, as the client library creates it, but for direct gets: see [direct]. Of
// several replicas only the leader knows that an object does not exist.
func objects(s broker.Settings, name string, bytes int64, age time.Duration) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: "OBJ_" + name, Subjects: []string{"$O." + name + ".C.>", "$O." + name + ".M.>"}, Storage: storage(s),
		Replicas: s.Replicas,
		MaxBytes: bytes, MaxAge: age, Discard: jetstream.DiscardNew, AllowRollup: true, AllowDirect: direct(s),
		Compression: compression(s), Metadata: madeBy(),
	}
}

// smallBytes is the size of one small stream.
func smallBytes(s broker.Settings) int64 { return s.MaxStoreBytes / partsAll / smallParts }

// create creates what is missing. It does not change what exists: updating streams at each start has lost messages on
// clusters.
func (b *Broker) create(ctx context.Context) error {
	s := b.Settings()
	wanted, err := definitions(s)
	if err != nil {
		return err
	}
	for _, cfg := range wanted {
		if err := b.createMissing(ctx, cfg); err != nil {
			return err
		}
	}
	return nil
}

// createMissing creates a stream unless it is there.
func (b *Broker) createMissing(ctx context.Context, cfg jetstream.StreamConfig) error {
	_, err := answered(ctx, func(ctx context.Context) (jetstream.Stream, error) { return b.js.Stream(ctx, cfg.Name) })
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = answered(ctx, func(ctx context.Context) (jetstream.Stream, error) {
			return b.js.CreateStream(ctx, cfg)
		})
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", cfg.Name, noRoom(err))
	}
	return nil
}

// codeNoStorage is the server's error code if there is no space for a stream.
const codeNoStorage jetstream.ErrorCode = 10047

// noRoom says what to do if the server has no space for a stream: other streams use it, perhaps with the sizes of an
// older version.
func noRoom(err error) error {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == codeNoStorage {
		return fmt.Errorf("there is no room for it beside the streams that are there: give the NATS account more "+
			"storage, "+
			"or, if an older version has made them, start on an empty store (another --data) "+
			"when it has finished what runs (%v)", err)
	}
	return err
}

// setupAttempt bounds one request of the setup. A lost request, as may happen while a cluster forms, is repeated.
const setupAttempt = 5 * time.Second

func answered[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, setupAttempt)
	defer cancel()
	return ask(ctx)
}

// attach finds everything that create creates, and reads the stored settings.
func (b *Broker) attach(ctx context.Context) error {
	if err := b.attachShard(ctx); err != nil {
		return err
	}
	return b.lookOnce(ctx)
}

func (b *Broker) attachShard(ctx context.Context) error {
	b.streams = map[string]jetstream.Stream{}
	for _, name := range []string{ // the first says whose system it is
		streamBatch, streamEvent, streamCall, streamReply, streamDead, streamWorkers, streamTickets, streamIndex,
	} {
		reconnects := b.Reconnects()
		s, err := answered(ctx, func(ctx context.Context) (jetstream.Stream, error) {
			return b.js.Stream(ctx, b.name(name))
		})
		if err != nil {
			return fmt.Errorf("stream %s: %w", b.name(name), err)
		}
		if name == streamCall {
			b.forgotten.note(reconnects, s.CachedInfo().State.LastSeq)
		}
		if name == streamBatch {
			b.earlier.note(reconnects, s.CachedInfo().State.LastSeq)
		}
		if name == streamBatch && b.shard == 0 {
			origin, err := readOrigin(s.CachedInfo().Config.Metadata)
			if err != nil {
				return err
			}
			if b.view().Served() == 1 { // otherwise look has stored them
				b.held.Store(&origin.settings)
			}
		}
		b.streams[name] = s
	}
	_, err := answered(ctx, func(ctx context.Context) (jetstream.Consumer, error) {
		return consumer(ctx, b.streams[streamBatch], jetstream.ConsumerConfig{
			Durable: consumerDispatchers, AckPolicy: jetstream.AckExplicitPolicy,
			AckWait:    b.Settings().BatchAckWait,
			MaxDeliver: -1, MaxAckPending: broker.MaxOpenSubmissions, MaxWaiting: broker.MaxWaitingPulls,
		}, func() error { return nil })
	})
	if err != nil {
		return fmt.Errorf("consumer %s of %s: %w", consumerDispatchers, b.name(streamBatch), err)
	}
	for _, bucket := range []struct {
		name string
		kv   *jetstream.KeyValue
	}{
		{bucketLock, &b.tickets}, {bucketAlive, &b.workers}, {bucketSession, &b.sessions},
		{bucketApproval, &b.approvals},
	} {
		kv, err := answered(ctx, func(ctx context.Context) (jetstream.KeyValue,
			error) {
			return b.js.KeyValue(ctx, b.name(bucket.name))
		})
		if err != nil {
			return fmt.Errorf("key-value bucket %s: %w", bucket.name, err)
		}
		*bucket.kv = kv
	}
	if b.blobs, err = answered(ctx, func(ctx context.Context) (jetstream.ObjectStore,
		error) {
		return b.js.ObjectStore(ctx, bucketBlob)
	}); err != nil {
		return fmt.Errorf("object store %s: %w", bucketBlob, err)
	}
	return nil
}

// consumer finds a consumer, or makes it where there is room. One that was restored with other waits than it was saved
// with gets them here.
func consumer(ctx context.Context, of jetstream.Stream, cfg jetstream.ConsumerConfig, room func() error,
) (jetstream.Consumer, error) {
	cons, err := of.Consumer(ctx, cfg.Durable)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		if err := room(); err != nil {
			return nil, err
		}
		return of.CreateConsumer(ctx, cfg)
	case err == nil && cons.CachedInfo().Config.AckWait != cfg.AckWait:
		have := cons.CachedInfo().Config
		have.AckWait = cfg.AckWait
		return of.UpdateConsumer(ctx, have)
	}
	return cons, err
}

// filled are the streams and buckets that running batches write to, and whether a refusal is stored there too.
var filled = []struct {
	name, stream string
	refusals     bool
}{
	{streamEvent, streamEvent, true},
	{streamReply, streamReply, true},
	{streamCall, streamCall, false},
	{bucketLock, streamTickets, false},
	{bucketSession, "KV_" + bucketSession, false},
	{bucketApproval, "KV_" + bucketApproval, false},
	{bucketIndex, streamIndex, false},
	{bucketBlob, "OBJ_" + bucketBlob, false},
}

// Fill examines everything that running batches write to, and returns the fullest.
func (b *Broker) Fill(ctx context.Context) (broker.Fill, error) {
	var fullest broker.Fill
	for _, one := range b.each() {
		for _, f := range filled {
			if one.shard > 0 && slices.Contains(global, f.stream) {
				continue
			}
			// The shared handle is safe for concurrent use only as long as its Info is not called.
			s, err := b.js.Stream(ctx, one.name(f.stream))
			if err != nil {
				return fullest, fmt.Errorf("stream %s: %w", one.name(f.stream), err)
			}
			percent := fillOf(s.CachedInfo())
			if percent >= fullest.Percent {
				fullest.Stream, fullest.Percent = one.name(f.name), percent
			}
			if f.refusals {
				fullest.Refusals = max(fullest.Refusals, percent)
			}
		}
	}
	return fullest, nil
}

// fillOf is how full a stream is, in percent: of its bytes, or of its messages if that is more.
func fillOf(info *jetstream.StreamInfo) int {
	percent := 0
	if most := info.Config.MaxBytes; most > 0 {
		percent = int(float64(info.State.Bytes) / float64(most) * 100)
	}
	if most := info.Config.MaxMsgs; most > 0 {
		percent = max(percent, int(float64(info.State.Msgs)/float64(most)*100))
	}
	return percent
}
