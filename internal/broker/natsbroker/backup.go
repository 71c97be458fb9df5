package natsbroker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/shard"
)

// The subjects of the server's API for snapshots of streams.
const (
	apiInfo     = "$JS.API.STREAM.INFO."
	apiSnapshot = "$JS.API.STREAM.SNAPSHOT."
	apiRestore  = "$JS.API.STREAM.RESTORE."
)

const (
	// snapshotSilence is how long the next part of a snapshot may take, and the answer to one of a restore.
	snapshotSilence = 30 * time.Second
	// checkTimeout bounds how long a server takes to read and check a stream before it sends the first part of it.
	checkTimeout = 10 * time.Minute
	// placedWithin is how long a cluster may not know of enough servers for a stream that is restored.
	placedWithin = 30 * time.Second
	// heardWithin is how long the servers of a cluster take to tell each other who listens.
	heardWithin = 5 * time.Second
	// restoreTimeout bounds how long a server takes to open a stream that it was sent.
	restoreTimeout = 10 * time.Minute
	// restoreChunk is how much of a stream is sent at a time, in bytes.
	restoreChunk = 128 << 10
)

// BackupOrder returns the streams in the order in which they are saved while the system runs. What a later stream has
// and an earlier one lacks is taken up again or ignored; the reverse would lose something.
//
// A submission is saved before the events that say that its batch is over, and a reply before the results in it. A
// queued call is saved before the tickets: where its ticket has left the queue since, the events say that the call is
// over. Tickets are saved before the events: one of a group that the events do not know would say that the batch is
// beyond that group. An owner asks anew for a ticket that is missing. Approvals and objects follow the events that
// refer to them. The index comes early: it may show a batch that is over as running, until its owner writes it again.
//
// The map of shards is saved behind them: of an id that is fenced off in a former shard it knows the new one.
//
// Records of archived batches are events, so the archive, where there is one, is saved after the events.
//
// A restore takes the reverse order: the batch stream of shard 0 says that all others are there. What several shards
// have is saved of all of them before what comes next: a batch and the queue that it waits in may be in two.
func BackupOrder(shards int) (names []string) {
	for _, name := range []string{
		streamBatch, streamIndex, streamCall, streamReply, streamTickets, streamEvent, streamArchive,
		"KV_" + bucketApproval,
		"KV_" + bucketSession, "KV_" + bucketBudget, "OBJ_" + bucketBlob, streamDead,
		"KV_" + bucketMap, streamWorkers,
	} {
		for n := range shards {
			if there := nameIn(n, name); n == 0 || there != name {
				names = append(names, there)
			}
		}
	}
	return names
}

// ShardsIn is how many shards a system has that has these streams.
func ShardsIn(streams []string) (shards int) {
	for n := range shard.Max {
		if slices.Contains(streams, nameIn(n, streamBatch)) {
			shards = n + 1
		}
	}
	return shards
}

// InEverySystem reports whether every system has a stream. The archive is made when batches are archived, the accounts
// of budgets when there is one, and the map of shards when their number is raised.
func InEverySystem(stream string) bool {
	return !strings.HasSuffix(stream, "_ARCHIVE") && stream != "KV_"+bucketBudget && stream != "KV_"+bucketMap
}

// StreamBackup is what a server needs besides a stream's data to make it anew: its configuration and state, in the
// server's words.
type StreamBackup struct {
	Config json.RawMessage `json:"config"`
	State  json.RawMessage `json:"state"`
}

// apiAnswer is the part of a server's answer that is the same for all.
type apiAnswer struct {
	Error *jetstream.APIError `json:"error"`
}

// SaveStream writes a stream with its consumers to w, as it is now.
func SaveStream(ctx context.Context, nc *nats.Conn, stream string, w io.Writer) (saved StreamBackup, err error) {
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return saved, fmt.Errorf("save %s: %w", stream, err)
	}
	defer func() { err = errors.Join(err, sub.Unsubscribe()) }()
	// Who leads the stream answers this at once; nobody answers for a stream that nobody leads.
	err = askAPI(ctx, nc, apiInfo+stream, struct{}{}, &struct{}{}, snapshotSilence)
	if err == nil {
		err = askAPI(ctx, nc, apiSnapshot+stream, map[string]any{"deliver_subject": sub.Subject, "jsck": true}, &saved,
			checkTimeout)
	}
	if err != nil {
		return saved, fmt.Errorf("save %s: %w", stream, err)
	}
	for {
		waiting, cancel := context.WithTimeout(ctx, snapshotSilence)
		m, err := sub.NextMsgWithContext(waiting)
		cancel()
		if err != nil {
			return saved, fmt.Errorf("save %s: the next part did not come: %w", stream, err)
		}
		if len(m.Data) == 0 { // the end, with a status when something went wrong
			if status := m.Header.Get("Status"); status != "" && status != "204" {
				return saved, fmt.Errorf("save %s: the server gave up: %s %s", stream, status,
					m.Header.Get("Description"))
			}
			return saved, nil
		}
		if _, err := w.Write(m.Data); err != nil {
			return saved, fmt.Errorf("save %s: %w", stream, err)
		}
		if m.Reply == "" {
			continue
		}
		if err := m.Respond(nil); err != nil { // the server waits for it before it sends much more
			return saved, fmt.Errorf("save %s: %w", stream, err)
		}
	}
}

