package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/broker"
)

// Change changes the lifetime of batches, and the size and compression of the store, as far as want has them, also
// while the system is used. It returns the settings before and after. It fails, and has changed nothing, if there is no
// system ([broker.ErrNoSystem]), if want has another value of a setting that cannot change, if
// [broker.Settings.MayBecome] forbids it, or if the server is too old for compression. If it fails later, the same
// change again completes it, and the former values undo it: the batch stream, which says what the settings are, is
// changed last.
//
// Dispatchers that run read the new settings with [Broker.Renew].
func Change(ctx context.Context, nc *nats.Conn, want broker.Settings) (was, now broker.Settings, err error) {
	b, err := on(nc, broker.Settings{}, "")
	if err != nil {
		return was, now, err
	}
	f, err := b.find(ctx)
	if err == nil && f == nil {
		err = broker.ErrNoSystem
	}
	if err != nil {
		return was, now, err
	}
	if err := f.check(); err != nil {
		return was, now, err
	}
	was = f.settings
	if f.Next != 0 {
		return was, now, fmt.Errorf("the number of shards is being raised to %d: finish that first (dispatcher settings "+
			"shards=%d)", f.Next, f.Next)
	}
	if now, err = was.With(want); err == nil {
		err = b.mayCompress(now)
	}
	if err != nil {
		return was, now, err
	}
	return was, now, b.apply(ctx, f, want, now)
}

// apply changes the streams of a system to other settings.
func (b *Broker) apply(ctx context.Context, f *found, want, now broker.Settings) error {
	was := f.settings
	changes, err := f.changes(want, now)
	if err != nil {
		return err
	}
	if now.Lifetime < was.Lifetime || now.PartBytes() < was.PartBytes() {
		stored, err := stored(ctx, b.nc, changes)
		if err != nil {
			return err
		}
		if err := was.MayBecome(now, stored, time.Now()); err != nil {
			return err
		}
	}
	for _, cfg := range changes {
		if _, err := retry(ctx, func(ctx context.Context) (jetstream.Stream, error) {
			return b.js.UpdateStream(ctx, cfg)
		}); err != nil {
			return fmt.Errorf("stream %s: %w; streams before it are changed, and the settings are not: "+
				"the same command again goes on, and the former values undo it", cfg.Name, noMore(err))
		}
	}
	if f, err = b.find(ctx); err == nil {
		var left []jetstream.StreamConfig
		if left, err = f.changes(want, now); err == nil && len(left) > 0 {
			err = fmt.Errorf("somebody else has changed the system at the same time (stream %s): look at its "+
				"settings, and change them again", left[0].Name)
		}
	}
	return err
}

// noMore says what to do if the servers have no more storage for a stream.
func noMore(err error) error {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == codeNoStorage {
		return fmt.Errorf("the NATS servers, or the account, allow no more storage: raise max_file_store of each "+
			"server or the account's limit, or name a smaller store (%v)", err)
	}
	return err
}

// changes are the streams that have to change, as they become, the batch stream last. What want does not have stays as
// it is, also where an operator has changed it.
func (f *found) changes(want, now broker.Settings) (out []jetstream.StreamConfig, err error) {
	wanted, err := definitions(now)
	if err != nil {
		return nil, err
	}
	for _, d := range append(optional(now), wanted...) {
		have, ok := f.have[d.Name]
		if !ok {
			continue
		}
		next := have
		if want.MaxStoreBytes != 0 {
			next.MaxBytes = d.MaxBytes
		}
		if want.Lifetime != 0 && d.MaxAge != 0 {
			next.MaxAge, next.Duplicates = d.MaxAge, min(have.Duplicates, d.MaxAge)
		}
		if want.Compression != "" {
			next.Compression = d.Compression
		}
		changed := next.MaxBytes != have.MaxBytes || next.MaxAge != have.MaxAge || next.Compression != have.Compression
		written := now
		written.Shards = f.made.Shards
		if d.Name == streamBatch && (written != f.made || f.revision > 0 && !f.raised) {
			changed = true
			next.Metadata = maps.Clone(have.Metadata)
			if next.Metadata[metadataSettings], err = rewritten(have.Metadata[metadataSettings], written); err != nil {
				return nil, err
			}
			if f.revision > 0 {
				markRaised(next.Metadata)
			}
		}
		if changed {
			out = append(out, next)
		}
	}
	return out, nil
}

// rewritten puts changed settings into settings that any version wrote: what this version does not know stays.
func rewritten(written string, now broker.Settings) (string, error) {
	fields := map[string]json.RawMessage{}
	known, err := json.Marshal(now)
	if err == nil {
		err = json.Unmarshal([]byte(written), &fields)
	}
	if err == nil {
		err = json.Unmarshal(known, &fields)
	}
	if err != nil {
		return "", fmt.Errorf("the settings written down in stream %s: %w", streamBatch, err)
	}
	out, err := json.Marshal(fields)
	return string(out), err
}

// looksForDispatchers is how often a system is looked at for dispatchers that wait for batches: between two of its
// requests a dispatcher is not seen for a round trip.
const looksForDispatchers = 10

// stored is what a system holds and runs that has to become as in changes.
func stored(ctx context.Context, nc *nats.Conn, changes []jetstream.StreamConfig) (in broker.Stored, err error) {
	b, err := Attach(ctx, nc, "")
	if err != nil {
		return in, err
	}
	for _, cfg := range changes {
		s, err := b.js.Stream(ctx, cfg.Name)
		if err != nil {
			return in, fmt.Errorf("stream %s: %w", cfg.Name, err)
		}
		state := s.CachedInfo().State
		c := broker.Content{Name: cfg.Name, Bytes: int64(state.Bytes), MaxBytes: cfg.MaxBytes}
		if cfg.MaxAge != 0 && state.Msgs > 0 {
			c.Oldest = state.FirstTime
		}
		in.Streams = append(in.Streams, c)
	}
	for range looksForDispatchers {
		for _, one := range b.each() {
			cons, err := b.js.Consumer(ctx, one.name(streamBatch), consumerDispatchers)
			if err != nil {
				return in, fmt.Errorf("consumer %s of %s: %w", consumerDispatchers, one.name(streamBatch), err)
			}
			info := cons.CachedInfo()
			in.Running = in.Running || info.NumWaiting > 0
			in.UnderWay = in.UnderWay || info.NumPending > 0 || info.NumAckPending > 0
		}
	}
	workers, err := b.Workers(ctx)
	if err != nil {
		return in, err
	}
	live, _, err := b.Index().Page(ctx, broker.Filter{Live: true, Limit: 1})
	if err != nil {
		return in, err
	}
	in.Running, in.UnderWay = in.Running || len(workers) > 0, in.UnderWay || len(live) > 0
	return in, nil
}

// Renew implements [broker.Link].
func (b *Broker) Renew(ctx context.Context) (was, now broker.Settings, err error) {
	was = b.Settings()
	if err := b.system.reading.LockWithin(ctx); err != nil {
		return was, was, fmt.Errorf("somebody else still reads the map of shards: %w", err)
	}
	defer b.system.reading.Unlock()
	err = b.lookOnce(ctx)
	return was, b.Settings(), err
}
