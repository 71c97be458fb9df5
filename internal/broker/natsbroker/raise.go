package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/shard"
	"github.com/toolyard/toolyard/internal/version"
)

const (
	// raiseLook is how often a raise looks whether the new shards are served.
	raiseLook = time.Second
	// openWithin bounds the age of the time that a new epoch is said to begin at.
	openWithin = 5 * time.Second
	// aboveFormer is how far above the revisions of the former ticket queues those of a new shard begin: further than
	// the former ones get for as long as they are used. So the numbers of a workspace's tickets only grow, also when
	// its former keys have gone.
	aboveFormer = 1 << 32
)

// Raising is what is known of a raise that is under way, for who waits for it.
type Raising struct {
	// Map is the map of shards, and Want how many there are to be.
	Map  shard.Map
	Want int
	// Waits says for whom the raise waits, and Left how long all others still have to read that there will be more. The
	// raise does not wait if both are zero.
	Waits string
	Left  time.Duration
}

// awaited is for what the raise waits, for people; "" if it does not.
func (r *Raising) awaited() string {
	if r.Left <= 0 {
		return r.Waits
	}
	left := fmt.Sprintf("everybody has %s to read that there will be more", r.Left.Round(time.Second))
	if r.Waits == "" {
		return left
	}
	return r.Waits + "; " + left
}

// Raise gives a system more shards while it is used: want.Shards. It may also change the bytes of store: each shard has
// an equal part of them. It takes the steps of [shard.Raise], and calls say before each wait and each look. Anybody may
// call it again after it has failed or died behind any step: then it goes on. announced is how long the new number is
// announced before it counts, [shard.Grace] at least where readers of other processes are to be right.
//
// It fails, and has changed nothing, if there is no system, if the number does not grow, or if the store has too little
// room for so many shards.
func Raise(ctx context.Context, nc *nats.Conn, want broker.Settings, announced time.Duration, say func(Raising)) (was,
	now broker.Settings, err error) {
	b, err := Attach(ctx, nc, "")
	if err != nil {
		return was, now, err
	}
	if b.guest != nil {
		return was, now, errors.New("the credentials are not those of an operator (operator.creds)")
	}
	was = b.Settings()
	was.Shards = b.view().Shards()
	r := &raise{b: b, want: want, announced: announced, say: say}
	for {
		next, err := r.step(ctx)
		if err != nil {
			return was, now, err
		}
		if next == shard.Done {
			if _, now, err = b.Renew(ctx); err == nil {
				err = sameStore(now, want)
			}
			return was, now, err
		}
	}
}

// sameStore is an error where the store that somebody names beside a number of shards, if any, would not be what the
// system has.
func sameStore(has, want broker.Settings) error {
	if want.MaxStoreBytes == 0 || has.MaxStoreBytes == want.MaxStoreBytes {
		return nil
	}
	return fmt.Errorf("the store has %d bytes, and max-store-bytes=%d beside shards changes that only before their "+
		"number is raised: name it in a command of its own, behind the raise", has.MaxStoreBytes, want.MaxStoreBytes)
}

type raise struct {
	b         *Broker
	want      broker.Settings
	announced time.Duration
	say       func(Raising)
	// since is when this process knew that the new number is announced; made that all streams are there.
	since time.Time
	made  bool
}

// step takes one step, and returns which.
func (r *raise) step(ctx context.Context) (shard.Kind, error) {
	f, err := r.b.find(ctx)
	if err != nil {
		return "", err
	}
	if f == nil {
		return "", broker.ErrNoSystem
	}
	if err := f.check(); err != nil {
		return "", err
	}
	read := shard.Raised{Map: f.Map, Served: f.Map.Shards()}
	if read.Made = f.Map.Shards(); r.made {
		read.Made = r.want.Shards
	}
	now := Raising{Map: f.Map, Want: r.want.Shards}
	if f.Map.Next == r.want.Shards && r.made {
		if r.since.IsZero() {
			r.since = time.Now()
		}
		if now.Waits, err = r.late(ctx); err != nil {
			return "", err
		}
		now.Left = max(0, r.announced-time.Since(r.since))
		if now.awaited() == "" {
			read.Served = r.want.Shards
		}
	}
	kind, err := shard.Raise(read, r.want.Shards)
	if err != nil {
		return "", err
	}
	if r.say(now); kind == shard.Done {
		return kind, nil
	}
	switch kind {
	case shard.Make:
		if err = r.make(ctx, f); err == nil {
			r.made = true
			failpoint.Hit(failpoint.ShardsMade)
		}
	case shard.Announce:
		if err = r.announce(ctx, f); err == nil {
			failpoint.Hit(failpoint.ShardsAnnounced)
		}
	case shard.Await:
		select {
		case <-time.After(raiseLook):
		case <-ctx.Done():
			err = fmt.Errorf("%d shards are announced and not open: %s. The same command again goes on", r.want.Shards,
				now.awaited())
		}
	case shard.Open:
		failpoint.Hit(failpoint.ShardsServed)
		if err = r.open(ctx, f); err == nil {
			failpoint.Hit(failpoint.ShardsOpen)
		}
	}
	if errors.Is(err, broker.ErrConflict) { // somebody else has changed the map: it is read again
		err = nil
	}
	return kind, err
}

