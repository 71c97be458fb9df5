package natsbroker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/toolyard/toolyard/internal/broker"
)

// seen is what a caller knows about a key without reading it: it may be outdated.
type seen[T any] struct {
	value    T
	revision uint64
}

// swap changes the value of a key: read, change, compare and set, until it succeeds. change may be called several
// times; if it returns an error, nothing is stored. A change that leaves the value equal stores nothing, unless sure is
// set: a replica may answer the read with an old value, and only a write proves the current one. It returns the value
// after the change, and its revision. The known value, if any, is changed first, which saves a read if it is current;
// only a stored change relies on it.
func swap[T any](ctx context.Context, b *Broker, kv jetstream.KeyValue, key string, known seen[T], sure bool,
	change func(T) (T, error)) (T, uint64, error) {
	pause, conflicts := firstPause/10, 0
	for unread := known.revision != 0; ; unread = false {
		have, revision := known.value, known.revision
		var value []byte
		var err error
		if unread {
			value, err = json.Marshal(have)
		} else {
			have, value, revision, err = load[T](ctx, kv, key)
		}
		if err != nil {
			return have, revision, err
		}
		next, err := change(have)
		if err != nil && unread {
			continue
		}
		if err != nil {
			return have, revision, err
		}
		encoded, err := encodeValue(value, next)
		if err != nil {
			return have, revision, fmt.Errorf("encode key %s: %w", key, err)
		}
		same := revision != 0 && bytes.Equal(encoded, value)
		if same && unread {
			continue
		}
		if same && !sure {
			return under(next, revision), revision, nil
		}
		asked := time.Now()
		stored, err := ask(ctx, func(ctx context.Context, _ int) (uint64, error) {
			return replace(ctx, kv, key, encoded, revision)
		})
		if err == nil {
			return under(next, stored), stored, nil
		}
		if unread { // the known value is outdated, or no answer came: read the current one
			continue
		}
		// Either another change came between, or ours was stored and its answer lost. The change is applied again to
		// the current value, and changes nothing if it is already there.
		again, verdict := classify(err)
		if !again && !errors.Is(verdict, broker.ErrConflict) && !errors.Is(err, jetstream.ErrKeyExists) {
			return have, revision, verdict
		}
		if err := b.unchangeable(ctx, kv, key, revision, asked, verdict); err != nil {
			return have, revision, err
		}
		if again || conflicts > 0 { // the first conflict is repeated at once
			if err := wait(ctx, &pause); err != nil {
				return have, revision, err
			}
		}
		conflicts++
	}
}

// replace stores a value in place of the one that has a revision. 0: there is no key, or it was deleted; Create tells
// the two apart.
func replace(ctx context.Context, kv jetstream.KeyValue, key string, value []byte, revision uint64) (uint64, error) {
	if revision == 0 {
		return kv.Create(ctx, key, value)
	}
	return kv.Update(ctx, key, value, revision)
}

// unchangeable is a [*LostError] if a write to a key has failed because its value is damaged. A server before 2.15.3
// stores the new value, cannot remove the damaged one, and says nothing, now and later. A later one refuses to create a
// key that it counts, and that reads as missing, and says where it is: revision is 0 then. A write that failed soon was
// answered.
func (b *Broker) unchangeable(ctx context.Context, kv jetstream.KeyValue, key string, revision uint64,
	asked time.Time, verdict error) error {
	if time.Since(asked) < attemptTimeout {
		if end, _ := reportedEnd(verdict); revision > 0 || end == 0 {
			return nil
		}
		// Others may remove the key and make it anew all the time.
		_, err := b.keyLostIf(ctx, canonicalBucket(kv.Bucket()), key, true)
		if !errors.Is(err, broker.ErrDamaged) {
			return nil
		}
		return err
	}
	looking, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	subject := "$KV." + kv.Bucket() + "." + key
	var info *jetstream.StreamInfo
	s, err := b.js.Stream(looking, "KV_"+kv.Bucket())
	if err == nil {
		info, err = s.Info(looking, jetstream.WithSubjectFilter(subject))
	}
	if err != nil { // the server is away, and the write is tried again
		return nil //nolint:nilerr
	}
	stored, kept := info.State.Subjects[subject], info.Config.MaxMsgsPerSubject
	if kept <= 0 || stored <= uint64(kept) {
		return nil
	}
	return &broker.LostError{Subject: subject, Problem: fmt.Sprintf("the server has %d values of the key, of which it "+
		"keeps %d, and answers no change of it", stored, kept)}
}

