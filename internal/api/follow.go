package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/replay"
)

// What many follow is read once. A stream first reads for itself what is stored, a piece at a time, when it is its
// agent's turn; then it takes from the topic of its batch, which one goroutine fills from live copies. What it takes is
// written out in one go, and within what its token may take. A stream that falls behind the topic's window reads for
// itself again, unless that was its client's slowness: then it ends with an event behind, and its client comes again
// with Last-Event-ID.

// behindEvent is the name of the last event of a stream that was too slow.
const behindEvent = "behind"

// errBehind ends a stream that was too slow.
var errBehind = errors.New("the stream was read too slowly")

// Behind is the data of an event behind.
type Behind struct {
	Detail string `json:"detail"`
}

const behindDetail = "this stream was read too slowly, so the server ended it; go on behind the last event with " +
	"Last-Event-ID"

// again calls read until it succeeds, or fails so that it will not succeed later. NATS may be away for longer than a
// read lasts.
func again[T any](ctx context.Context, link broker.Link, read func() (T, error)) (T, error) {
	for {
		v, err := read()
		if err == nil || ctx.Err() != nil || !link.MayPass(err) {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, context.Cause(ctx)
		case <-time.After(reread):
		}
	}
}

// told is one event of a batch as all streams tell it.
type told struct {
	// at is how far the streams were read, this event included; isReply says in which of them it stands, and seq where.
	at      cursor
	isReply bool
	seq     uint64
	data    []byte
	over    bool
}

func tellEvent(l broker.Logged, at *cursor) (told, error) {
	data, err := l.JSON()
	e := told{isReply: l.Chain == batch.ChainReply, seq: l.Seq, data: data, over: broker.Over(l.Record)}
	if l.Chain != batch.ChainSubmission {
		at.pass(e.isReply, l.Seq)
	}
	e.at = *at
	return e, err
}

// piece is some of what is stored about a batch.
type piece struct {
	entries []entry
	size    int
	read    time.Time
	// to is how far the streams were read. caught says that this was all that is stored by now, and over that nothing
	// follows.
	to           cursor
	caught, over bool
}

// place is where a piece begins.
type place struct {
	k  toolyard.BatchKey
	at cursor
	// first says that it begins with the submission.
	first bool
}

// readPiece reads from a place on. What was read before, for another stream, is not read again.
func (s *Server) readPiece(ctx context.Context, from place) (p piece, err error) {
	done, err := s.turns.take(ctx, string(from.k.Agent))
	if err != nil {
		return p, err
	}
	defer done()
	if p, ok := s.pieces.get(from); ok {
		return p, nil
	}
	tail := s.cfg.Broker.TailAt(from.k, from.at.event, from.at.reply)
	if from.first {
		tail = s.cfg.Broker.Tail(from.k)
	}
	for p.to = from.at; len(p.entries) < maxPieceEvents && p.size < maxPieceBytes && !p.over; {
		l, ok, err := tail.Next(ctx)
		if err != nil && len(p.entries) > 0 { // it comes again with the next piece
			return p, nil
		}
		if err != nil || !ok {
			if len(p.entries) > 0 {
				s.pieces.put(from, p)
			}
			p.caught = err == nil
			return p, err
		}
		e, err := tellEvent(l, &p.to)
		if err != nil {
			return p, err
		}
		p.over = e.over
		p.entries = append(p.entries, entry{id: p.to.String(), name: "cloudevent", data: e.data})
		p.size += len(e.data)
	}
	s.pieces.put(from, p)
	return p, nil
}

