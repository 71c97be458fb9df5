package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/archive"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// A batch that is over may be archived: its messages are in an object, and what is left of each of its chains in the
// streams is a fence. Whoever reads a chain meets the fence, or finds that a message is gone. Then the batch chain says
// which object has the log, and the log is read there. So all above [Broker.last], [Broker.after] and [Broker.at] reads
// the same log as before.
//
// Between the first fence and the record of the object the log is still in the streams, and fences are passed over.

const (
	streamArchive = "TY_ARCHIVE"
	prefixArchive = "ty.archive." // ty.archive.<sum of the object>
	// maxArchivedLogs is how many archived logs a process keeps in memory, for those who read them again.
	maxArchivedLogs = 16
	// maxArchivedObjects is how many objects a process keeps in memory, for those who read several of their logs.
	maxArchivedObjects = 4
)

// fence reports whether a message only ends a chain, and belongs to no log.
func (m *raw) fence() bool { return events.Fences(events.Type(m.header.Get(headerType))) }

// archivedLog is the log of an archived batch. It has no messages if its object is gone: then it is as if the batch had
// expired.
type archivedLog struct{ messages []raw }

// archived is what was read last in the archive: logs by their sums, and objects by their names.
type archived struct {
	logs    recent[*archivedLog]
	objects recent[*archive.Opened]
}

func newArchived() *archived {
	return &archived{recent[*archivedLog]{most: maxArchivedLogs}, recent[*archive.Opened]{most: maxArchivedObjects}}
}

// recent keeps what was used last, the newest first.
type recent[V any] struct {
	most int
	mu   sync.Mutex
	kept []named[V]
}

type named[V any] struct {
	name  string
	value V
}

func (r *recent[V]) get(name string) (v V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.kept, func(n named[V]) bool { return n.name == name })
	if i < 0 {
		return v, false
	}
	n := r.kept[i]
	r.kept = slices.Insert(slices.Delete(r.kept, i, i+1), 0, n)
	return n.value, true
}

func (r *recent[V]) put(name string, v V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = slices.DeleteFunc(r.kept, func(n named[V]) bool { return n.name == name })
	r.kept = slices.Insert(r.kept, 0, named[V]{name, v})
	r.kept = slices.Delete(r.kept, min(len(r.kept), r.most), len(r.kept))
}

// in reports whether a message is behind a sequence of the subject that is read, which may end in a wildcard for all
// that follows.
func (m *raw) in(subject string, after uint64) bool {
	if m.seq <= after {
		return false
	}
	if prefix, ok := strings.CutSuffix(subject, ">"); ok {
		return strings.HasPrefix(m.subject, prefix)
	}
	return m.subject == subject
}

// between are the messages of a subject behind one sequence, up to another, oldest first.
func (a *archivedLog) between(subject string, after, to uint64) (out []raw) {
	for _, m := range a.messages {
		if m.in(subject, after) && m.seq <= to {
			out = append(out, m)
		}
	}
	return out
}

func (a *archivedLog) after(subject string, seq uint64) (raw, bool) {
	i := slices.IndexFunc(a.messages, func(m raw) bool { return m.in(subject, seq) })
	if i < 0 {
		return raw{}, false
	}
	return a.messages[i], true
}

func (a *archivedLog) last(subject string) (raw, bool) {
	for _, m := range slices.Backward(a.messages) {
		if m.in(subject, 0) {
			return m, true
		}
	}
	return raw{}, false
}

// keyOf is the batch that a subject belongs to.
func keyOf(subject string) (k toolyard.BatchKey, ok bool) {
	p, err := parseSubject(strings.TrimSuffix(subject, ".>"))
	if err != nil && p.key.ID == "" {
		return k, false
	}
	return p.key, true
}