// make gives each shard its part of the store, and creates what is missing of the new ones.
func (r *raise) make(ctx context.Context, f *found) error {
	if f.Map.Next != 0 {
		if err := sameStore(f.settings, r.want); err != nil {
			return err
		}
	}
	now := f.settings
	now.Shards = r.want.Shards
	if r.want.MaxStoreBytes != 0 {
		now.MaxStoreBytes = r.want.MaxStoreBytes
	}
	if err := now.Check(); err != nil {
		return err
	}
	workers, err := r.b.Workers(ctx)
	if err != nil {
		return err
	}
	for _, w := range workers {
		if w.WireVersion < version.Raises {
			return fmt.Errorf("worker %s has wire version %d, and a system with more shards than it was made with needs "+
				"%d: run a newer version first", w.ID, w.WireVersion, version.Raises)
		}
	}
	if f.Map.Next == 0 { // otherwise that was done before, and the streams may be full again
		if err := r.adopt(ctx, f, now); err != nil {
			return err
		}
		if err := r.b.apply(ctx, f, broker.Settings{MaxStoreBytes: now.MaxStoreBytes}, now); err != nil {
			return err
		}
	}
	floor := uint64(0)
	for n := range f.Map.Shards() {
		end, err := r.b.streamEnd(ctx, nameIn(n, streamTickets))
		if err != nil {
			return err
		}
		floor = max(floor, end)
	}
	for n := f.Map.Shards(); n < now.Shards; n++ {
		for _, cfg := range definitionsIn(now, n, nil) {
			if cfg.Name == nameIn(n, streamTickets) {
				cfg.FirstSeq = floor + aboveFormer
			}
			if err := r.b.createMissing(ctx, cfg); err != nil {
				return err
			}
		}
	}
	return r.b.createMissing(ctx, mapBucket(now))
}

// adopt notes streams of the new shards that an earlier raise has made, with other parts of the store: they change with
// those that are used. Beside streams of further shards there is no room for larger parts.
func (r *raise) adopt(ctx context.Context, f *found, now broker.Settings) error {
	further := false
	if now.Shards < shard.Max { // what is made first of a shard
		var err error
		beyond := &found{have: map[string]jetstream.StreamConfig{}}
		if further, err = r.b.lookInto(ctx, beyond, nameIn(now.Shards, streamTickets)); err != nil {
			return err
		}
	}
	for n := f.Map.Shards(); n < now.Shards; n++ {
		for _, cfg := range definitionsIn(now, n, nil) {
			if _, err := r.b.lookInto(ctx, f, cfg.Name); err != nil {
				return err
			}
			if further && f.have[cfg.Name].MaxBytes < cfg.MaxBytes {
				delete(f.have, cfg.Name)
			}
		}
	}
	return nil
}