// followEvents writes the events of a batch behind a cursor: those that are stored, and with live all others to the
// last.
func (s *Server) followEvents(ctx context.Context, out *stream, k toolyard.BatchKey, at cursor, resumed,
	live bool) error {
	from := place{k, at, !resumed}
	for {
		read := func() (piece, error) { return s.readPiece(ctx, from) }
		p, err := read()
		if live && err != nil {
			p, err = again(ctx, s.cfg.Broker, read)
		}
		if err != nil {
			return err
		}
		if err := out.sendAll(p.entries); err != nil || p.over {
			return err
		}
		from = place{k, p.to, from.first && len(p.entries) == 0}
		caught := p.caught || live && s.happened.has(k.String(), func(base told) bool { return base.at.before(p.to) })
		if !caught {
			continue
		}
		if !live {
			return nil
		}
		if resumed { // the end may stand before the cursor
			if over, err := again(ctx, s.cfg.Broker, func() (bool,
				error) {
				return s.cfg.Broker.Ended(ctx, k, p.to.reply)
			}); over || err != nil {
				return err
			}
			resumed = false
		}
		done, err := s.sendLive(ctx, out, k, &from.at)
		if done || err != nil {
			return err
		}
	}
}

// sendLive writes what the topic of a batch has behind a cursor, and moves it. done is false when events are missing
// before what the topic has.
func (s *Server) sendLive(ctx context.Context, out *stream, k toolyard.BatchKey, at *cursor) (done bool, err error) {
	f, leave, ok := s.happened.join(k.String(), told{at: *at}, func(base told) bool { return base.at.before(*at) },
		func(ctx context.Context, t *topic[told]) error { return s.readEvents(ctx, k, t) })
	if !ok {
		return false, nil
	}
	defer leave()
	for {
		got, err := f.take(ctx)
		switch {
		case err != nil:
			return true, err
		case got.behind && out.slow():
			return true, errBehind
		case got.behind:
			return false, nil
		}
		var entries []entry
		over := false
		for _, e := range got.items {
			if at.pass(e.isReply, e.seq) {
				entries = append(entries, entry{id: at.String(), name: "cloudevent", data: e.data})
			}
			over = over || e.over
		}
		if err := out.sendAll(entries); err != nil || over {
			return true, err
		}
		if got.ended {
			return true, got.err
		}
	}
}

// readEvents fills a topic with the events of a batch.
func (s *Server) readEvents(ctx context.Context, k toolyard.BatchKey, t *topic[told]) error {
	at := t.base.at
	f, err := again(ctx, s.cfg.Broker, func() (broker.Follower,
		error) {
		return s.hub.Follower(ctx, k, at.event, at.reply)
	})
	if err != nil {
		return err
	}
	defer f.Stop()
	return fill(ctx, s, k, f.News(), f.Next, &at.reply, func(l broker.Logged) (over bool, err error) {
		e, err := tellEvent(l, &at)
		if err != nil {
			return false, err
		}
		t.put(e, len(e.data))
		return e.over, nil
	})
}

// fill puts all that next reads about a batch, until put says that nothing follows. When next has no more it waits for
// news. reply is how far the replies were read.
func fill[T any](
	ctx context.Context, s *Server, k toolyard.BatchKey, news <-chan struct{},
	next func(context.Context) (T, bool, error),
	reply *uint64, put func(T) (over bool, err error),
) error {
	tick, quiet := time.NewTicker(reread), broker.Quiet{}
	defer tick.Stop()
	type read struct {
		v  T
		ok bool
	}
	for {
		n, err := again(ctx, s.cfg.Broker, func() (n read, err error) {
			done, err := s.turns.take(ctx, string(k.Agent))
			if err != nil {
				return n, err
			}
			defer done()
			n.v, n.ok, err = next(ctx)
			return n, err
		})
		if err != nil {
			return err
		}
		if n.ok {
			if over, err := put(n.v); over || err != nil {
				return err
			}
			quiet = broker.Quiet{}
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-news:
		case <-tick.C:
			if err := s.forsaken(ctx, k, *reply, &quiet); err != nil {
				return err
			}
		}
	}
}

// replied is one reply of a batch.
type replied struct {
	seq       uint64
	results   []toolyard.Result
	completed bool
	refused   *events.Refused
	data      [][]byte // the results in JSON
}

func readReply(r batch.Record) (out replied, size int, err error) {
	out.seq = r.Seq
	switch body := r.Body.(type) {
	case events.Refused:
		out.refused = &body
	case events.Reply:
		out.results, out.completed = body.Results, body.Completed
		for _, res := range body.Results {
			data, err := json.Marshal(res)
			if err != nil {
				return out, size, err
			}
			out.data = append(out.data, data)
			size += 2 * len(data)
		}
	default:
		return out, 0, errors.New("an event stands where replies do: " + string(r.Body.EventType()))
	}
	return out, size, nil
}

