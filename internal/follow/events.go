package follow

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
)

// Cursor is how far the streams of events and of replies were read. A batch's events come out of both, and where they
// are merged is not the same at every reading. So this is what an event's id is: going on behind it leaves none out and
// repeats none. The zero cursor is behind the submission.
type Cursor struct{ Event, Reply uint64 }

// before reports whether whoever has read up to d has read what is up to c.
func (c Cursor) before(d Cursor) bool { return c.Event <= d.Event && c.Reply <= d.Reply }

func (c Cursor) String() string { return fmt.Sprintf("%d.%d", c.Event, c.Reply) }

// ParseCursor reads what String has written.
func ParseCursor(id string) (c Cursor, err error) {
	_, err = fmt.Sscanf(id, "%d.%d", &c.Event, &c.Reply)
	if err == nil && c.String() != id {
		err = errors.New("it is written otherwise")
	}
	return c, err
}

// pass moves the cursor over an event, or a reply, and reports whether it was behind the cursor.
func (c *Cursor) pass(l *broker.Logged) bool {
	at := &c.Event
	switch l.Chain {
	case batch.ChainSubmission:
		return true
	case batch.ChainReply:
		at = &c.Reply
	}
	if l.Seq <= *at {
		return false
	}
	*at = l.Seq
	return true
}

// Event is a stored event of a batch.
type Event struct {
	broker.Logged
	// At is how far was read, this event included. Data is the CloudEvent in JSON.
	At   Cursor
	Data []byte
}

func (e *Event) over() bool { return broker.Over(e.Record) }

// read makes an event of what was read behind a cursor, and moves the cursor.
func read(l broker.Logged, at *Cursor) (Event, error) {
	data, err := l.JSON()
	at.pass(&l)
	return Event{Logged: l, At: *at, Data: data}, err
}

// From is where followers of a batch's events begin.
type From struct {
	// After is the last event that is known; with the zero From the first event is the submission.
	After   Cursor
	Resumed bool
}

// piece is some of what is stored about a batch.
type piece struct {
	events []Event
	size   int
	read   time.Time
	// to is how far was read. caught says that this was all that is stored by now, and over that nothing follows.
	to           Cursor
	caught, over bool
}

// place is where a piece begins.
type place struct {
	k  toolyard.BatchKey
	at Cursor
	// first says that it begins with the submission.
	first bool
}

// readPiece reads from a place on. A shared reader does not read again what it has just read for another follower.
func (r *Reader) readPiece(ctx context.Context, from place) (p piece, err error) {
	done, err := r.Turn(ctx, from.k.Agent)
	if err != nil {
		return p, err
	}
	defer done()
	if p, ok := r.pieces.get(from); ok {
		return p, nil
	}
	keep := func() {
		if r.shared {
			r.pieces.put(from, p)
		}
	}
	tail := r.TailAt(from.k, from.at.Event, from.at.Reply)
	if from.first {
		tail = r.Tail(from.k)
	}
	for p.to = from.at; len(p.events) < maxPieceEvents && p.size < maxPieceBytes && !p.over; {
		l, ok, err := tail.Next(ctx)
		if err != nil && len(p.events) > 0 { // it comes again with the next piece
			return p, nil
		}
		if err != nil || !ok {
			if len(p.events) > 0 {
				keep()
			}
			p.caught = err == nil
			return p, err
		}
		e, err := read(l, &p.to)
		if err != nil {
			return p, err
		}
		p.over = e.over()
		p.events = append(p.events, e)
		p.size += len(e.Data)
	}
	keep()
	return p, nil
}

// Events yields the events of a batch: those that are stored, and with live all others to the last, as many at a time
// as there are. slow says whether the follower is a slow one; nil: it never is.
func (r *Reader) Events(ctx context.Context, k toolyard.BatchKey, from From, live bool,
	slow func() bool) iter.Seq2[[]Event, error] {
	return func(yield func([]Event, error) bool) {
		err := r.events(ctx, k, from, live, slow,
			func(es []Event) error { return left(len(es) == 0 || yield(es, nil)) })
		if err != nil && err != errLeft {
			yield(nil, err)
		}
	}
}

// errLeft says that the loop was left: nothing may be yielded any more.
var errLeft = errors.New("the loop was left")

func left(goesOn bool) error {
	if goesOn {
		return nil
	}
	return errLeft
}

func (r *Reader) events(ctx context.Context, k toolyard.BatchKey, begin From, live bool, slow func() bool,
	send func([]Event) error) error {
	from, resumed := place{k, begin.After, !begin.Resumed}, begin.Resumed
	for {
		read := func() (piece, error) { return r.readPiece(ctx, from) }
		p, err := read()
		if live && err != nil {
			p, err = again(ctx, r, read)
		}
		if err != nil {
			return err
		}
		if err := send(p.events); err != nil || p.over {
			return err
		}
		from = place{k, p.to, from.first && len(p.events) == 0}
		caught := p.caught || live && r.happened.has(k, func(base Event) bool { return base.At.before(p.to) })
		if !caught {
			continue
		}
		if !live {
			return nil
		}
		if resumed { // the end may stand before the cursor
			over, err := again(ctx, r, func() (bool, error) { return r.Ended(ctx, k, p.to.Reply) })
			if over || err != nil {
				return err
			}
			resumed = false
		}
		done, err := r.liveEvents(ctx, k, &from.at, slow, send)
		if done || err != nil {
			return err
		}
	}
}

// liveEvents sends what the topic of a batch has behind a cursor, and moves it. done is false when events are missing
// before what the topic has.
func (r *Reader) liveEvents(ctx context.Context, k toolyard.BatchKey, at *Cursor, slow func() bool,
	send func([]Event) error) (done bool, err error) {
	f, leave, ok := r.happened.join(k, Event{At: *at}, func(base Event) bool { return base.At.before(*at) },
		func(ctx context.Context, t *topic[Event]) error { return r.readEvents(ctx, k, t) })
	if !ok {
		return false, nil
	}
	defer leave()
	return f.each(ctx, slow, func(all []Event) (over bool, err error) {
		var fresh []Event
		for _, e := range all {
			if at.pass(&e.Logged) {
				e.At = *at
				fresh = append(fresh, e)
			}
			over = over || e.over()
		}
		return over, send(fresh)
	})
}

// readEvents fills a topic with the events of a batch.
func (r *Reader) readEvents(ctx context.Context, k toolyard.BatchKey, t *topic[Event]) error {
	at := t.base.At
	f, err := again(ctx, r, func() (broker.Follower, error) { return r.hub.Follower(ctx, k, at.Event, at.Reply) })
	if err != nil {
		return err
	}
	defer f.Stop()
	return fill(ctx, r, k, f, &at.Reply, func(l broker.Logged) (over bool, err error) {
		e, err := read(l, &at)
		if err != nil {
			return false, err
		}
		t.put(e, len(e.Data))
		return e.over(), nil
	})
}
