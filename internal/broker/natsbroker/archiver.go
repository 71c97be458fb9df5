package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/archive"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	rules "github.com/toolyard/toolyard/internal/submission"
)

// The limits of archiving.
const (
	// maxArchiveLook is how many messages of the stream of submissions one round looks at.
	maxArchiveLook = 1_000
	// maxArchiveLater is how many batches that could not be archived yet are looked at again, each at its time. What
	// came behind the first of the others is looked at anew, now and then.
	maxArchiveLater = 10_000
	// archiveSoon is how long a batch that could not be archived is left the first time: the worker may not have
	// acknowledged its last call yet.
	archiveSoon = time.Second
	// archiveAgain is how long it is left then, at least.
	archiveAgain = time.Minute
	// archiveAnew is how long after a batch was passed over all submissions behind it are looked at anew.
	archiveAnew = time.Hour
)

// archiver moves batches that are over into the archive. [archive.Next] decides each step.
type archiver struct {
	b      *Broker
	after  time.Duration
	signer *archive.Signer // nil: what it archives is not signed
	// done is the place up to which submissions were looked at, and later those of them that are looked at again.
	done  uint64
	later map[toolyard.BatchKey]left
	// again are those of the round that were left before, and places are where the submissions of the others are.
	again  map[toolyard.BatchKey]left
	places map[toolyard.BatchKey]uint64
	// passed is the place of the first batch for which later had no room, and since when there is one; 0: none.
	passed uint64
	since  time.Time
	// signed is when the objects were signed that are stored and did not get all of their records; zero: there are
	// none.
	signed time.Time
	// taken is called behind each request that changes something. An error ends the round there.
	taken func(what string) error
}

// left is a batch that could not be archived yet: where its submission is, and when it is looked at again.
type left struct {
	place uint64
	at    time.Time
}

// Archiver makes the archive if it is not there, and returns what moves batches into it that have been over for so
// long.
func (b *Broker) Archiver(ctx context.Context, after time.Duration, signer *archive.Signer) (broker.Archiver, error) {
	return b.archiverOfAll(ctx, after, signer)
}

func (b *Broker) archiver(ctx context.Context, after time.Duration) (*archiver, error) {
	a := &archiver{b: b, after: after, later: map[toolyard.BatchKey]left{},
		taken: func(string) error { return nil }}
	_, err := retry(ctx, func(ctx context.Context) (jetstream.Stream, error) {
		have, err := b.js.Stream(ctx, b.name(streamArchive))
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			have, err = b.js.CreateStream(ctx, archiveDefinition(b.Settings(), b.shard))
		}
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another dispatcher was faster
			have, err = b.js.Stream(ctx, b.name(streamArchive))
		}
		return have, err
	})
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", streamArchive, noRoom(err))
	}
	return a, nil
}

// archiveDefinition is the stream of objects. An object outlives the records that name it: see [archiver.commit].
func archiveDefinition(s broker.Settings, n int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: nameIn(n, streamArchive), Subjects: []string{subjectIn(n, prefixArchive+"*")}, Storage: storage(s),
		Replicas: s.Replicas, Retention: jetstream.LimitsPolicy, MaxAge: s.KeptFor(),
		MaxBytes: s.ArchiveBytes() / int64(s.ShardCount()),
		Discard:  jetstream.DiscardNew, MaxMsgs: -1, MaxMsgsPerSubject: 1, MaxMsgSize: -1, Metadata: madeBy(),
	}
}

// shelved is a batch that may be archived, as it stands in the streams.
type shelved struct {
	key      toolyard.BatchKey
	seen     archive.Seen
	messages []raw // its log: all but the fences; of one that is too long only the submissions, without content
	bytes    int   // of these messages, about
	record   events.Archived
	// never says why the batch can never be archived; "" if it may be.
	never string
}

const tooLong = "its log is too long"

// take takes a message into the log, unless that gets too long for an object: then nothing of it is kept in memory.
func (s *shelved) take(m raw) {
	s.bytes += len(m.subject) + len(m.data)
	for name, values := range m.header {
		s.bytes += len(name)
		for _, v := range values {
			s.bytes += len(v)
		}
	}
	if s.bytes > archive.MaxContentBytes && s.never != tooLong {
		s.never = tooLong
		s.messages = slices.DeleteFunc(s.messages, func(m raw) bool { return m.subject != s.seen.Submission.Subject })
		for i := range s.messages {
			s.messages[i].header, s.messages[i].data = nil, nil
		}
	}
	switch {
	case s.never != tooLong:
		s.messages = append(s.messages, m)
	case m.subject == s.seen.Submission.Subject:
		s.messages = append(s.messages, raw{subject: m.subject, seq: m.seq})
	}
}

