package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// The streams and buckets. What each is for, who writes it and what fences it stands in the package comment.
const (
	streamBatch = "TY_BATCH"
	streamEvent = "TY_EVENT"
	streamCall  = "TY_CALL"
	streamReply = "TY_REPLY"
	bucketLock  = "ty_ticket"
	bucketAlive = "ty_worker"
	bucketBlob  = "ty_blob"

	consumerDispatchers = "dispatchers"
)

// storeParts divides [Settings.MaxStoreBytes]; the two key-value buckets take the rest.
const (
	partBatch, partEvent, partCall, partReply, partBlob = 2, 4, 2, 4, 3
	partsAll                                            = 16
)

// metadataSettings is the key under which the batch stream's metadata has the system's settings.
const metadataSettings = "toolyard.settings"

func (s Settings) storage() jetstream.StorageType {
	if s.InMemory {
		return jetstream.MemoryStorage
	}
	return jetstream.FileStorage
}

// definitions are those of the streams, the batch stream last: once it is there, all of them are. Reads that decide go
// through the leader, so none allows direct gets; none allows rollups, with which any publisher could empty it.
func (s Settings) definitions() ([]jetstream.StreamConfig, error) {
	written, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode the settings: %w", err)
	}
	part := func(n int64) int64 { return s.MaxStoreBytes / partsAll * n }
	common := func(name, subjects string, bytes int64) jetstream.StreamConfig {
		return jetstream.StreamConfig{
			Name: name, Subjects: []string{subjects}, Storage: s.storage(), Replicas: s.Replicas,
			Retention: jetstream.LimitsPolicy, MaxAge: s.Lifetime + s.Slack, MaxBytes: bytes,
			// When it is full, the newest is refused and its writer told; the oldest would vanish silently.
			Discard: jetstream.DiscardNew, MaxMsgs: -1, MaxMsgsPerSubject: -1, MaxMsgSize: -1,
		}
	}
	event := common(streamEvent, prefixEvent+"*.*.*.*", part(partEvent))
	event.RePublish = &jetstream.RePublish{Source: prefixEvent + ">", Destination: prefixLiveEvent + ">"}
	call := common(streamCall, prefixCall+">", part(partCall))
	call.Retention, call.MaxMsgs = jetstream.WorkQueuePolicy, MaxQueuedCalls
	reply := common(streamReply, prefixReply+"*.*", part(partReply))
	reply.RePublish = &jetstream.RePublish{Source: prefixReply + ">", Destination: prefixLiveReply + ">"}
	submissions := common(streamBatch, prefixBatch+"*.*", part(partBatch))
	submissions.Metadata = map[string]string{metadataSettings: string(written)}
	return []jetstream.StreamConfig{event, call, reply, submissions}, nil
}

// create makes what is missing. What is there stays as it is: updating streams at each start has lost messages on
// clusters.
func (b *Broker) create(ctx context.Context) error {
	s := b.settings
	definitions, err := s.definitions()
	if err != nil {
		return err
	}
	small := s.MaxStoreBytes / partsAll / 2
	if err := b.makeBucket(ctx, jetstream.KeyValueConfig{
		Bucket: bucketLock, History: 1, Storage: s.storage(), Replicas: s.Replicas, MaxBytes: small,
	}); err != nil {
		return err
	}
	if err := b.makeBucket(ctx, jetstream.KeyValueConfig{
		Bucket: bucketAlive, History: 1, Storage: s.storage(), Replicas: s.Replicas, MaxBytes: small, LimitMarkerTTL: s.WorkerTTL,
	}); err != nil {
		return err
	}
	_, err = b.js.ObjectStore(ctx, bucketBlob)
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = b.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
			Bucket: bucketBlob, TTL: s.Lifetime + s.Slack, Storage: s.storage(), Replicas: s.Replicas, MaxBytes: s.MaxStoreBytes / partsAll * partBlob,
		})
	}
	if err != nil {
		return fmt.Errorf("object store %s: %w", bucketBlob, err)
	}
	for _, cfg := range definitions {
		_, err := b.js.Stream(ctx, cfg.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			_, err = b.js.CreateStream(ctx, cfg)
		}
		if err != nil {
			return fmt.Errorf("stream %s: %w", cfg.Name, err)
		}
	}
	return nil
}

// attach finds everything that create makes, and takes the settings that are written down there.
func (b *Broker) attach(ctx context.Context) error {
	b.streams = map[string]jetstream.Stream{}
	for _, name := range []string{streamBatch, streamEvent, streamCall, streamReply} {
		s, err := b.js.Stream(ctx, name)
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		b.streams[name] = s
	}
	written := b.streams[streamBatch].CachedInfo().Config.Metadata[metadataSettings]
	if err := json.Unmarshal([]byte(written), &b.settings); err != nil {
		return fmt.Errorf("stream %s has no settings of Toolyard: %w", streamBatch, err)
	}
	if err := b.settings.Check(); err != nil {
		return fmt.Errorf("the settings written down in stream %s: %w", streamBatch, err)
	}
	cons, err := b.streams[streamBatch].Consumer(ctx, consumerDispatchers)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		cons, err = b.streams[streamBatch].CreateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: consumerDispatchers, AckPolicy: jetstream.AckExplicitPolicy, AckWait: b.settings.BatchAckWait,
			MaxDeliver: -1, MaxAckPending: MaxOpenSubmissions, MaxWaiting: MaxWaitingPulls,
		})
	}
	if err != nil {
		return fmt.Errorf("consumer %s of %s: %w", consumerDispatchers, streamBatch, err)
	}
	b.submissions = cons
	if b.tickets, err = b.js.KeyValue(ctx, bucketLock); err != nil {
		return fmt.Errorf("key-value bucket %s: %w", bucketLock, err)
	}
	if b.workers, err = b.js.KeyValue(ctx, bucketAlive); err != nil {
		return fmt.Errorf("key-value bucket %s: %w", bucketAlive, err)
	}
	if b.blobs, err = b.js.ObjectStore(ctx, bucketBlob); err != nil {
		return fmt.Errorf("object store %s: %w", bucketBlob, err)
	}
	return nil
}

func (b *Broker) makeBucket(ctx context.Context, cfg jetstream.KeyValueConfig) error {
	_, err := b.js.KeyValue(ctx, cfg.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		_, err = b.js.CreateKeyValue(ctx, cfg)
	}
	if err != nil {
		return fmt.Errorf("key-value bucket %s: %w", cfg.Bucket, err)
	}
	return nil
}
