package natsbroker

import (
	"context"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/archive"
	"github.com/toolyard/toolyard/internal/broker"
)

// AppendMessage is the primitive under Append, for tests that repeat a message.
func (b *Broker) AppendMessage(ctx context.Context, stream string, expected uint64, msg *nats.Msg) (uint64, error) {
	return b.append(ctx, stream, expected, msg)
}

// WrapObjects puts something between a broker and the object store.
func (b *Broker) WrapObjects(wrap func(jetstream.ObjectStore) jetstream.ObjectStore) {
	b.blobs = wrap(b.blobs)
}

// BeforeLast calls before whenever the broker reads the last event of a subject.
func (b *Broker) BeforeLast(before func(subject string)) {
	b.streams = maps.Clone(b.streams)
	b.streams[streamEvent] = watchedStream{b.streams[streamEvent], before, func(string) {}}
}

// AfterLastSubmission calls after whenever the broker has read what stands under the id of a batch in shard 0.
func (b *Broker) AfterLastSubmission(after func(subject string)) {
	one := b.view().sets[0]
	one.streams = maps.Clone(one.streams)
	one.streams[streamBatch] = watchedStream{one.streams[streamBatch], func(string) {}, after}
}

type watchedStream struct {
	jetstream.Stream
	before, after func(subject string)
}

func (s watchedStream) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	s.before(subject)
	defer s.after(subject)
	return s.Stream.GetLastMsgForSubject(ctx, subject)
}

// LimitPools sets how many pools may have work queues.
func (b *Broker) LimitPools(most int) { b.pools = most }

// IndexOf is the index of batches whose submissions have these places.
func (b *Broker) IndexOf(kept func() (oldest, newest uint64)) broker.Index {
	x := b.keyIndex()
	x.kept = func(context.Context) (oldest, newest uint64, err error) {
		oldest, newest = kept()
		return oldest, newest, nil
	}
	return x
}

// IndexSubject is where an entry of the index is stored.
func IndexSubject(e broker.Entry) (string, error) { return indexSubject(&e) }

// Indexed is how many entries are stored.
func (b *Broker) Indexed(ctx context.Context) (uint64, error) {
	info, err := b.streams[streamIndex].Info(ctx)
	if err != nil {
		return 0, err
	}
	return info.State.Msgs, nil
}

// ArchiverThat is an archiver that tells of each of its requests that changed something, and ends with an error.
func (b *Broker) ArchiverThat(ctx context.Context, after time.Duration, taken func(what string) error) (
	broker.Archiver, error) {
	a, err := b.archiver(ctx, after)
	if err == nil {
		a.taken = taken
	}
	return a, err
}

// SignWith has an archiver sign what it stores.
func SignWith(of broker.Archiver, s *archive.Signer) { of.(*archiver).signer = s }

// LeaveAsManyAsFit has an archiver look again, in a year, at as many other batches as it can.
func LeaveAsManyAsFit(of broker.Archiver) {
	a := of.(*archiver)
	for n := 0; len(a.later) < maxArchiveLater; n++ {
		a.later[toolyard.BatchKey{Agent: "other", ID: toolyard.BatchID(strconv.Itoa(n))}] = left{
			place: 1, at: time.Now().AddDate(1, 0, 0)}
	}
}

// Definitions are the configurations of the streams of a system.
func Definitions(s broker.Settings) ([]jetstream.StreamConfig, error) { return definitions(s) }

// Mended says in what a stream differs from its definition, and is the stream as Migrate changes it.
func Mended(have jetstream.StreamConfig, replicas int) (what []string, _ jetstream.StreamConfig) {
	want := have
	want.AllowDirect = direct(broker.Settings{Replicas: replicas})
	f := found{have: map[string]jetstream.StreamConfig{have.Name: have}}
	for _, d := range f.differences(want) {
		what = append(what, d.what)
		d.mend(&have)
	}
	return what, have
}

// Age makes the map of shards that was read older.
func (b *Broker) Age(by time.Duration) {
	v := *b.view()
	v.read = v.read.Add(-by)
	b.system.now.Store(&v)
}

// ServerTime is what the server's clock showed when the map of shards was read; zero: that is not known.
func (b *Broker) ServerTime() time.Time { return b.view().server }

// ReliedOn is reliedOn.
func ReliedOn(version string) bool { return reliedOn(version) }
