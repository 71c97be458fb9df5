package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/toolyard/toolyard/internal/broker"
)

// found is an existing system.
type found struct {
	origin
	// storedMap is the map of shards. The settings have the number of them that are served; made are those that stand
	// in the metadata, with the number that the system was made with.
	storedMap
	made broker.Settings
	want []jetstream.StreamConfig          // the streams as this version creates them, the batch stream last
	have map[string]jetstream.StreamConfig // the existing ones, by name
}

// optional are the streams that a system has only when somebody needed them.
func optional(s broker.Settings) []jetstream.StreamConfig {
	out := []jetstream.StreamConfig{usageBucket(s), budgetBucket(s), mapBucket(s)}
	for n := range s.ShardCount() {
		out = append(out, archiveDefinition(s, n))
	}
	return out
}

// find looks for a system and reads its origin; nil if there is none.
func (b *Broker) find(ctx context.Context) (*found, error) {
	f := &found{have: map[string]jetstream.StreamConfig{}}
	there, err := b.lookInto(ctx, f, streamBatch)
	if err != nil || !there {
		return nil, err
	}
	if f.origin, err = readOrigin(f.have[streamBatch].Metadata); err != nil {
		return nil, err
	}
	if f.storedMap, err = b.readMap(ctx, &f.origin); err != nil {
		return nil, err
	}
	f.made = f.settings
	f.settings = served(f.settings, f.Map)
	if f.want, err = definitions(f.settings); err != nil {
		return nil, err
	}
	for _, d := range append(optional(f.settings), f.want...) {
		if _, err := b.lookInto(ctx, f, d.Name); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// lookInto reads the configuration of a stream, if it is there.
func (b *Broker) lookInto(ctx context.Context, f *found, name string) (there bool, err error) {
	s, err := answered(ctx, func(ctx context.Context) (jetstream.Stream, error) { return b.js.Stream(ctx, name) })
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("stream %s: %w", name, err)
	}
	f.have[name] = s.CachedInfo().Config
	return true, nil
}

// check says in one line what prevents this version from running on the system's streams, and what to do about it. It
// ignores missing streams, and an operator's changes to streams that have this version's layout.
func (f *found) check() error {
	if f.layout >= layout {
		return nil
	}
	var what []string
	streams := map[string][]string{}
	for _, d := range f.want {
		for _, diff := range f.differences(d) {
			if diff.mend == nil {
				return diff.hopeless()
			}
			if streams[diff.what] == nil {
				what = append(what, diff.what)
			}
			streams[diff.what] = append(streams[diff.what], diff.stream)
		}
	}
	if len(what) == 0 {
		return nil
	}
	for i, w := range what {
		what[i] = w + " (" + strings.Join(streams[w], ", ") + ")"
	}
	return fmt.Errorf("the streams were made by an older version (layout %d; this version's is %d) and have %s: "+
		"stop all dispatchers and workers, and start one dispatcher with --migrate, once",
		f.layout, layout, strings.Join(what, "; "))
}

// difference is a difference between a stream and its definition. If mend is nil, it cannot be changed.
type difference struct {
	stream, what string
	mend         func(*jetstream.StreamConfig)
}

func (d *difference) hopeless() error {
	return fmt.Errorf("stream %s was made by an older version, and has %s: let that version finish what runs, "+
		"and start this one on an empty store (another --data, or delete the streams)", d.stream, d.what)
}

// differences compares an existing stream with its definition. Its limits, and its number of replicas, are the
// operator's choice.
func (f *found) differences(want jetstream.StreamConfig) (out []difference) {
	have, ok := f.have[want.Name]
	if !ok {
		return nil
	}
	type config = jetstream.StreamConfig
	differ := func(mend func(*config), format string, args ...any) {
		out = append(out, difference{want.Name, fmt.Sprintf(format, args...), mend})
	}
	if have.Retention != want.Retention {
		differ(nil, "the retention %s instead of %s", have.Retention, want.Retention)
	}
	for _, s := range have.Subjects {
		if !slices.Contains(want.Subjects, s) {
			differ(nil, "the subject %s, which this version does not read", s)
		}
	}
	for _, s := range want.Subjects {
		if !slices.Contains(have.Subjects, s) {
			differ(func(c *config) { c.Subjects = append(slices.Clone(c.Subjects), s) }, "no subject %s", s)
		}
	}
	if have.MaxAge != 0 && (want.MaxAge == 0 || have.MaxAge < want.MaxAge) {
		differ(func(c *config) { c.MaxAge = want.MaxAge }, "messages for %s instead of %s", have.MaxAge, want.MaxAge)
	}
	if have.Discard != want.Discard {
		differ(func(c *config) { c.Discard = want.Discard }, "the policy %s instead of %s", have.Discard, want.Discard)
	}
	if want.AllowMsgTTL && (!have.AllowMsgTTL || have.SubjectDeleteMarkerTTL != want.SubjectDeleteMarkerTTL) {
		differ(func(c *config) {
			c.AllowMsgTTL, c.SubjectDeleteMarkerTTL = true, want.SubjectDeleteMarkerTTL
		}, "marks of what has expired for %s instead of %s", have.SubjectDeleteMarkerTTL, want.SubjectDeleteMarkerTTL)
	}
	if have.AllowDirect && !want.AllowDirect { // without them a stream is read through its leader, which always works
		differ(func(c *config) { c.AllowDirect = false }, "direct gets")
	}
	if !reflect.DeepEqual(have.RePublish, want.RePublish) {
		differ(func(c *config) { c.RePublish = want.RePublish }, "its live copies on other subjects")
	}
	return out
}

// Migrate changes the streams of an older layout to this version's, and records that. It changes nothing if there is no
// system, or if it already has this layout. Changing a stream in use has lost messages on clusters: the caller must be
// alone on the system, and Migrate fails if another dispatcher waits there for batches.
func Migrate(ctx context.Context, nc *nats.Conn) error {
	b, err := on(nc, broker.Settings{}, "")
	if err != nil {
		return err
	}
	f, err := b.find(ctx)
	if err != nil || f == nil || f.layout >= layout {
		return err
	}
	if err := b.alone(ctx, f.settings.ShardCount()); err != nil {
		return err
	}
	var changed []jetstream.StreamConfig
	for _, d := range f.want {
		diffs, now := f.differences(d), f.have[d.Name]
		for _, diff := range diffs {
			if diff.mend == nil {
				return diff.hopeless()
			}
			diff.mend(&now)
		}
		if len(diffs) > 0 || d.Name == streamBatch {
			metadata := map[string]string{}
			maps.Copy(metadata, now.Metadata)
			maps.Copy(metadata, d.Metadata)
			if now.Metadata = metadata; d.Name == streamBatch {
				if err := f.keep(metadata); err != nil {
					return err
				}
			}
			changed = append(changed, now)
		}
	}
	for _, cfg := range changed { // the batch stream last, because it records the end
		if _, err := b.js.UpdateStream(ctx, cfg); err != nil {
			return fmt.Errorf("migrate stream %s: %w", cfg.Name, err)
		}
	}
	return nil
}

// alone returns an error if a dispatcher waits for batches of any shard.
func (b *Broker) alone(ctx context.Context, shards int) error {
	for range looksForDispatchers {
		for n := range shards {
			name := nameIn(n, streamBatch)
			cons, err := b.js.Consumer(ctx, name, consumerDispatchers)
			switch {
			case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
			case err != nil:
				return fmt.Errorf("consumer %s of %s: %w", consumerDispatchers, name, err)
			case cons.CachedInfo().NumWaiting > 0:
				return errors.New("migrate: another dispatcher runs on this system; stop all dispatchers and workers " +
					"first")
			}
		}
	}
	return nil
}

// keep puts into metadata that this version has made what those of the system say beside the layout: its settings, with
// the number of shards that it was made with and with what this version does not know, and who may join.
func (f *found) keep(metadata map[string]string) (err error) {
	was := f.have[streamBatch].Metadata
	if metadata[metadataSettings], err = rewritten(was[metadataSettings], f.made); err != nil {
		return err
	}
	metadata[metadataMinReader] = strconv.Itoa(max(f.minReader, minReaderOf(f.made)))
	return nil
}
