package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/traceparent"
)

// The limits of answering.
const (
	// MaxQuestions is how many requests of agents and workers a dispatcher answers at a time; others wait. One agent,
	// or the workers of one pool together, have half of them at most.
	MaxQuestions = 64
	// MaxBeats is how many heartbeats of workers it stores at a time, those of one pool half of them at most.
	MaxBeats = 256
	// MaxWaitingQuestions is how many requests of one agent or pool wait for their turn, and MaxWaitingBytes how long
	// they are together. Further ones are refused, and may be sent again.
	MaxWaitingQuestions = 1_024
	MaxWaitingBytes     = 16 << 20
	// answerTimeout bounds the answer to one request.
	answerTimeout = 20 * time.Second
	// queueAnswerers is the queue group of all dispatchers: one of them answers each request.
	queueAnswerers = "dispatchers"
	// maxWelcomeHosts bounds the other workers in an answer to a heartbeat.
	maxWelcomeHosts = 100
)

// Answerer answers for a dispatcher the requests of agents and workers with their own accounts, which cannot read
// streams. The subject of a request says who sent it, and the server has checked that.
type Answerer struct {
	b   *Broker
	log *slog.Logger
	// workers returns the live ones, and check returns an error for a surface that must not be stored.
	workers func() []broker.Worker
	check   func(hash string, content []byte) error
	// background does what a call of a pool says about background calls.
	background func(context.Context, toolyard.Pool, broker.BackgroundAsk) (broker.BackgroundAnswer, error)
	// runs reports whether a batch runs in this dispatcher.
	runs func(toolyard.BatchKey) bool
	// operations is the second half of the table of grants: who may request what.
	operations map[operation]map[access.Role]answering
	// objects is the room for what they read: see [MaxAnswerBytes].
	objects *semaphore.Weighted

	subs []*nats.Subscription
	mu   sync.Mutex // orders the end and new requests
	ctx  context.Context
	end  context.CancelFunc
	busy sync.WaitGroup
}

// AnswerGuests answers until the returned Answering is closed. When it returns, the server knows of it.
func (b *Broker) AnswerGuests(log *slog.Logger, workers func() []broker.Worker,
	check func(hash string, content []byte) error,
	background func(context.Context, toolyard.Pool, broker.BackgroundAsk) (broker.BackgroundAnswer, error),
	runs func(toolyard.BatchKey) bool,
) (broker.Answering, error) {
	d := &Answerer{b: b, log: log, workers: workers, check: check, background: background, runs: runs,
		objects: semaphore.NewWeighted(MaxAnswerBytes)}
	d.ctx, d.end = context.WithCancel(context.Background())
	d.operations = map[operation]map[access.Role]answering{
		opHello: {access.Worker: d.hello, access.Agent: d.hello},
		opEnd:   {access.Worker: d.queueEnd},
		opRead:  {access.Worker: d.read, access.Agent: d.read},
		opCount: {access.Worker: d.count, access.Agent: d.count},
		opGet:   {access.Worker: d.get, access.Agent: d.get},
		opPut:   {access.Worker: d.put, access.Agent: d.put},
		opPiece: {access.Worker: d.piece, access.Agent: d.piece},
		opLanes: {access.Worker: d.lanes},
		opBury:  {access.Worker: d.bury},
		opWhere: {access.Worker: d.where, access.Agent: d.where},

		opBackground:  {access.Worker: d.forBackground},
		opChild:       {access.Worker: d.child},
		opChildResult: {access.Worker: d.childResult},
	}
	for _, to := range []struct {
		subject string
		names   int // how many tokens behind ty.<kind> say who asks
		limit   int
		answer  func(context.Context, *nats.Msg) error
	}{
		{prefixAsk + "*.*.*", 2, MaxQuestions, d.answerRequest}, {prefixGet + "*.*", 1, MaxQuestions, d.replies},
		{prefixBeat + "*.*", 1, MaxBeats, d.beat},
	} {
		sub, err := d.inTurns(to.subject, to.names, to.limit, to.answer)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("answer %s: %w", to.subject, err), d.Close())
		}
		d.subs = append(d.subs, sub)
	}
	told, err := b.nc.Subscribe(prefixTold+"*.*", d.relayProgress)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen to %s: %w", prefixTold, err), d.Close())
	}
	d.subs = append(d.subs, told)
	if err := b.nc.FlushTimeout(attemptTimeout); err != nil { // they are made anew with the next connection
		log.Info("the server has not said that it knows of the subscriptions for agents and workers", "error", err)
	}
	return d, nil
}