// put stores the map in place of the one that was read.
func (r *raise) put(ctx context.Context, was storedMap, m shard.Map) (stored storedMap, err error) {
	value, err := json.Marshal(m)
	if err != nil {
		return stored, fmt.Errorf("encode the map of shards: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	kv, err := r.b.js.KeyValue(ctx, bucketMap)
	if err == nil {
		_, err = replace(ctx, kv, keyMap, value, was.revision)
	}
	if errors.Is(err, jetstream.ErrKeyExists) {
		return stored, broker.ErrConflict
	}
	if err == nil {
		return r.b.readMap(ctx, &origin{raised: true})
	}
	if again, verdict := classify(err); !again {
		err = verdict
	}
	return stored, fmt.Errorf("store the map of shards: %w", err)
}

// announce stores that so many shards are prepared. Before that the streams say that there is a map, so that no older
// version joins.
func (r *raise) announce(ctx context.Context, f *found) error {
	was := f.storedMap
	if was.revision == 0 {
		var err error
		if was, err = r.put(ctx, was, f.Map); err != nil {
			return err
		}
	}
	if err := r.mark(ctx); err != nil {
		return err
	}
	next, err := was.Prepare(r.want.Shards)
	if err != nil {
		return err
	}
	_, err = r.put(ctx, was, next)
	return err
}

// mark notes in the metadata that there is a map.
func (r *raise) mark(ctx context.Context) error {
	s, err := r.b.js.Stream(ctx, streamBatch)
	if err != nil {
		return fmt.Errorf("stream %s: %w", streamBatch, err)
	}
	cfg := s.CachedInfo().Config
	was := maps.Clone(cfg.Metadata)
	if markRaised(cfg.Metadata); maps.Equal(was, cfg.Metadata) {
		return nil
	}
	if _, err := r.b.js.UpdateStream(ctx, cfg); err != nil {
		return fmt.Errorf("stream %s: %w", streamBatch, err)
	}
	return nil
}

// open stores the new epoch. Its begin is the time at which the server has stored the map a moment before.
func (r *raise) open(ctx context.Context, f *found) error {
	if err := r.mark(ctx); err != nil { // a change of other settings may have written over it
		return err
	}
	begun := time.Now()
	touched, err := r.put(ctx, f.storedMap, f.Map)
	if err != nil {
		return err
	}
	next, err := touched.Open(touched.stored)
	if err != nil {
		return err
	}
	if time.Since(begun) > openWithin { // it was paused: what is stored now would be older than it is said to be
		return broker.ErrConflict
	}
	_, err = r.put(ctx, touched, next)
	return err
}

// late names the dispatchers and workers that do not serve the new shards yet, and new shards that nobody serves, for
// people; "" if there are none. Who serves some shards only is not waited for.
func (r *raise) late(ctx context.Context) (string, error) {
	workers, err := r.b.Workers(ctx)
	if err != nil {
		return "", err
	}
	var late []string
	for _, w := range workers {
		if w.Only == nil && w.Shards < r.want.Shards {
			late = append(late, w.ID)
		}
	}
	most := make([]int, r.want.Shards)
	for range looksForDispatchers {
		for n := range most {
			info, err := r.b.js.Consumer(ctx, nameIn(n, streamBatch), consumerDispatchers)
			if errors.Is(err, jetstream.ErrConsumerNotFound) {
				continue
			}
			if err != nil {
				return "", fmt.Errorf("consumer %s of %s: %w", consumerDispatchers, nameIn(n, streamBatch), err)
			}
			most[n] = max(most[n], info.CachedInfo().NumWaiting)
		}
	}
	dispatchers, err := r.b.Dispatchers(ctx)
	if err != nil {
		return "", err
	}
	var why []string
	if silent := slices.Max(most) - len(dispatchers); silent > 0 {
		why = append(why, fmt.Sprintf("%d of the processes that take batches do not say which shards they serve: they "+
			"have an older version", silent))
	}
	all, ready := 0, 0
	for _, d := range dispatchers {
		if d.Only == nil {
			if all++; d.Shards >= r.want.Shards {
				ready++
			}
		}
	}
	if ready < all {
		why = append(why, fmt.Sprintf("of %d dispatchers %d take batches of the new shards", all, ready))
	}
	if len(late) > 0 {
		slices.Sort(late)
		why = append(why, "workers do not take calls of the new shards yet: "+some(late))
	}
	if len(dispatchers) == 0 { // nothing runs in the former shards either
		dispatchers = []broker.Dispatcher{{Shards: r.want.Shards}}
	}
	if ready == all && len(late) == 0 {
		served := broker.ServedShards(dispatchers, workers, r.want.Shards)
		if gaps := broker.Gaps(served[r.b.view().Shards():]); len(gaps) > 0 {
			why = append(why, some(gaps))
		}
	}
	return strings.Join(why, "; "), nil
}

// some are so many of a list's items as a message has.
func some(list []string) string {
	more := ""
	if len(list) > maxLate {
		more = fmt.Sprintf(" and %d more", len(list)-maxLate)
	}
	return strings.Join(list[:min(len(list), maxLate)], ", ") + more
}

// maxLate is how many workers, or shards that are not served, a message names.
const maxLate = 5