// replies yields the replies of a batch from the first on, to the last. It ends with errBehind when what takes them is
// behind and says that it is slow.
func (s *Server) replies(ctx context.Context, k toolyard.BatchKey, slow func() bool) iter.Seq2[replied, error] {
	return func(yield func(replied, error) bool) {
		err := s.eachReply(ctx, k, slow, func(r replied) bool { return yield(r, nil) })
		if err != nil {
			yield(replied{}, err)
		}
	}
}

func (s *Server) eachReply(ctx context.Context, k toolyard.BatchKey, slow func() bool, yield func(replied) bool) error {
	seen, next := uint64(0), 0
	take := func(r replied) (done bool, err error) {
		if r.seq <= seen {
			return false, nil
		}
		seen = r.seq
		for _, res := range r.results {
			if res.Index != next {
				return true, fmt.Errorf("batch %s: the result of call %d came where that of call %d is next", k,
					res.Index, next)
			}
			next++
		}
		if r.refused != nil {
			return true, refusedBatch(r.refused)
		}
		return !yield(r) || r.completed, nil
	}
	for {
		records, err := again(ctx, s.cfg.Broker, func() ([]batch.Record, error) {
			done, err := s.turns.take(ctx, string(k.Agent))
			if err != nil {
				return nil, err
			}
			defer done()
			return s.cfg.Broker.RepliesFrom(ctx, k, seen, maxPieceReplies)
		})
		if err != nil {
			return err
		}
		for _, rec := range records {
			r, _, err := readReply(rec)
			if err != nil {
				return err
			}
			if done, err := take(r); done || err != nil {
				return err
			}
		}
		if len(records) > 0 {
			continue
		}
		over, err := s.liveReplies(ctx, k, slow, seen, take)
		if over || err != nil {
			return err
		}
	}
}

// liveReplies takes replies from the topic of a batch. over is false when some are missing before what the topic has.
func (s *Server) liveReplies(ctx context.Context, k toolyard.BatchKey, slow func() bool, seen uint64,
	take func(replied) (bool, error)) (over bool, err error) {
	f, leave, ok := s.answered.join(k.String(), replied{seq: seen}, func(base replied) bool { return base.seq <= seen },
		func(ctx context.Context, t *topic[replied]) error { return s.readReplies(ctx, k, t) })
	if !ok {
		return false, nil
	}
	defer leave()
	for {
		got, err := f.take(ctx)
		switch {
		case err != nil:
			return true, err
		case got.behind && slow():
			return true, errBehind
		case got.behind:
			return false, nil
		}
		for _, r := range got.items {
			if done, err := take(r); done || err != nil {
				return true, err
			}
		}
		if got.ended {
			return true, got.err
		}
	}
}

// never is the slowness of what only waits.
func never() bool { return false }

// readReplies fills a topic with the replies of a batch.
func (s *Server) readReplies(ctx context.Context, k toolyard.BatchKey, t *topic[replied]) error {
	seen := t.base.seq
	f, err := again(ctx, s.cfg.Broker, func() (broker.ReplyFollower,
		error) {
		return s.hub.ReplyFollower(ctx, k, t.base.seq)
	})
	if err != nil {
		return err
	}
	defer f.Stop()
	return fill(ctx, s, k, f.News(), f.Next, &seen, func(r batch.Record) (over bool, err error) {
		out, size, err := readReply(r)
		if err != nil {
			return false, err
		}
		t.put(out, size)
		seen = out.seq
		return out.completed || out.refused != nil, nil
	})
}

// forsaken is the error of a batch that nobody goes on with, asked for now and then while nothing comes.
func (s *Server) forsaken(ctx context.Context, k toolyard.BatchKey, reply uint64, quiet *broker.Quiet) error {
	if !quiet.Long(false) {
		return nil
	}
	done, err := s.turns.take(ctx, string(k.Agent))
	if err != nil {
		return err
	}
	defer done()
	if err := s.cfg.Broker.Forsaken(ctx, k, reply); err != nil && !s.cfg.Broker.MayPass(err) {
		return err
	}
	return nil
}