// spawn runs do in a goroutine, unless the answering has ended.
func (d *Answerer) spawn(do func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() == nil {
		d.busy.Go(do)
	}
}

// Close ends the answering, and returns when no request is being answered any more.
func (d *Answerer) Close() error {
	var errs []error
	for _, s := range d.subs {
		if err := s.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			errs = append(errs, fmt.Errorf("stop answering %s: %w", s.Subject, err))
		}
	}
	d.mu.Lock()
	d.end()
	d.mu.Unlock()
	d.busy.Wait()
	return errors.Join(errs...)
}

// refusedError is why a request is refused.
type refusedError struct {
	code int
	text string
}

func (e *refusedError) Error() string { return e.text }

func refusal(code int, format string, args ...any) error {
	return &refusedError{code, fmt.Sprintf(format, args...)}
}

func (d *Answerer) refuse(m *nats.Msg, err error) {
	e, ok := errors.AsType[*refusedError](err)
	switch {
	case ok:
	case errors.Is(err, broker.ErrFull):
		e = &refusedError{codeTooFull, "the store is full"}
	case errors.Is(err, broker.ErrDamaged):
		e = &refusedError{codeLost, err.Error()}
	default:
		if d.ctx.Err() == nil {
			d.log.Warn("a question was not answered", "subject", m.Subject, "error", err)
		}
		e = &refusedError{codeLater, "the dispatcher could not find out; ask again"}
	}
	a := nats.NewMsg(m.Reply)
	a.Header.Set(headerProblem, oneLine(e.text))
	a.Header.Set(headerCode, strconv.Itoa(e.code))
	d.send(a)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// send sends an answer, or a part of one. It returns false if it cannot.
func (d *Answerer) send(a *nats.Msg) bool {
	err := d.b.nc.PublishMsg(a)
	if err != nil && d.ctx.Err() == nil {
		d.log.Warn("an answer was not sent", "error", err)
	}
	return err == nil
}

// answerRequest answers one request of an agent or a worker.
func (d *Answerer) answerRequest(ctx context.Context, m *nats.Msg) error {
	t := strings.Split(m.Subject, ".")
	who := access.Principal{Role: access.Role(t[2]), Name: t[3]}
	if who.Check() != nil || who.Platform() {
		return refusal(codeNotYours, "nobody asks as %q", m.Subject)
	}
	answer, allowed := d.operations[operation(t[4])][who.Role]
	if !allowed {
		return refusal(codeNotYours, "%s cannot ask for %q", who, t[4])
	}
	return answer(traceparent.With(ctx, traceparent.OfFields(m.Header.Values)), who, m)
}

type answering func(ctx context.Context, who access.Principal, m *nats.Msg) error

// asked parses a request.
func asked[T any](m *nats.Msg) (q T, err error) {
	if err := json.Unmarshal([]byte(m.Header.Get(headerStored)), &q); err != nil {
		return q, refusal(codeBad, "the question cannot be read: %v", err)
	}
	return q, nil
}

func (d *Answerer) hello(ctx context.Context, who access.Principal, m *nats.Msg) error {
	s, err := d.b.js.Stream(ctx, streamBatch)
	if err != nil {
		return err
	}
	info := s.CachedInfo()
	o, err := readOrigin(info.Config.Metadata)
	if err != nil {
		return err
	}
	stored, err := d.b.readMap(ctx, &o)
	if err != nil {
		return err
	}
	return d.json(m, hello{Role: who.Role, Name: who.Name, Metadata: info.Config.Metadata, Shards: stored.Map,
		Time: info.TimeStamp})
}

// where answers in which shard a batch is. It tells an agent of its own ones, and a worker of any: a call of its pool
// may belong to each.
func (d *Answerer) where(ctx context.Context, who access.Principal, m *nats.Msg) error {
	k, err := asked[toolyard.BatchKey](m)
	if err != nil {
		return err
	}
	if who.Role == access.Agent && broker.Escape(string(k.Agent)) != who.Name {
		return refusal(codeNotYours, "%s cannot ask for a batch of agent %q", who, k.Agent)
	}
	n, found, err := d.b.search(ctx, k)
	if err != nil {
		return err
	}
	return d.json(m, whereAnswer{Shard: n, Found: found})
}

func (d *Answerer) json(m *nats.Msg, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	a := nats.NewMsg(m.Reply)
	a.Data = data
	d.send(a)
	return nil
}

func (d *Answerer) queueEnd(ctx context.Context, _ access.Principal, m *nats.Msg) error {
	shard, err := asked[int](m)
	if err != nil {
		return err
	}
	if shard < 0 || shard >= d.b.view().Served() { // the map may be older than the worker's
		if _, err := d.b.renewed(ctx); err != nil {
			return err
		}
	}
	if shard < 0 || shard >= d.b.view().Served() {
		return refusal(codeBad, "there is no shard %d", shard)
	}
	end, err := d.b.in(shard).callsEnd(ctx)
	if err != nil {
		return err
	}
	return d.json(m, end)
}

// readable reports whether a principal may read a subject: an agent those of its own batches, a worker the chains of
// its pool's calls.
func readable(who access.Principal, stream, subject string) bool {
	t := strings.Split(subject, ".")
	if len(t) < 4 || t[0] != "ty" || slices.Contains(t, "") || strings.ContainsAny(subject, "*>") {
		return false
	}
	switch who.Role {
	case access.Agent:
		streams := map[string]string{"batch": streamBatch, "reply": streamReply, "event": streamEvent}
		return t[2] == who.Name && stream != "" && streams[t[1]] == stream
	case access.Worker:
		return stream == streamEvent && t[1] == "event" && len(t) == 6 && t[4] == who.Name
	}
	return false
}

// ofSubject is the broker of the shard of a subject's batch.
func (d *Answerer) ofSubject(ctx context.Context, subject string) (*Broker, error) {
	k, _ := keyOf(subject)
	return d.b.of(ctx, k)
}

func (d *Answerer) read(ctx context.Context, who access.Principal, m *nats.Msg) error {
	q, err := asked[readQuestion](m)
	if err != nil {
		return err
	}
	found, ok := raw{}, false
	b, err := d.ofSubject(ctx, q.Subject)
	if err != nil {
		return err
	}
	switch {
	case q.At:
		// The message is checked before anything of it is sent.
		if b.streams[q.Stream] != nil {
			found, err = b.at(ctx, q.Stream, q.Subject, q.Seq)
			ok = err == nil && readable(who, q.Stream, found.subject)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				err = nil
			}
		}
	case !readable(who, q.Stream, q.Subject) && !(q.Seq > 0 && ownEvents(who, q.Stream, q.Subject)):
		return refusal(codeNotYours, "%s cannot read %s", who, q.Subject)
	case q.Seq > 0:
		found, ok, err = b.after(ctx, q.Stream, q.Subject, q.Seq-1)
	default:
		found, ok, err = b.last(ctx, q.Stream, q.Subject)
	}
	if err != nil {
		return err
	}
	if !ok {
		return refusal(codeNone, "there is no such message")
	}
	around, err := json.Marshal(storedAt{found.subject, found.seq, found.time, found.header})
	if err != nil {
		return err
	}
	a := nats.NewMsg(m.Reply)
	a.Header.Set(headerStored, string(around))
	a.Data = found.data
	d.send(a)
	return nil
}

