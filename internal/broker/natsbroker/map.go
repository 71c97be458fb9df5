package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/shard"
	"github.com/toolyard/toolyard/internal/version"
)

// The map of shards is one key, changed by compare-and-set alone. A system has it once its shards were raised. From
// then on the batch stream's metadata says so: older versions do not join, and who does not find the map does not go
// on.
const (
	bucketMap = "ty_shards"
	keyMap    = "map"
	// metadataRaised is the key of the metadata that says that there is a map.
	metadataRaised = "toolyard.raised"
)

// mapBucket is the bucket of the map.
func mapBucket(s broker.Settings) jetstream.StreamConfig {
	return bucket(s, bucketMap, smallBytes(s), 0, 0)
}

// madeWith is the map of a system that has none: its shards are those that it was made with.
func madeWith(s broker.Settings) shard.Map {
	return shard.Map{Epochs: []shard.Epoch{{Shards: s.ShardCount()}}}
}

// served are settings with the number of shards that are served.
func served(s broker.Settings, m shard.Map) broker.Settings {
	if n := m.Served(); n != s.ShardCount() {
		s.Shards = n
	}
	return s
}

// storedMap is the map under a revision of its key.
type storedMap struct {
	shard.Map
	revision uint64
	// stored is when, by the clock of the server that leads the key.
	stored time.Time
}

// readMap reads the map from the leader of its key; that of [madeWith] if there is none.
func (b *Broker) readMap(ctx context.Context, o *origin) (m storedMap, err error) {
	e, err := answered(ctx, func(ctx context.Context) (jetstream.KeyValueEntry, error) {
		kv, err := b.js.KeyValue(ctx, bucketMap)
		if err != nil {
			return nil, err
		}
		return kv.Get(ctx, keyMap)
	})
	none := errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrKeyNotFound)
	if none && !o.raised {
		return storedMap{Map: madeWith(o.settings)}, nil
	}
	if err == nil {
		m.revision, m.stored = e.Revision(), e.Created()
		err = json.Unmarshal(e.Value(), &m.Map)
	}
	if err == nil {
		err = m.Check()
	}
	if err != nil {
		return m, fmt.Errorf("the map of shards (key %s of %s): %w", keyMap, bucketMap, err)
	}
	return m, nil
}

// look reads the settings and the map of the system. While there is no answer it asks again, until ctx ends.
func (b *Broker) look(ctx context.Context) error {
	pause := firstPause
	for {
		err := b.lookOnce(ctx)
		if err == nil || !MayPass(err) {
			return err
		}
		if wait(ctx, &pause) != nil {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

func (b *Broker) lookOnce(ctx context.Context) error {
	read := time.Now()
	if b.guest != nil {
		h, o, err := b.hello(ctx)
		if err != nil {
			return err
		}
		return b.see(o.settings, h.Shards, read, h.Time, func(one *Broker) error { return one.readyGuest(ctx) })
	}
	s, err := answered(ctx, func(ctx context.Context) (jetstream.Stream, error) {
		return b.js.Stream(ctx, streamBatch)
	})
	if err != nil {
		return fmt.Errorf("stream %s: %w", streamBatch, err)
	}
	o, err := readOrigin(s.CachedInfo().Config.Metadata)
	if err != nil {
		return err
	}
	m, err := b.readMap(ctx, &o)
	if err != nil {
		return err
	}
	return b.see(o.settings, m.Map, read, s.CachedInfo().TimeStamp,
		func(one *Broker) error { return one.attachShard(ctx) })
}

// markRaised notes in the batch stream's metadata that there is a map, and who may read it.
func markRaised(metadata map[string]string) {
	metadata[metadataRaised], metadata[metadataMinReader] = "1", strconv.Itoa(version.Raises)
}

// Shards returns the map of shards as it was read last.
func (b *Broker) Shards() shard.Map { return b.view().Map }