// RestoreStream makes a stream and its consumers from what [SaveStream] has written. There must be no stream of that
// name. What was sent is answered, and once the server has the last part it says what came of it, whatever becomes of
// ctx: it may make the stream when it has that part, and only then does the caller know whether there is one to remove.
func RestoreStream(ctx context.Context, nc *nats.Conn, stream string, saved StreamBackup, r io.Reader) error {
	var answer struct {
		DeliverSubject string `json:"deliver_subject"`
	}
	err := repeat(ctx, placedWithin, missesServers, func() error {
		return askAPI(ctx, nc, apiRestore+stream, saved, &answer, snapshotSilence)
	})
	if err != nil {
		return fmt.Errorf("restore %s: %w", stream, err)
	}
	send := func(data []byte, within time.Duration) error {
		sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
		defer cancel()
		var m *nats.Msg
		// Another server of a cluster may restore it, and this one may not know yet that it listens.
		unheard := func(err error) bool { return errors.Is(err, nats.ErrNoResponders) }
		err := repeat(sending, heardWithin, unheard, func() (err error) {
			m, err = nc.RequestWithContext(sending, answer.DeliverSubject, data)
			return err
		})
		var got apiAnswer
		if err == nil && len(m.Data) > 0 {
			err = json.Unmarshal(m.Data, &got)
		}
		if err == nil && got.Error != nil {
			err = got.Error
		}
		if err != nil {
			return fmt.Errorf("restore %s: %w", stream, err)
		}
		return nil
	}
	chunk := make([]byte, restoreChunk)
	for {
		n, err := io.ReadFull(r, chunk)
		if ctx.Err() != nil && n > 0 { // the server gives up what is not whole
			return fmt.Errorf("restore %s: %w", stream, ctx.Err()) // not the signal that is its cause
		}
		if n > 0 {
			if err := send(chunk[:n], snapshotSilence); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return send(nil, restoreTimeout)
		case err != nil:
			return fmt.Errorf("restore %s: %w", stream, err)
		}
	}
}

// askAPI makes a request of the server's API, which has so long to answer. It returns the error that is the answer.
func askAPI(ctx context.Context, nc *nats.Conn, subject string, request, answer any, within time.Duration) error {
	data, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode a request: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, subject, data)
	if err != nil {
		return err
	}
	var failed apiAnswer
	if err := cmp.Or(json.Unmarshal(m.Data, &failed), json.Unmarshal(m.Data, answer)); err != nil {
		return fmt.Errorf("the server's answer cannot be read: %w", err)
	}
	if failed.Error != nil {
		return failed.Error
	}
	return nil
}

// repeat makes a request, and again while its error passes, until ctx ends or for so long. It returns the last error.
func repeat(ctx context.Context, within time.Duration, passes func(error) bool, request func() error) error {
	err := request()
	for pause, began := firstPause, time.Now(); passes(err) && time.Since(began) < within &&
		wait(ctx, &pause) == nil; {
		err = request()
	}
	return err
}

// missesServers reports whether a stream was refused because the cluster misses servers.
func missesServers(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && misses(api)
}

// Existing returns the streams of a system that are there.
func Existing(ctx context.Context, nc *nats.Conn) (names []string, err error) {
	b, err := on(nc, broker.Settings{}, "")
	if err != nil {
		return nil, err
	}
	all := b.js.StreamNames(ctx)
	for name := range all.Name() {
		if slices.Contains(BackupOrder(shard.Max), name) {
			names = append(names, name)
		}
	}
	if err := all.Err(); err != nil {
		return nil, fmt.Errorf("list the streams: %w", err)
	}
	return names, nil
}

// ForgetUnsubmitted takes batches out of the index of a restored system whose submissions are not there. The index was
// saved behind the submissions. They would be listed in the places of those that come next, and hide them.
func (b *Broker) ForgetUnsubmitted(ctx context.Context) error {
	each, newest, err := b.newestOfEach(ctx)
	if err != nil {
		return err
	}
	for n, one := range each {
		if err := one.keyIndex().removeBehind(ctx, newest[n]); err != nil {
			return err
		}
	}
	return nil
}