func (d *Answerer) count(ctx context.Context, who access.Principal, m *nats.Msg) error {
	q, err := asked[readQuestion](m)
	if err != nil {
		return err
	}
	if !readable(who, q.Stream, q.Subject) && !ownEvents(who, q.Stream, q.Subject) {
		return refusal(codeNotYours, "%s cannot count %s", who, q.Subject)
	}
	b, err := d.ofSubject(ctx, q.Subject)
	if err != nil {
		return err
	}
	counted, err := b.counts(ctx, q.Stream, q.Subject)
	if err == nil {
		counted, err = b.withoutFences(ctx, q.Stream, counted)
	}
	if err != nil {
		return err
	}
	return d.json(m, counted)
}

// ownEvents reports whether a subject covers exactly the events of one batch of an agent.
func ownEvents(who access.Principal, stream, subject string) bool {
	t := strings.Split(subject, ".")
	return who.Role == access.Agent && stream == streamEvent && len(t) == 5 && t[0] == "ty" && t[1] == "event" &&
		t[2] == who.Name && t[3] != "" && t[3] != "*" && t[4] == ">"
}

// mayUse returns an error if a principal may not read or store an object. Objects are named by their content, which is
// checked before one is stored. A worker reads them only for a batch with a call that is queued for its pool, and an
// agent's objects only for a batch of that agent. The input that a person wrote for a call that waits is read before
// the call is queued: a worker checks it.
func (d *Answerer) mayUse(ctx context.Context, who access.Principal, q *objectQuestion, storing bool) error {
	kind, rest, _ := strings.Cut(q.Name, ".")
	switch {
	case storing && (kind == "data" || kind == "piece"):
		return nil
	case who.Role == access.Agent && kind == "data": // who can name it knows what is in it, or was told
		return nil
	case who.Role == access.Worker && (kind == "surface" || storing && (kind == "result" || kind == "input")):
		return nil
	case who.Role == access.Worker && (kind == "result" || kind == "input" || kind == "data"):
		agent, _, _ := strings.Cut(rest, ".")
		if q.Call != nil && (kind == "data" || broker.Escape(string(q.Call.Agent)) == agent) {
			k := toolyard.BatchKey{Agent: q.Call.Agent, ID: q.Call.Batch}
			if open, err := d.isQueued(ctx, who.Name, k); err != nil || open {
				return err
			}
			if kind == "input" {
				if waits, err := d.waits(ctx, who.Name, q.Call); err != nil || waits {
					return err
				}
			}
		}
		return refusal(codeNotYours, "%s has no call for which it may read %s", who, q.Name)
	}
	return refusal(codeNotYours, "%s cannot use %s", who, q.Name)
}