// load reads a key. A missing or deleted key has the zero value.
func load[T any](ctx context.Context, kv jetstream.KeyValue, key string) (v T, value []byte, revision uint64,
	err error) {
	e, err := retry(ctx, func(ctx context.Context) (jetstream.KeyValueEntry, error) { return kv.Get(ctx, key) })
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return under(v, 0), nil, 0, nil
	}
	if err != nil {
		return v, nil, 0, fmt.Errorf("read key %s: %w", key, err)
	}
	v, err = decoded[T](e)
	return v, e.Value(), e.Revision(), err
}

// keyLost is a [*LostError] if a key that reads as missing is damaged. Who acts on it that there is none asks. there
// says that it is there by now: the caller reads it again.
func (b *Broker) keyLost(ctx context.Context, bucket, key string) (there bool, err error) {
	return b.keyLostIf(ctx, bucket, key, false)
}

// keyLostIf is keyLost. quiet says that only a look counts in which nothing was stored in the bucket: a key that was
// there before and is there after it was there all the time.
func (b *Broker) keyLostIf(ctx context.Context, bucket, key string, quiet bool) (there bool, err error) {
	stream, subject := "KV_"+bucket, "$KV."+bucket+"."+key
	err = b.countedWith(ctx, stream, subject, true, func(counted map[string]uint64, end uint64) error {
		if counted[subject] == 0 {
			return nil
		}
		m, err := retry(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
			s, err := b.js.Stream(ctx, b.name(stream))
			if err != nil {
				return nil, err
			}
			return s.GetLastMsgForSubject(ctx, b.out(subject))
		})
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			if quiet {
				after, now, err := b.countsTo(ctx, stream, subject)
				if err != nil || now != end || after[subject] == 0 {
					return err
				}
			}
			return tooFew(subject, counted[subject], 0)
		}
		if err != nil {
			return fmt.Errorf("look for key %s: %w", key, err)
		}
		// or it says that the key was deleted
		there = m.Header.Get(headerOperation) == "" && m.Header.Get(jetstream.MarkerReasonHeader) == ""
		return nil
	})
	return there, err
}

// headerOperation is in a message that says what happened to a key in place of its value.
const headerOperation = "KV-Operation"

// decoded is the value of an entry; the zero value if the key was deleted, or emptied by an operator.
func decoded[T any](e jetstream.KeyValueEntry) (v T, err error) {
	if len(e.Value()) > 0 {
		err = decodeValue(e.Value(), &v)
	}
	if err != nil {
		return v, fmt.Errorf("key %s is not readable: %w", e.Key(), err)
	}
	return under(v, e.Revision()), nil
}

// under returns a value as it is under a revision of its key, if its type depends on that.
func under[T any](v T, revision uint64) T {
	if p, ok := any(v).(interface{ At(revision uint64) T }); ok {
		return p.At(revision)
	}
	return v
}

// list reads the matching keys, in the order of their last change, until see returns false.
func list[T any](ctx context.Context, kv jetstream.KeyValue, keys string,
	see func(key string, revision uint64, v T, err error) (more bool)) error {
	return entries(ctx, kv, keys, func(e jetstream.KeyValueEntry) bool {
		var v T
		err := decodeValue(e.Value(), &v)
		if err != nil {
			err = fmt.Errorf("key %s of %s is not readable: %w", e.Key(), kv.Bucket(), err)
		}
		return see(e.Key(), e.Revision(), v, err)
	})
}

// entries is list without reading the values.
func entries(ctx context.Context, kv jetstream.KeyValue, keys string, see func(jetstream.KeyValueEntry) (more bool),
	opts ...jetstream.WatchOpt) error {
	ctx, cancel := context.WithTimeout(ctx, longestRead)
	defer cancel()
	w, err := kv.Watch(ctx, keys, append(opts, jetstream.IgnoreDeletes())...)
	if err != nil {
		return fmt.Errorf("list %s of %s: %w", keys, kv.Bucket(), err)
	}
	defer w.Stop() //nolint:errcheck // the context ends it in any case
	for {
		select {
		case e, ok := <-w.Updates():
			if !ok || e == nil { // all existing keys have been seen
				return context.Cause(ctx)
			}
			if !see(e) {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("list %s of %s: %w", keys, kv.Bucket(), context.Cause(ctx))
		}
	}
}