// report is one report of a running call, or that a batch waits.
type report struct {
	name string
	data []byte
}

// readProgress fills a topic with what running calls report, until the batch is complete.
func (s *Server) readProgress(ctx context.Context, k toolyard.BatchKey, t *topic[report]) error {
	ear, err := again(ctx, s.cfg.Broker, func() (broker.Follow, error) { return s.hub.Progress(ctx, k) })
	if err != nil {
		return err
	}
	defer ear.Stop()
	t.begin()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type over struct {
		results []toolyard.Result
		end     bool
		err     error
	}
	replies := make(chan over)
	go func() {
		say := func(o over) {
			select {
			case replies <- o:
			case <-ctx.Done():
			}
		}
		for r, err := range s.replies(ctx, k, never) {
			if say(over{r.results, r.completed, err}); err != nil {
				return
			}
		}
	}()
	current := broker.Runs{}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case o := <-replies:
			if o.err != nil {
				return o.err
			}
			// what was told before the result is here by now
			if err := s.putProgress(ear, current, t); err != nil || o.end {
				return err
			}
			for _, r := range o.results {
				current.Over(r.Index)
			}
		case <-ear.News():
			if err := s.putProgress(ear, current, t); err != nil {
				return err
			}
		}
	}
}

func (s *Server) putProgress(ear broker.Follow, current broker.Runs, t *topic[report]) error {
	msgs, _ := ear.Take()
	for _, m := range msgs {
		p, ok := s.hub.ReadProgress(m)
		name, said := progressEvent, any(nil)
		switch {
		case !ok:
			continue
		case p.Waiting != nil:
			name, said = waitingEvent, client.Waiting{Running: p.Waiting.Running, Waiting: p.Waiting.Waiting}
		case current.Take(p):
			said = client.Progress{Index: p.Index, CallID: p.CallID, Tool: p.Tool, Worker: p.Worker, Attempt: p.Attempt,
				Progress: p.Progress, LostBytes: p.LostBytes}
		default:
			continue
		}
		data, err := json.Marshal(said)
		if err != nil {
			return err
		}
		t.put(report{name, data}, len(data))
	}
	return nil
}

// readEverything fills a topic with what happens to all batches of an agent, of all agents if it is empty.
func (s *Server) readEverything(ctx context.Context, agent toolyard.Agent, t *topic[[]byte]) error {
	setup, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ear, err := s.hub.Everything(setup, agent)
	if err != nil {
		return err
	}
	defer ear.Stop()
	t.begin()
	for {
		msgs, lost := ear.Take()
		put := func(h Happening) error {
			data, err := json.Marshal(h)
			if err == nil {
				t.put(data, len(data))
			}
			return err
		}
		if lost {
			if err := put(Happening{Time: time.Now(), Gap: gapLost}); err != nil {
				return err
			}
		}
		for _, m := range msgs {
			k, l, err := s.hub.Read(ctx, m)
			h := Happening{Agent: k.Agent, Batch: k.ID, Time: l.Time}
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case err != nil:
				h = Happening{Time: time.Now(), Gap: "an event cannot be read: " + err.Error()}
			default:
				if h.What = replay.Words(l.Record, nil); h.What == "" {
					h.What = string(l.Body.EventType())
				}
				if h.Event, err = l.JSON(); err != nil {
					return err
				}
			}
			if err := put(h); err != nil {
				return err
			}
		}
		if len(msgs) > 0 || lost {
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ear.News():
		}
	}
}

// gapLost says that live copies are missing, and gapSlow that a stream was read too slowly.
const (
	gapLost = "events are missing: they came faster than they were read, or the connection to NATS was lost for a while"
	gapSlow = "events are missing: this stream is read too slowly"
)

// resultEntries are the results of a reply as a stream has them, from one index on.
func resultEntries(r replied, next int) (out []entry) {
	for i, res := range r.results {
		if res.Index >= next {
			out = append(out, entry{id: strconv.Itoa(res.Index), name: "result", data: r.data[i]})
		}
	}
	return out
}