// archivedAs is the log of the batch of a subject if it is archived; nil if it is not.
func (b *Broker) archivedAs(ctx context.Context, subject string) (*archivedLog, error) {
	k, ok := keyOf(subject)
	if !ok || b.guest != nil {
		return nil, nil
	}
	rec, ok, err := b.archivedRecord(ctx, k)
	if err != nil || !ok {
		return nil, err
	}
	if a, ok := b.archived.logs.get(rec.Sum); ok {
		return a, nil
	}
	a := &archivedLog{}
	object, err := b.archiveObject(ctx, rec.Object)
	if err != nil || object == nil {
		return a, err
	}
	log, err := object.Log(k, rec.Sum)
	if err != nil {
		return nil, &broker.LostError{Subject: prefixArchive + rec.Object, Problem: err.Error()}
	}
	for _, m := range log.Messages {
		a.messages = append(a.messages, raw{subject: m.Subject, seq: m.Seq, time: m.Time, header: m.Header,
			data: m.Data, archive: a})
	}
	b.archived.logs.put(rec.Sum, a)
	return a, nil
}

// archivedRecord reads the record that says where the log of a batch is.
func (b *Broker) archivedRecord(ctx context.Context, k toolyard.BatchKey) (rec events.Archived, ok bool, err error) {
	m, ok, err := b.hotLast(ctx, streamEvent, subjectChain(k, batch.ChainBatch, "", 0))
	if err != nil || !ok || m.header.Get(headerType) != string(events.BatchArchived) {
		return rec, false, err
	}
	return b.recordIn(ctx, m)
}

func (b *Broker) recordIn(ctx context.Context, m raw) (rec events.Archived, ok bool, err error) {
	_, body, err := b.decode(ctx, m.header, m.data)
	if err != nil {
		return rec, false, err
	}
	rec, ok = body.(events.Archived)
	return rec, ok, nil
}

// archiveObject reads an object; nil if there is none.
func (b *Broker) archiveObject(ctx context.Context, name string) (*archive.Opened, error) {
	if o, ok := b.archived.objects.get(name); ok {
		return o, nil
	}
	m, err := retry(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		s, err := b.js.Stream(ctx, b.name(streamArchive))
		if err != nil {
			return nil, err
		}
		return s.GetLastMsgForSubject(ctx, b.out(prefixArchive+name))
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read object %s of the archive: %w", name, err)
	}
	if archive.Name(m.Data) != name {
		return nil, &broker.LostError{Subject: m.Subject, Problem: "what is left of it is not what was stored"}
	}
	o, err := archive.Open(m.Data)
	if err != nil {
		return nil, &broker.LostError{Subject: m.Subject, Problem: err.Error()}
	}
	b.archived.objects.put(name, o)
	return o, nil
}

// hasArchive reports whether the system has an archive.
func (b *Broker) hasArchive(ctx context.Context) (bool, error) {
	_, err := retry(ctx, func(ctx context.Context) (jetstream.Stream, error) {
		return b.js.Stream(ctx, b.name(streamArchive))
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for stream %s: %w", streamArchive, err)
	}
	return true, nil
}

// last reads the last message of a literal subject, from the stream's leader or the archive; ok is false if there is
// none.
func (b *Broker) last(ctx context.Context, stream, subject string) (raw, bool, error) {
	m, ok, err := b.hotLast(ctx, stream, subject)
	if err != nil || !ok || !m.fence() {
		return m, ok, err
	}
	for {
		a, err := b.archivedAs(ctx, subject)
		if err != nil {
			return raw{}, false, err
		}
		if a != nil {
			m, ok := a.last(subject)
			return m, ok, nil
		}
		before, ours, err := b.behind(ctx, stream, subject, m)
		if err != nil {
			return raw{}, false, err
		}
		if !ours { // a fence that nobody of us has written ends nothing
			return b.lastBefore(ctx, stream, subject, m.seq)
		}
		if before == 0 {
			return raw{}, false, nil
		}
		found, err := b.at(ctx, stream, subject, before)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound): // it has expired
			return raw{}, false, nil
		case err != nil:
			return raw{}, false, err
		case found.subject != subject:
			return b.lastBefore(ctx, stream, subject, m.seq)
		case !found.fence():
			return found, true, nil
		}
		m = found
	}
}

// behind is the sequence of the message that a fence says it stands behind; 0: of none. ours is false if something else
// of its subject stands between the two. Who may write to a chain may say anything in the header: the server compares
// the number with the last one of whichever subject the writer names.
func (b *Broker) behind(ctx context.Context, stream, subject string, fence raw) (before uint64, ours bool, err error) {
	before, err = strconv.ParseUint(fence.header.Get(headerExpected), 10, 64)
	if err != nil || before >= fence.seq {
		return 0, false, nil //nolint:nilerr // it is not ours
	}
	next, ok, err := b.hotAfter(ctx, stream, subject, before)
	return before, ok && next.seq == fence.seq, err
}

