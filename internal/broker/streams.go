package broker

import (
	"context"
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

// streams are the definitions. Reads that decide go through the leader, so none allows direct gets; none allows
// rollups, with which any publisher could empty it.
func (s Settings) streams() []jetstream.StreamConfig {
	part := func(n int64) int64 { return s.MaxStoreBytes / partsAll * n }
	common := func(name, subjects string, bytes int64) jetstream.StreamConfig {
		return jetstream.StreamConfig{
			Name: name, Subjects: []string{subjects}, Storage: jetstream.FileStorage, Replicas: s.Replicas,
			Retention: jetstream.LimitsPolicy, MaxAge: s.Lifetime + s.Slack, MaxBytes: bytes,
			// When it is full, the newest is refused and its writer told; the oldest would vanish silently.
			Discard: jetstream.DiscardNew, MaxMsgs: -1, MaxMsgsPerSubject: -1, MaxMsgSize: -1,
		}
	}
	submissions := common(streamBatch, prefixBatch+"*.*", part(partBatch))
	event := common(streamEvent, prefixEvent+"*.*.*.*", part(partEvent))
	event.RePublish = &jetstream.RePublish{Source: prefixEvent + ">", Destination: prefixLiveEvent + ">"}
	call := common(streamCall, prefixCall+">", part(partCall))
	call.Retention, call.MaxMsgs = jetstream.WorkQueuePolicy, MaxQueuedCalls
	reply := common(streamReply, prefixReply+"*.*", part(partReply))
	reply.RePublish = &jetstream.RePublish{Source: prefixReply + ">", Destination: prefixLiveReply + ">"}
	return []jetstream.StreamConfig{submissions, event, call, reply}
}

// setup makes what is missing. What is there stays as it is: updating streams at each start has lost messages on
// clusters.
func (b *Broker) setup(ctx context.Context) error {
	b.streams = map[string]jetstream.Stream{}
	for _, cfg := range b.settings.streams() {
		s, err := b.js.Stream(ctx, cfg.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			s, err = b.js.CreateStream(ctx, cfg)
		}
		if err != nil {
			return fmt.Errorf("stream %s: %w", cfg.Name, err)
		}
		if have := s.CachedInfo().Config; have.MaxAge < b.settings.Lifetime+b.settings.Slack {
			return fmt.Errorf("stream %s keeps messages for %s, less than the batch lifetime and slack (%s): use the lifetime that it was made with, or delete the stream",
				cfg.Name, have.MaxAge, b.settings.Lifetime+b.settings.Slack)
		}
		b.streams[cfg.Name] = s
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
	small := b.settings.MaxStoreBytes / partsAll / 2
	b.tickets, err = b.bucket(ctx, jetstream.KeyValueConfig{
		Bucket: bucketLock, History: 1, Storage: jetstream.FileStorage, Replicas: b.settings.Replicas, MaxBytes: small,
	})
	if err != nil {
		return err
	}
	b.workers, err = b.bucket(ctx, jetstream.KeyValueConfig{
		Bucket: bucketAlive, History: 1, Storage: jetstream.FileStorage, Replicas: b.settings.Replicas, MaxBytes: small,
		LimitMarkerTTL: b.settings.WorkerTTL,
	})
	if err != nil {
		return err
	}
	b.blobs, err = b.js.ObjectStore(ctx, bucketBlob)
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		b.blobs, err = b.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
			Bucket: bucketBlob, TTL: b.settings.Lifetime + b.settings.Slack, Storage: jetstream.FileStorage,
			Replicas: b.settings.Replicas, MaxBytes: b.settings.MaxStoreBytes / partsAll * partBlob,
		})
	}
	if err != nil {
		return fmt.Errorf("object store %s: %w", bucketBlob, err)
	}
	return nil
}

func (b *Broker) bucket(ctx context.Context, cfg jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	kv, err := b.js.KeyValue(ctx, cfg.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = b.js.CreateKeyValue(ctx, cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("key-value bucket %s: %w", cfg.Bucket, err)
	}
	return kv, nil
}