// newestOfEach returns the brokers of all shards, with the sequence of the last submission that each keeps.
func (b *Broker) newestOfEach(ctx context.Context) (each []*Broker, newest []uint64, err error) {
	if each, err = b.all(ctx); err != nil {
		return nil, nil, err
	}
	newest = make([]uint64, len(each))
	for n, one := range each {
		if _, newest[n], err = one.kept(ctx); err != nil {
			return nil, nil, err
		}
	}
	return each, newest, nil
}

// LowerInterrupts has the interrupts of a restored system stop no batch that is submitted from now on. Sessions were
// saved behind the submissions: an interrupt that came between the two names submissions that are not there, and whose
// sequences are given out anew.
func (b *Broker) LowerInterrupts(ctx context.Context) error {
	_, newest, err := b.newestOfEach(ctx)
	if err != nil {
		return err
	}
	var keys []string
	var failed error // the others are looked at all the same
	err = list(ctx, b.sessions, "*.*", func(key string, _ uint64, s broker.Session, err error) bool {
		switch {
		case key == keyGuarded: // the only other key of two tokens
		case err != nil:
			failed = cmp.Or(failed, err)
		case s.LowerInterrupt(newest):
			keys = append(keys, key)
		}
		return true
	})
	if err != nil {
		return err
	}
	for _, key := range keys {
		_, _, err := swap(ctx, b, b.sessions, key, seen[broker.Session]{}, false,
			func(s broker.Session) (broker.Session, error) {
				s.LowerInterrupt(newest)
				return s, nil
			})
		if err != nil {
			failed = cmp.Or(failed, fmt.Errorf("session %s: %w", key, err))
		}
	}
	return failed
}

// WakeUnkept wakes each batch of a restored system that no message keeps. Nobody has one that waits for a person: the
// list of what waits has somebody look at it. That list was saved behind the log, so it lacks the calls that were
// decided between the two, and the log still waits for them. Who is woken lists them again. And a batch that was woken
// between the two has an owner in the log, by a wake that is not there.
func (b *Broker) WakeUnkept(ctx context.Context) (failed error) {
	filter := broker.Filter{Live: true}
	for more := true; more; {
		var page []broker.Entry
		var err error
		if page, more, err = b.Index().Page(ctx, filter); err != nil {
			return err
		}
		for _, e := range page {
			if err := b.wakeUnkept(ctx, e.Key()); err != nil && failed == nil {
				failed = fmt.Errorf("batch %s: %w", e.Key(), err) // the others are woken all the same
			}
			filter.After = e.Place
		}
		more = more && len(page) > 0
	}
	return failed
}

// wakeUnkept wakes a batch that is not over and is kept by no message.
func (b *Broker) wakeUnkept(ctx context.Context, k toolyard.BatchKey) error {
	if parked, err := b.WakeIfParked(ctx, k); err != nil || parked {
		return err
	}
	s, err := b.Fold(ctx, k)
	if errors.Is(err, broker.ErrNoBatch) || err == nil && (s.Plan == nil || s.Completed) {
		return nil
	}
	if err != nil {
		return err
	}
	of, err := b.of(ctx, k)
	if err != nil {
		return err
	}
	switch m, err := of.hotAt(ctx, streamBatch, prefixWake+broker.KeyTokens(k), s.Handle); {
	case errors.Is(err, jetstream.ErrMsgNotFound):
	case err != nil:
		return err
	case strings.HasSuffix(m.subject, "."+broker.KeyTokens(k)): // its number may be another batch's wake by now
		return nil
	}
	return b.Wake(ctx, k, s.BatchSeq)
}

// Remove removes a stream. It is for what a restore has made that failed.
func Remove(ctx context.Context, nc *nats.Conn, stream string) error {
	b, err := on(nc, broker.Settings{}, "")
	if err != nil {
		return err
	}
	if err := b.js.DeleteStream(ctx, stream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("remove stream %s: %w", stream, err)
	}
	return nil
}

// The server's error codes for a restore of a stream that is there, and for one that fails when the stream is added.
const (
	codeStreamThere   jetstream.ErrorCode = 10130
	codeRestoreFailed jetstream.ErrorCode = 10062
)

// IsTaken reports whether a restore failed because there is a stream of that name.
func IsTaken(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return false
	}
	switch api.ErrorCode {
	case codeStreamThere, jetstream.JSErrCodeStreamNameInUse:
		return true
	case codeRestoreFailed: // the reason stands in the text, with its own code
		return strings.Contains(api.Description, fmt.Sprintf("(%d)", codeStreamThere))
	}
	return false
}