func (a *archiver) Round(ctx context.Context) (r broker.ArchiveRound, err error) {
	floor, err := a.floor(ctx)
	if err != nil {
		return r, err
	}
	if a.passed > 0 && time.Since(a.since) >= archiveAnew {
		a.done, a.passed = min(a.done, a.passed-1), 0
	}
	done := a.done
	keys, more, err := a.candidates(ctx, floor)
	r.More = more
	var ready []*shelved
	held := 0 // bytes of those that are ready
	for i := 0; i < len(keys) && err == nil; i++ {
		var s *shelved
		s, err = a.prepare(ctx, keys[i], floor)
		if unreadable(err) { // it goes when it is too old
			r.Unreadable = append(r.Unreadable, fmt.Errorf("batch %s: %w", keys[i], err))
			err = nil
		}
		if s == nil {
			continue
		}
		if held+s.bytes > archive.MaxContentBytes && len(ready) > 0 && err == nil { // they fill an object
			err = a.store(ctx, ready, &r)
			ready, held = nil, 0
		}
		ready, held = append(ready, s), held+s.bytes
	}
	if err == nil {
		err = a.store(ctx, ready, &r)
	}
	if err == nil {
		return r, nil
	}
	// None of them is forgotten. There may be no room for long, and then more would wait than may be looked at again:
	// those that are new are found again where they were found.
	full := errors.Is(err, broker.ErrFull)
	for _, k := range keys {
		if _, again := a.again[k]; !full || again {
			a.leave(k)
		}
	}
	if full {
		a.done = done
	}
	return r, err
}

// floor is the place up to which every submission and every wake is acknowledged.
func (a *archiver) floor(ctx context.Context) (uint64, error) {
	info, err := retry(ctx, func(ctx context.Context) (*jetstream.ConsumerInfo, error) {
		c, err := a.b.js.Consumer(ctx, a.b.name(streamBatch), consumerDispatchers)
		if err != nil {
			return nil, err
		}
		return c.CachedInfo(), nil
	})
	if err != nil {
		return 0, fmt.Errorf("look at what is acknowledged: %w", err)
	}
	return info.AckFloor.Stream, nil
}

// candidates are batches that may be over for long enough. more says that there are others.
func (a *archiver) candidates(ctx context.Context, floor uint64) (keys []toolyard.BatchKey, more bool, err error) {
	now := time.Now()
	for k, l := range a.later {
		if !now.Before(l.at) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(k, other toolyard.BatchKey) int { // those first that wait for longest
		return cmp.Or(a.later[k].at.Compare(a.later[other].at),
			cmp.Compare(k.Agent, other.Agent), cmp.Compare(k.ID, other.ID))
	})
	keys = keys[:min(len(keys), archive.MaxLogs)]
	a.again, a.places = map[toolyard.BatchKey]left{}, map[toolyard.BatchKey]uint64{}
	for _, k := range keys {
		a.again[k] = a.later[k]
		delete(a.later, k)
	}
	for looked := 0; ; looked++ {
		if looked == maxArchiveLook || len(keys) >= 2*archive.MaxLogs {
			return keys, true, nil
		}
		m, ok, err := a.b.hotAfter(ctx, streamBatch, prefixBatch+">", a.done)
		if err != nil || !ok || m.seq > floor || now.Sub(m.time) < a.after {
			return keys, false, err
		}
		a.done = m.seq
		if p, err := parseSubject(m.subject); err == nil && !m.fence() && !a.known(p.key) {
			a.places[p.key] = m.seq
			keys = append(keys, p.key)
		}
	}
}

// known reports whether a batch is one of the round already, or is looked at again at another time.
func (a *archiver) known(k toolyard.BatchKey) bool {
	_, later := a.later[k]
	_, again := a.again[k]
	return later || again || a.places[k] > 0
}

// leave has a batch looked at again later.
func (a *archiver) leave(k toolyard.BatchKey) {
	l, pause := left{place: a.places[k]}, archiveSoon
	if before, again := a.again[k]; again {
		l, pause = before, max(archiveAgain, a.after/2)
	}
	_, known := a.later[k]
	switch l.at = time.Now().Add(pause); {
	case known || len(a.later) < maxArchiveLater:
		a.later[k] = l
	case a.passed == 0:
		a.passed, a.since = l.place, time.Now()
	default:
		a.passed = min(a.passed, l.place)
	}
}