// lastBefore searches a literal subject for the last message before a sequence that is no fence, whatever the messages
// say of each other.
func (b *Broker) lastBefore(ctx context.Context, stream, subject string, end uint64) (last raw, ok bool, err error) {
	at := uint64(0)
	for n := 0; ; n++ {
		if n == broker.MaxChainLength {
			return raw{}, false, fmt.Errorf("subject %s has more than %d messages", subject, broker.MaxChainLength)
		}
		m, more, err := b.hotAfter(ctx, stream, subject, at)
		if err != nil {
			return raw{}, false, err
		}
		if !more || m.seq >= end {
			break
		}
		if at = m.seq; !m.fence() {
			last, ok = m, true
		}
	}
	a, err := b.archivedAs(ctx, subject) // meanwhile, and then some of it was gone
	if err != nil {
		return raw{}, false, err
	}
	if a != nil {
		last, ok = a.last(subject)
	}
	return last, ok, nil
}

// after reads the first message of a subject after a sequence, from the stream's leader or the archive. The subject may
// be that of all events of a batch.
func (b *Broker) after(ctx context.Context, stream, subject string, seq uint64) (raw, bool, error) {
	for at := seq; ; {
		m, ok, err := b.hotAfter(ctx, stream, subject, at)
		if err != nil || !ok || !m.fence() {
			return m, ok, err
		}
		a, err := b.archivedAs(ctx, m.subject)
		if err != nil {
			return raw{}, false, err
		}
		if a != nil {
			m, ok := a.after(subject, seq)
			return m, ok, nil
		}
		at = m.seq
	}
}

// afterIn is [Broker.after] for who has read the batch in the archive before; a is nil otherwise.
func (b *Broker) afterIn(ctx context.Context, a *archivedLog, stream, subject string, seq uint64) (raw, bool, error) {
	if a == nil {
		return b.after(ctx, stream, subject, seq)
	}
	m, ok := a.after(subject, seq)
	return m, ok, nil
}

// at reads the message with a sequence and a literal subject, from the stream's leader or the archive. It may be a
// fence.
func (b *Broker) at(ctx context.Context, stream, subject string, seq uint64) (raw, error) {
	m, err := b.hotAt(ctx, stream, subject, seq)
	if !errors.Is(err, jetstream.ErrMsgNotFound) {
		return m, err
	}
	a, aerr := b.archivedAs(ctx, subject)
	if aerr != nil {
		return raw{}, aerr
	}
	if a != nil {
		if all := a.between(subject, seq-1, seq); len(all) > 0 {
			return all[0], nil
		}
	}
	return m, err
}

// withoutFences corrects the server's numbers of messages on subjects, for who compares them with what was read. Those
// of an archived batch are in an object, of which nothing can be missing.
func (b *Broker) withoutFences(ctx context.Context, stream string, counted map[string]uint64) (map[string]uint64,
	error) {
	out := map[string]uint64{}
	for _, subject := range slices.Sorted(maps.Keys(counted)) {
		a, err := b.archivedAs(ctx, subject)
		if err != nil {
			return nil, err
		}
		if a == nil {
			fences, err := b.fencesAtEnd(ctx, stream, subject)
			if err != nil {
				return nil, err
			}
			out[subject] = counted[subject] - min(counted[subject], fences)
		}
	}
	return out, nil
}

// fencesAtEnd counts the fences at the end of a chain. There is more than one if an event came between them.
func (b *Broker) fencesAtEnd(ctx context.Context, stream, subject string) (n uint64, err error) {
	m, ok, err := b.hotLast(ctx, stream, subject)
	for ; err == nil && ok && m.fence() && m.subject == subject; n++ {
		before, perr := strconv.ParseUint(m.header.Get(headerExpected), 10, 64)
		if ok = perr == nil && before > 0 && before < m.seq; ok {
			m, err = b.hotAt(ctx, stream, subject, before)
		}
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		err = nil
	}
	return n, err
}
