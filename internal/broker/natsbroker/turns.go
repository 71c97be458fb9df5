package natsbroker

import (
	"context"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// inTurns has the requests on a subject answered, so many at a time, in turns of those whose names stand in so many
// tokens behind the kind of the subject.
func (d *Answerer) inTurns(subject string, names, limit int, answer func(context.Context, *nats.Msg) error,
) (*nats.Subscription, error) {
	turns := newTurns(limit, limit/2, MaxWaitingQuestions, MaxWaitingBytes)
	return d.b.nc.QueueSubscribe(subject, queueAnswerers, func(m *nats.Msg) {
		if m.Reply == "" {
			return
		}
		const kind = 2 // ty.ask
		who := strings.Join(strings.Split(m.Subject, ".")[kind:kind+names], ".")
		taken := turns.enter(who, m.Size(), func() {
			d.spawn(func() {
				defer turns.leave(who)
				ctx, cancel := context.WithTimeout(d.ctx, answerTimeout)
				defer cancel()
				ctx, release := withObjectRoom(ctx, d.objects)
				defer release()
				if err := answer(ctx, m); err != nil {
					d.refuse(m, err)
				}
			})
		})
		if !taken {
			d.refuse(m, refusal(codeLater, "%s asks for too much at a time; ask again", who))
		}
	})
}

// turns has a bounded number of things done at a time, for many who each want any number of them. Nobody has more than
// a share under way, and those who wait take turns: what one asks for holds up nobody else's. It keeps nothing of those
// who have nothing under way. It is safe for concurrent use.
type turns struct {
	most, mostEach int // under way at a time, in all and of one
	waits, bytes   int // how many of one wait, and how long these are together

	mu      sync.Mutex
	running int
	each    map[string]*line
	order   []string // who has something waiting, in the order of their turns
}

// line is what one wants done.
type line struct {
	running, bytes int
	waiting        []turn
}

type turn struct {
	bytes int
	start func()
}

func newTurns(most, mostEach, waits, bytes int) *turns {
	return &turns{most: most, mostEach: mostEach, waits: waits, bytes: bytes, each: map[string]*line{}}
}

// enter calls start when it is the turn of who, with so many bytes that are kept until then; it must not block. What
// was started calls leave when it is over. false: too much of who waits already, and nothing is started.
func (t *turns) enter(who string, bytes int, start func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.each[who]
	if l == nil {
		l = &line{}
		t.each[who] = l
	}
	if t.running < t.most && l.running < t.mostEach { // then nobody waits who could begin, see leave
		t.begin(l, start)
		return true
	}
	if len(l.waiting) >= t.waits || l.bytes+bytes > t.bytes {
		t.forget(who, l)
		return false
	}
	if len(l.waiting) == 0 {
		t.order = append(t.order, who)
	}
	l.waiting, l.bytes = append(l.waiting, turn{bytes, start}), l.bytes+bytes
	return true
}

// leave says that something of who is over, and starts what is next.
func (t *turns) leave(who string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.each[who]
	t.running--
	l.running--
	for i := 0; i < len(t.order) && t.running < t.most; i++ {
		name := t.order[i]
		next := t.each[name]
		if next.running >= t.mostEach {
			continue
		}
		first := next.waiting[0]
		next.waiting[0] = turn{} // or the message would be kept
		next.waiting, next.bytes = next.waiting[1:], next.bytes-first.bytes
		t.order = append(t.order[:i], t.order[i+1:]...)
		i--
		if len(next.waiting) > 0 {
			t.order = append(t.order, name)
		}
		t.begin(next, first.start)
	}
	t.forget(who, l)
}

func (t *turns) begin(l *line, start func()) {
	t.running++
	l.running++
	start()
}

func (t *turns) forget(who string, l *line) {
	if l.running == 0 && len(l.waiting) == 0 {
		delete(t.each, who)
	}
}