// isQueued reports whether a batch has a call that is queued for a pool, or that one of its workers has: then its
// message exists. Only dispatchers queue messages. Which call it is does not matter: a message has the index of its
// first call, and a call that is queued again goes alone, while its item's chain keeps the item's index.
func (d *Answerer) isQueued(ctx context.Context, pool string, k toolyard.BatchKey) (bool, error) {
	return d.queuedAs(ctx, pool, k, ">")
}

// queuedAs is isQueued for the messages whose subject ends so.
func (d *Answerer) queuedAs(ctx context.Context, pool string, k toolyard.BatchKey, end string) (bool, error) {
	b, err := d.b.of(ctx, k)
	if err != nil {
		return false, err
	}
	_, ok, err := b.last(ctx, streamCall, prefixCall+"*."+pool+".*."+broker.KeyTokens(k)+"."+end)
	return ok, err
}

// waits reports whether a call that the plan has in a pool waits for a person. Its message was acknowledged when it
// began to wait. A worker can write that any call waits, on a chain of its own pool: so the plan is read.
func (d *Answerer) waits(ctx context.Context, pool string, c *broker.AskedCall) (bool, error) {
	s, err := d.b.Look(ctx, toolyard.BatchKey{Agent: c.Agent, ID: c.Batch})
	if errors.Is(err, broker.ErrNoBatch) {
		return false, nil
	}
	if err != nil || s.Plan == nil || c.Index < 0 || c.Index >= len(s.Calls) {
		return false, err
	}
	return string(s.Plan.Calls[c.Index].Pool) == pool && s.Calls[c.Index].Status == batch.Waiting, nil
}

func (d *Answerer) get(ctx context.Context, who access.Principal, m *nats.Msg) error {
	q, err := asked[objectQuestion](m)
	if err == nil {
		err = d.mayUse(ctx, who, &q, false)
	}
	if err != nil {
		return err
	}
	content, err := d.b.getObject(ctx, q.Name)
	if errors.Is(err, broker.ErrNoObject) {
		return refusal(codeNone, "%v", err)
	}
	if err != nil {
		return err
	}
	d.sendAll(m, content)
	return nil
}

// sendAll answers with a content in pieces. An empty message ends an answer of several messages, and says how long the
// content is. If a piece cannot be sent, the answer has no end, and the guest asks again.
func (d *Answerer) sendAll(m *nats.Msg, content []byte) {
	end := nats.NewMsg(m.Reply)
	end.Header.Set(headerBytes, strconv.Itoa(len(content)))
	for len(content) > 0 {
		a := nats.NewMsg(m.Reply)
		a.Data = content[:min(len(content), maxPieceBytes)]
		content = content[len(a.Data):]
		if !d.send(a) {
			return
		}
	}
	d.send(end)
}