// prepare takes a batch as far as it goes by itself. It returns the batch if its log is to be stored next.
func (a *archiver) prepare(ctx context.Context, k toolyard.BatchKey, floor uint64) (*shelved, error) {
	for {
		s, err := a.see(ctx, k, floor)
		if err != nil || s.never != "" {
			return nil, err
		}
		switch next := archive.Next(&s.seen); next.Kind {
		case archive.Done:
			return nil, nil
		case archive.Leave:
			a.leave(k)
			return nil, nil
		case archive.Commit:
			s.record.Before = next.Before
			return s, nil
		case archive.Fence: // and then all of it is read again
			for _, c := range next.Chains {
				if err == nil {
					err = a.append(ctx, k, &c, events.Ended{})
				}
			}
		default:
			err = a.finish(ctx, s)
			if err == nil {
				return nil, nil
			}
		}
		if errors.Is(err, broker.ErrConflict) { // it was not over, or another archiver was faster
			a.leave(k)
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// finish takes a batch that has its record to its end. What the record says does not change any more, so nothing is
// read again.
func (a *archiver) finish(ctx context.Context, s *shelved) error {
	for {
		switch next := archive.Next(&s.seen); next.Kind {
		case archive.Bury:
			if err := a.append(ctx, s.key, &s.seen.Submission, s.record); err != nil {
				return err
			}
		case archive.Delete:
			return a.remove(ctx, s, next.Before)
		default:
			return nil
		}
	}
}

// append appends a fence to a chain, which has another end then.
func (a *archiver) append(ctx context.Context, k toolyard.BatchKey, c *archive.Chain, body events.Body) error {
	p, err := parseSubject(c.Subject)
	if err != nil {
		return err
	}
	stream, subjectOf := streamEvent, about(k)
	switch p.chain {
	case batch.ChainSubmission:
		stream = streamBatch
	case batch.ChainReply:
		stream = streamReply
	case batch.ChainItem:
		subjectOf = aboutCall(k, p.index)
	}
	msg, err := a.b.message(ctx, c.Subject, a.b.meta(ctx, k, subjectOf), body)
	if err != nil {
		return err
	}
	end, err := a.b.append(ctx, stream, c.End, msg)
	if err != nil {
		return fmt.Errorf("append %s to %s: %w", body.EventType(), c.Subject, err)
	}
	c.End = end
	return a.taken(string(body.EventType()) + " " + c.Subject)
}

// store stores the logs of batches in objects, and takes each of them to its end. Where there is no room for their
// records, it is called for the same batches again and again. Then it signs as of the same time, so that the objects
// are the same and stand in the place of those before: others would have no records, and would fill the archive.
func (a *archiver) store(ctx context.Context, ready []*shelved, r *broker.ArchiveRound) error {
	at := a.signed
	if time.Since(at) > archiveAnew {
		at = time.Now()
	}
	err := a.storeAt(ctx, ready, at, r)
	if a.signed = (time.Time{}); err != nil {
		a.signed = at
	}
	return err
}

func (a *archiver) storeAt(ctx context.Context, ready []*shelved, at time.Time, r *broker.ArchiveRound) error {
	logs := make([]archive.Log, len(ready))
	byKey := map[toolyard.BatchKey]*shelved{}
	for i, s := range ready {
		logs[i] = archive.Log{Agent: s.key.Agent, Batch: s.key.ID}
		for _, m := range s.messages {
			logs[i].Messages = append(logs[i].Messages, archive.Message{Subject: m.subject, Seq: m.seq, Time: m.time,
				Header: m.header, Data: m.data})
		}
		byKey[s.key] = s
	}
	objects, _, err := archive.Pack(logs, a.signer, at) // what is too long stays where it is
	if err != nil {
		return err
	}
	for _, o := range objects {
		msg := nats.NewMsg(prefixArchive + archive.Name(o.Bytes))
		msg.Data = o.Bytes
		stored := time.Now()
		if _, err := a.b.publish(ctx, streamArchive, msg); err != nil {
			return fmt.Errorf("store an object of the archive: %w", err)
		}
		if err := a.taken("object"); err != nil {
			return err
		}
		r.Objects, r.Bytes = r.Objects+1, r.Bytes+int64(len(o.Bytes))
		for _, e := range o.List {
			s := byKey[toolyard.BatchKey{Agent: e.Agent, ID: e.Batch}]
			s.record.Object, s.record.Sum = archive.Name(o.Bytes), e.Sum
			done, err := a.commit(ctx, s, stored)
			if err != nil {
				return err
			}
			if done {
				r.Batches++
			}
		}
	}
	return nil
}

// commit records the object of a batch and goes on to its end. The record must not outlive the object, which is kept
// longer by the slack.
func (a *archiver) commit(ctx context.Context, s *shelved, stored time.Time) (done bool, err error) {
	if time.Since(stored) > a.b.Settings().Slack/2 {
		a.leave(s.key)
		return false, nil
	}
	if err = a.append(ctx, s.key, &s.seen.Batch, s.record); err == nil {
		s.seen.Before = s.record.Before
		err = a.finish(ctx, s)
	}
	if errors.Is(err, broker.ErrConflict) {
		a.leave(s.key)
		return false, nil
	}
	return err == nil, err
}

// remove deletes what the object of a batch has.
func (a *archiver) remove(ctx context.Context, s *shelved, before uint64) error {
	purge := func(stream, subject string, before uint64) error {
		_, err := retry(ctx, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, a.b.streams[stream].Purge(ctx, jetstream.WithPurgeSubject(a.b.out(subject)),
				jetstream.WithPurgeSequence(before))
		})
		if err != nil {
			return fmt.Errorf("delete what is archived of %s: %w", subject, err)
		}
		return a.taken("delete " + subject)
	}
	if err := purge(streamEvent, subjectEvents(s.key), before); err != nil {
		return err
	}
	if s.seen.Reply.Last > 0 && s.seen.Reply.End > s.seen.Reply.Last {
		if err := purge(streamReply, subjectReply(s.key), s.seen.Reply.Last+1); err != nil {
			return err
		}
	}
	for _, m := range s.messages {
		if m.subject != s.seen.Submission.Subject {
			continue
		}
		if err := a.b.streams[streamBatch].DeleteMsg(ctx, m.seq); err != nil {
			_, gone := a.b.hotAt(ctx, streamBatch, m.subject, m.seq) // another archiver has deleted it
			if !errors.Is(gone, jetstream.ErrMsgNotFound) {
				return fmt.Errorf("delete submission %d: %w", m.seq, err)
			}
		}
		if err := a.taken("delete " + m.subject); err != nil {
			return err
		}
	}
	return nil
}

// see reads a batch as it stands in the streams. floor is the place up to which submissions are acknowledged.
func (a *archiver) see(ctx context.Context, k toolyard.BatchKey, floor uint64) (*shelved, error) {
	s := &shelved{key: k}
	s.seen.Control.Subject = subjectChain(k, batch.ChainControl, "", 0)
	s.seen.Batch.Subject = subjectChain(k, batch.ChainBatch, "", 0)
	s.seen.Reply.Subject, s.seen.Submission.Subject = subjectReply(k), subjectBatch(k)
	counted, err := a.b.counts(ctx, streamEvent, subjectEvents(k))
	if err != nil {
		return nil, err
	}
	n := uint64(0)
	for _, count := range counted {
		n += count
	}
	if n > archive.MaxMessages {
		return &shelved{never: tooLong}, nil
	}
	chains := map[batch.Chain]*archive.Chain{batch.ChainBatch: &s.seen.Batch, batch.ChainControl: &s.seen.Control,
		batch.ChainReply: &s.seen.Reply, batch.ChainSubmission: &s.seen.Submission}
	items := map[string]*archive.Chain{}
	add := func(m raw) error {
		p, err := parseSubject(m.subject)
		if err != nil {
			s.never = err.Error()
			return nil //nolint:nilerr // it stays where it is
		}
		c := chains[p.chain]
		if c == nil {
			if items[m.subject] == nil {
				items[m.subject] = &archive.Chain{Subject: m.subject}
			}
			c = items[m.subject]
		}
		c.End = m.seq
		if !m.fence() {
			c.Last = m.seq
			s.take(m)
		} else if p.chain == batch.ChainBatch {
			rec, ok, err := a.b.recordIn(ctx, m)
			if err != nil || !ok {
				return cmp.Or[error](err, &events.UnreadableError{ID: m.header.Get(headerID),
					Type: m.header.Get(headerType), Problem: "it stands where a record of the archive would"})
			}
			s.record, s.seen.Before = rec, rec.Before
		}
		if m.header.Get(headerPrefix+extDataRef) != "" && s.never == "" {
			s.never = "a message of it refers to an object"
		}
		return nil
	}
	all := func(stream, subject string, upTo func(read uint64, last raw) bool) error {
		last := raw{}
		for read := uint64(0); !upTo(read, last); read++ {
			if len(s.messages) > archive.MaxMessages { // of submissions and replies, which are not counted before
				s.never = tooLong
				return nil
			}
			m, ok, err := a.b.hotAfter(ctx, stream, subject, last.seq)
			if err == nil && !ok {
				s.never = "a message of it is missing"
				return nil
			}
			if err == nil {
				err = add(m)
			}
			if err != nil {
				return err
			}
			last = m
		}
		return nil
	}
	literal := func(stream, subject string) error {
		end, ok, err := a.b.hotLast(ctx, stream, subject)
		if err != nil || !ok {
			return err
		}
		return all(stream, subject, func(_ uint64, last raw) bool { return last.seq >= end.seq })
	}
	if err := literal(streamBatch, s.seen.Submission.Subject); err != nil {
		return nil, err
	}
	if err := all(streamEvent, subjectEvents(k), func(read uint64, _ raw) bool { return read >= n }); err != nil {
		return nil, err
	}
	if err := literal(streamReply, s.seen.Reply.Subject); err != nil {
		return nil, err
	}
	for _, subject := range slices.Sorted(maps.Keys(items)) {
		s.seen.Items = append(s.seen.Items, *items[subject])
	}
	if s.seen.Before > 0 { // the record decides, whatever else there is
		s.never = ""
		return s, nil
	}
	if s.never != "" || s.seen.Submission.Last == 0 {
		s.never = cmp.Or(s.never, "it has no submission")
		return s, nil
	}
	return s, a.judge(ctx, s, floor)
}

// judge finds out whether a batch is over and nobody has to do with it any more.
func (a *archiver) judge(ctx context.Context, s *shelved, floor uint64) error {
	if slices.ContainsFunc(s.messages, func(m raw) bool { return time.Since(m.time) < a.after }) {
		return nil
	}
	state, err := a.b.foldAll(ctx, s.key, s.messages)
	_, contradicts := errors.AsType[*batch.InvariantError](err)
	_, refused := errors.AsType[*toolyard.InputError](err)
	if unreadable(err) || contradicts || refused {
		s.never = err.Error() // it goes when it is too old
		return nil
	}
	if err != nil {
		return err
	}
	s.seen.Over = over(&state)
	if !s.seen.Over || max(s.seen.Submission.Last, state.Handle) > floor {
		return nil
	}
	queued, err := a.b.counts(ctx, streamCall, prefixCall+"*.*.*."+broker.KeyTokens(s.key)+".>")
	if err != nil {
		return err
	}
	s.seen.Released = len(queued) == 0
	s.record.Place, s.record.Submitted = state.SubmissionSeq, state.SubmittedAt.UTC()
	s.record.Content, err = rules.Sum(state.Submission)
	return err
}

// unreadable reports whether an error says that this version cannot read what is stored of a batch.
func unreadable(err error) bool {
	_, is := errors.AsType[*events.UnreadableError](err)
	return is || errors.Is(err, broker.ErrDamaged) || errors.Is(err, events.ErrNewer)
}

// over reports whether a batch is over for good: every call has its result and all of them are replied, or it was
// refused before it was planned.
func over(s *batch.State) bool {
	if s.Plan == nil {
		return s.Refused != nil && s.ReplySeq > 0
	}
	return s.Completed && s.Refused == nil &&
		!slices.ContainsFunc(s.Calls, func(c batch.Call) bool { return c.Status != batch.Finished })
}

// foldAll folds all messages of a batch.
func (b *Broker) foldAll(ctx context.Context, k toolyard.BatchKey, messages []raw) (batch.State, error) {
	s := batch.State{Key: k}
	order := []batch.Chain{batch.ChainSubmission, batch.ChainBatch, batch.ChainInput, batch.ChainControl,
		batch.ChainItem, batch.ChainReply}
	for _, chain := range order { // each chain after those that it depends on
		for _, m := range messages {
			p, err := parseSubject(m.subject)
			if err != nil {
				return s, &events.UnreadableError{Problem: err.Error()}
			}
			if p.chain != chain {
				continue
			}
			if chain == batch.ChainSubmission {
				if s.Submission == nil { // what an agent has put behind it does not count
					err = b.applyRaw(ctx, &s, m)
				}
			} else {
				var r batch.Record
				if _, r, _, err = b.tolerant(ctx, m); err == nil {
					err = s.Apply(r)
				}
			}
			if err != nil {
				return s, err
			}
		}
	}
	return s, nil
}