func (d *Answerer) piece(ctx context.Context, who access.Principal, m *nats.Msg) error {
	q, err := asked[objectQuestion](m)
	if err == nil {
		err = d.mayUse(ctx, who, &q, true)
	}
	if err == nil && q.Name != objectName("piece", m.Data) {
		err = refusal(codeBad, "the piece is not what its name says")
	}
	if err == nil {
		err = d.b.putObject(ctx, q.Name, m.Data)
	}
	if err != nil {
		return err
	}
	return d.json(m, true)
}

func (d *Answerer) put(ctx context.Context, who access.Principal, m *nats.Msg) error {
	q, err := asked[objectQuestion](m)
	if err == nil {
		err = d.mayUse(ctx, who, &q, true)
	}
	if err != nil {
		return err
	}
	if err := awaitPieces(ctx, len(q.Pieces)); err != nil {
		return err
	}
	content := m.Data
	for _, name := range q.Pieces {
		if !strings.HasPrefix(name, "piece.") || len(content) > broker.MaxObjectBytes-maxPieceBytes {
			return refusal(codeBad, "these pieces make no object of at most %d bytes", broker.MaxObjectBytes)
		}
		piece, err := d.b.getObject(ctx, name)
		if errors.Is(err, broker.ErrNoObject) {
			// The object was stored, and the answer lost; or another one has the same piece, and was made of it.
			switch stored, err := d.b.isStored(ctx, q.Name); {
			case err != nil:
				return err
			case stored:
				return d.json(m, true)
			}
			return refusal(codeNone, "there is no %s", name)
		}
		if err != nil {
			return err
		}
		content = append(content, piece...)
	}
	if hash, ok := strings.CutPrefix(q.Name, prefixSurface); ok {
		if err := d.check(hash, content); err != nil {
			return refusal(codeBad, "%v", err)
		}
	} else if !names(q.Name, content) {
		return refusal(codeBad, "the object is not what its name says")
	}
	if err := d.b.putObject(ctx, q.Name, content); err != nil {
		return err
	}
	for _, name := range q.Pieces {
		if err := d.b.blobs.Delete(ctx, name); err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
			d.log.Info("a piece of an object is left until it is too old", "error", err)
		}
	}
	return d.json(m, true)
}

func (d *Answerer) lanes(ctx context.Context, who access.Principal, m *nats.Msg) error {
	class, err := asked[toolyard.Class](m)
	if err != nil {
		return err
	}
	if !class.Known() {
		return refusal(codeBad, "there is no class %q", class)
	}
	// The worker may know more shards: it asks once for all lanes of each.
	if _, err := d.b.renewed(ctx); err != nil {
		return err
	}
	for _, one := range d.b.each() {
		for lane := range one.lanes() {
			if err := one.openLane(ctx, batch.Route{Pool: toolyard.Pool(who.Name), Class: class}, lane); err != nil {
				return err
			}
		}
	}
	return d.json(m, true)
}

func (d *Answerer) bury(ctx context.Context, who access.Principal, m *nats.Msg) error {
	l, err := asked[broker.DeadLetter](m)
	if err != nil {
		return err
	}
	if l.Kind != broker.DeadCall {
		return refusal(codeNotYours, "%s cannot bury a %s", who, l.Kind)
	}
	if err := d.b.As("/workers/"+who.Name).Bury(ctx, l, m.Data); err != nil {
		return err
	}
	return d.json(m, true)
}

// beat stores a worker's entry in the registry, and answers when it is stored. The worker's lease runs from when it
// sent the heartbeat.
func (d *Answerer) beat(ctx context.Context, m *nats.Msg) error {
	t := strings.Split(m.Subject, ".")
	var w beating
	if err := json.Unmarshal(m.Data, &w); err != nil {
		return refusal(codeBad, "the beat cannot be read: %v", err)
	}
	pool, id := t[2], w.Worker.ID
	if string(w.Worker.Pool) != pool || broker.Escape(id) != t[3] || !strings.HasPrefix(id, pool+".") ||
		broker.CheckPool(w.Worker.Pool) != nil {
		return refusal(codeNotYours,
			"a worker of pool %q is called %s.…, and is of that pool; this one is %q of pool %q", pool, pool, id,
			w.Worker.Pool)
	}
	if err := toolyard.CheckTags("tags", w.Worker.Tags, broker.MaxTags); err != nil {
		return refusal(codeBad, "%v", err)
	}
	live := d.workers()
	if why := d.crowded(&w.Worker, len(m.Data), live); why != "" && !w.Gone {
		return refusal(codeTooFull, "%s", why)
	}
	// After a lease it is of no use to the worker, and it may be older than the stored entry.
	ctx, cancel := context.WithTimeout(ctx, broker.Lease(d.b.Settings().WorkerTTL))
	defer cancel()
	var err error
	if w.Gone {
		err = d.b.goneIfThere(ctx, id)
	} else {
		err = d.b.storeBeat(ctx, w.Worker)
	}
	if err != nil {
		return err
	}
	return d.json(m, welcome{Hosts: hosts(&w.Worker, live)})
}

// hosts returns the workers of a pool that another worker of the pool learns of: one for each kind of isolation and
// each list of tags, and those that found a dependency to be down. It reveals nothing else about them, and nothing of
// other pools.
func hosts(to *broker.Worker, live []broker.Worker) []broker.Worker {
	var out []broker.Worker
	for _, w := range live {
		if w.ID == to.ID || w.Pool != to.Pool {
			continue
		}
		h := broker.Worker{Pool: w.Pool, Classes: w.Classes, Isolation: w.Isolation, Unsandboxed: w.Unsandboxed,
			Tags: w.Tags, Breakers: w.Breakers}
		known := len(h.Breakers) == 0 && slices.ContainsFunc(out, func(o broker.Worker) bool {
			return o.Isolation == h.Isolation && o.Unsandboxed == h.Unsandboxed && slices.Equal(o.Classes, h.Classes) &&
				slices.Equal(o.Tags, h.Tags)
		})
		if !known && len(out) < maxWelcomeHosts {
			out = append(out, h)
		}
	}
	return out
}

// prefixGet begins the subject under which an agent requests the replies of a batch: ty.get.<agent>.<batch>.
const prefixGet = "ty.get."

// replies sends an agent the stored replies of a batch from a call on, and ends with an empty message. If there are
// none, it sends one reply without results.
func (d *Answerer) replies(ctx context.Context, m *nats.Msg) error {
	p, err := parseSubject(prefixReply + strings.TrimPrefix(m.Subject, prefixGet))
	if err != nil {
		return refusal(codeBad, "%v", err)
	}
	var q struct {
		From int `json:"from"`
	}
	if len(m.Data) > 0 {
		if err := json.Unmarshal(m.Data, &q); err != nil {
			return refusal(codeBad, "the question is no JSON object with a number from: %v", err)
		}
	}
	b, err := d.b.of(ctx, p.key)
	if err != nil {
		return err
	}
	stored, err := b.chain(ctx, streamReply, subjectReply(p.key), 0)
	if err != nil {
		return err
	}
	if len(stored) == 0 {
		if _, ok, err := b.last(ctx, streamBatch, subjectBatch(p.key)); err != nil || !ok {
			if err == nil {
				err = refusal(codeNone, "there is no batch %s", p.key)
			}
			return err
		}
	}
	sent := 0
	for i, s := range stored {
		_, r, _, err := b.looking(ctx, s)
		if err != nil {
			return err
		}
		if reply, ok := r.Body.(events.Reply); ok && i < len(stored)-1 &&
			(len(reply.Results) == 0 || reply.Results[len(reply.Results)-1].Index < q.From) {
			continue
		}
		a := nats.NewMsg(m.Reply)
		a.Header, a.Data = maps.Clone(s.header), s.data
		a.Header.Set("Nats-Subject", s.subject)
		a.Header.Set("Nats-Sequence", strconv.FormatUint(s.seq, 10))
		if !d.send(a) {
			return nil // without an end, so that nobody takes it for whole
		}
		sent++
	}
	if sent == 0 {
		a, err := d.b.message(ctx, m.Reply, d.b.meta(ctx, p.key, about(p.key)),
			events.Reply{Results: []toolyard.Result{}})
		if err != nil {
			return err
		}
		d.send(a)
	}
	d.send(&nats.Msg{Subject: m.Reply})
	return nil
}
