package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/shard"
	"github.com/toolyard/toolyard/internal/traceparent"
)

// A guest is a broker whose connection has its own account: it appends what it is granted, and asks dispatchers for
// everything that others read from the streams. The answering dispatcher decides what it may get: see [Answerer].
type guest struct {
	who access.Principal

	mu    sync.Mutex
	hosts []broker.Worker // the pool's other workers, from the last answer to a heartbeat
	heard chan struct{}   // closed and replaced when there is a new answer
}

// prefixAsk begins the platform's subjects of requests of guests: ty.ask.<role>.<name>.<operation>. A guest uses
// ty.ask.<operation>, and the server adds who sent it.
const (
	prefixAsk    = "ty.ask."
	prefixBeat   = "ty.beat."   // ty.beat.<pool>.<worker>
	prefixAnswer = "ty.answer." // ty.answer.<pool>.<nonce>: where workers answer dispatchers
	prefixNext   = "ty.next."   // a guest's name for the requests for messages of a lane
)

// operation is a request of a guest.
type operation string

// The operations.
const (
	opHello operation = "hello" // identifies the system and the guest
	opEnd   operation = "end"   // the end of the work queue
	opRead  operation = "read"  // one message of a chain
	opCount operation = "count" // how many messages there are of a batch
	opGet   operation = "get"   // an object, in pieces
	opPut   operation = "put"   // store an object
	opPiece operation = "piece" // store a piece of an object
	opLanes operation = "lanes" // make the queues of a pool ready
	opBury  operation = "bury"  // record a dead letter
	opWhere operation = "where" // the shard of a batch

	opBackground  operation = "background"   // do what a call says about background calls: workers of every account ask
	opChild       operation = "child"        // start a call that a running call makes
	opChildResult operation = "child_result" // its result
)

// The headers of answers.
const (
	headerProblem = "Toolyard-Problem" // the error
	headerCode    = "Toolyard-Code"    // its kind, as an HTTP status
	headerStored  = "Toolyard-Stored"  // the envelope of a stored message
	headerBytes   = "Toolyard-Bytes"   // the length of the content that ends here; older dispatchers do not say it
)

// The codes of [headerCode].
const (
	codeBad      = 400
	codeNotYours = 403
	codeNone     = 404
	codeLost     = 422
	codeTooFull  = 507
	codeLater    = 503
)

// hello is the answer to opHello.
type hello struct {
	Role     access.Role       `json:"role"`
	Name     string            `json:"name"`
	Metadata map[string]string `json:"metadata"` // of the batch stream
	Shards   shard.Map         `json:"shards"`
	// Time is what the server's clock shows, by which epochs begin; older dispatchers do not say it.
	Time time.Time `json:"time,omitzero"`
}

// whereAnswer is the answer to opWhere.
type whereAnswer struct {
	Shard int  `json:"shard"`
	Found bool `json:"found,omitempty"`
}

// readQuestion requests one message of a literal subject: the last one, or the first one from Seq on.
type readQuestion struct {
	Subject string `json:"subject"`
	Seq     uint64 `json:"seq,omitempty"`
	// At requests the message with Seq, whose subject is checked afterwards. If it is archived, it is found by Subject.
	At     bool   `json:"at,omitempty"`
	Stream string `json:"stream"`
}

// storedAt is the envelope of a stored message.
type storedAt struct {
	Subject string      `json:"subject"`
	Seq     uint64      `json:"seq"`
	Time    time.Time   `json:"time"`
	Header  nats.Header `json:"header,omitempty"`
}

// objectQuestion is a request about an object. Call is the one for which a worker asks.
type objectQuestion struct {
	Name   string            `json:"name"`
	Call   *broker.AskedCall `json:"call,omitempty"`
	Pieces []string          `json:"pieces,omitempty"`
}

// maxPieceBytes bounds the part of an object in one message.
const maxPieceBytes = broker.MaxInlineBytes

func newGuest(who access.Principal) *guest { return &guest{who: who, heard: make(chan struct{})} }

// noJetStream reports whether an error says that the connection's account has no streams, so that it may be a guest's.
func noJetStream(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == jetstream.JSErrCodeJetStreamNotEnabledForAccount ||
		api.ErrorCode == jetstream.JSErrCodeJetStreamNotEnabled) ||
		errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
}

// accountWait is how long an account that has no streams may get them, while a server or a cluster starts.
const accountWait = 10 * time.Second

// foreign is the error of a dispatcher whose account has no streams: it is an agent's or a pool's, or stays without
// them. Before that is known it is nil.
func (b *Broker) foreign(ctx context.Context, without error, waited time.Duration) error {
	const needs = "a dispatcher needs those of the platform's account, dispatcher.creds (--creds)"
	if err := b.attachGuest(ctx, without); err == nil {
		return fmt.Errorf("the credentials are those of %s: %s", b.guest.who, needs)
	}
	if waited < accountWait {
		return nil
	}
	return fmt.Errorf("the credentials are for an account of NATS that has no JetStream: %s: %w", needs, without)
}

// attachGuest finds out whose account this is, and gets the system's settings. If no dispatcher knows, it returns
// without.
func (b *Broker) attachGuest(ctx context.Context, without error) error {
	read := time.Now()
	h, o, err := b.hello(ctx)
	if errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("no dispatcher answers: start one (dispatcher serve), or, if there is one, name credentials "+
			"that it knows, those of an operator, an agent or a pool (--creds): %w (%v)", err, without)
	}
	if err != nil {
		return err
	}
	b.held.Store(&o.settings)
	b.guest = newGuest(access.Principal{Role: h.Role, Name: h.Name})
	if err := b.readyGuest(ctx); err != nil {
		return err
	}
	return b.see(o.settings, h.Shards, read, h.Time, func(one *Broker) error { return one.readyGuest(ctx) })
}

// hello asks whose account this is, and for the system's settings and its map of shards.
func (b *Broker) hello(ctx context.Context) (h hello, o origin, err error) {
	m, err := b.question(ctx, opHello, nil, nil)
	if err != nil {
		return h, o, err
	}
	if err := json.Unmarshal(m.Data, &h); err != nil {
		return h, o, fmt.Errorf("a dispatcher answered unreadably: %w", err)
	}
	o, err = readOrigin(h.Metadata)
	return h, o, err
}

// readyGuest prepares the broker of one shard.
func (b *Broker) readyGuest(ctx context.Context) error {
	if b.guest.who.Role != access.Worker {
		return nil
	}
	reconnects := b.Reconnects()
	end, err := b.callsEnd(ctx)
	if err == nil {
		b.forgotten.note(reconnects, end)
	}
	return err
}

// where asks for the shard of a batch.
func (g *guest) where(ctx context.Context, b *Broker, k toolyard.BatchKey) (n int, found bool, err error) {
	m, err := retry(ctx, func(ctx context.Context) (*nats.Msg, error) { return b.question(ctx, opWhere, k, nil) })
	if err != nil {
		return 0, false, err
	}
	var a whereAnswer
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return 0, false, fmt.Errorf("a dispatcher answered unreadably: %w", err)
	}
	if a.Shard >= b.view().Served() { // it has a newer map
		if _, err := b.renewed(ctx); err != nil {
			return 0, false, err
		}
	}
	if n := b.view().Served(); a.Shard < 0 || a.Shard >= n {
		return 0, false, fmt.Errorf("a dispatcher says that batch %s is in shard %d, and there are %d", k, a.Shard, n)
	}
	return a.Shard, a.Found, nil
}

// question sends a request to a dispatcher, and returns its answer. A refusal is a [*jetstream.APIError].
func (b *Broker) question(ctx context.Context, op operation, q any, data []byte) (*nats.Msg, error) {
	m, err := questionMsg(ctx, op, q, data)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, longestAttempt)
	defer cancel()
	a, err := b.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return nil, err
	}
	return a, problem(a)
}

// questionMsg is a request, with the trace that it is part of: what a dispatcher submits for it is, too.
func questionMsg(ctx context.Context, op operation, q any, data []byte) (*nats.Msg, error) {
	m := nats.NewMsg(prefixAsk + string(op))
	m.Data = data
	for name, value := range traceparent.From(ctx).Fields {
		m.Header.Set(name, value)
	}
	if q != nil {
		encoded, err := json.Marshal(q)
		if err != nil {
			return nil, fmt.Errorf("encode a question: %w", err)
		}
		m.Header.Set(headerStored, string(encoded))
	}
	return m, nil
}

// problem is the error in an answer; nil if there is none.
func problem(a *nats.Msg) error {
	text := a.Header.Get(headerProblem)
	if text == "" {
		return nil
	}
	code, err := strconv.Atoi(a.Header.Get(headerCode))
	if err != nil {
		code = codeLater
	}
	if code == codeTooFull {
		return fmt.Errorf("%w: %s", broker.ErrFull, text)
	}
	return &jetstream.APIError{Code: code, Description: text}
}

// refusedFor reports whether a dispatcher refused with a code.
func refusedFor(err error, code int) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.Code == code && api.ErrorCode == 0
}

// read requests a stored message.
func (g *guest) read(ctx context.Context, b *Broker, q readQuestion) (raw, bool, error) {
	a, err := retry(ctx, func(ctx context.Context) (*nats.Msg, error) { return b.question(ctx, opRead, q, nil) })
	if refusedFor(err, codeNone) {
		return raw{}, false, nil
	}
	if err != nil {
		return raw{}, false, err
	}
	var at storedAt
	if err := json.Unmarshal([]byte(a.Header.Get(headerStored)), &at); err != nil {
		return raw{}, false, fmt.Errorf("a dispatcher answered unreadably: %w", err)
	}
	return raw{subject: at.Subject, seq: at.Seq, time: at.Time, header: at.Header, data: a.Data}, true, nil
}

// counts requests the number of messages on each matching subject.
func (g *guest) counts(ctx context.Context, b *Broker, q readQuestion) (map[string]uint64, error) {
	a, err := retry(ctx, func(ctx context.Context) (*nats.Msg, error) { return b.question(ctx, opCount, q, nil) })
	if err != nil {
		return nil, err
	}
	var counted map[string]uint64
	if err := json.Unmarshal(a.Data, &counted); err != nil {
		return nil, fmt.Errorf("a dispatcher answered unreadably: %w", err)
	}
	return counted, nil
}

// errHole says that a part of an answer was lost, as when the dispatcher's connection broke: ask again.
var errHole = errors.New("a part of a dispatcher's answer was lost")

// get requests an object.
func (g *guest) get(ctx context.Context, b *Broker, q objectQuestion) ([]byte, error) {
	out, err := g.collect(ctx, b, opGet, q)
	if refusedFor(err, codeNone) {
		return nil, jetstream.ErrObjectNotFound
	}
	if err == nil && !strings.HasPrefix(q.Name, prefixSurface) && !names(q.Name, out) {
		return nil, errHole
	}
	return out, err
}

// collect asks for an answer of several messages, which an empty one ends.
func (g *guest) collect(ctx context.Context, b *Broker, op operation, q any) ([]byte, error) {
	m, err := questionMsg(ctx, op, q, nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, longestRead)
	defer cancel()
	inbox := b.nc.NewInbox()
	sub, err := b.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", op, err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // it fails when the connection is closed
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, fmt.Errorf("ask for %s: %w", op, err)
	}
	m.Reply = inbox
	if err := b.nc.PublishMsg(m); err != nil {
		return nil, err
	}
	var out []byte
	for {
		a, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, err
		}
		if a.Header.Get(statusHeader) == statusNoResponders && len(a.Data) == 0 {
			return nil, nats.ErrNoResponders
		}
		if err := problem(a); err != nil {
			return nil, err
		}
		if len(a.Data) == 0 {
			if said := a.Header.Get(headerBytes); said != "" && said != strconv.Itoa(len(out)) {
				return nil, errHole
			}
			break
		}
		if out = append(out, a.Data...); len(out) > broker.MaxObjectBytes {
			return nil, fmt.Errorf("the answer to %s has more than %d bytes", op, broker.MaxObjectBytes)
		}
	}
	return out, nil
}

// statusNoResponders is the server's answer if nobody listens.
const statusNoResponders = "503"

// maxPuts is how often the pieces of an object are sent: the object of somebody else may take one of them along.
const maxPuts = 8

// put asks a dispatcher to store an object, in pieces if it is long.
func (g *guest) put(ctx context.Context, b *Broker, q objectQuestion, content []byte) (err error) {
	for range maxPuts {
		if err = g.putOnce(ctx, b, q, content); !refusedFor(err, codeNone) {
			return err
		}
	}
	return err
}

func (g *guest) putOnce(ctx context.Context, b *Broker, q objectQuestion, content []byte) error {
	if len(content) > maxPieceBytes {
		for rest := content; len(rest) > 0; {
			piece := rest[:min(len(rest), maxPieceBytes)]
			rest = rest[len(piece):]
			name := objectName("piece", piece)
			if _, err := retry(ctx, func(ctx context.Context) (*nats.Msg, error) {
				return b.question(ctx, opPiece, objectQuestion{Name: name, Call: q.Call}, piece)
			}); err != nil {
				return err
			}
			q.Pieces = append(q.Pieces, name)
		}
		content = nil
	}
	_, err := retry(ctx, func(ctx context.Context) (*nats.Msg, error) { return b.question(ctx, opPut, q, content) })
	return err
}

// granted returns an error if the connection's account cannot append to a chain. The server would only let it wait for
// an answer.
func (b *Broker) granted(k toolyard.BatchKey, c batch.Chain, pool toolyard.Pool) error {
	who := b.Who()
	switch {
	case who.Role == access.Agent && who.Name != broker.Escape(string(k.Agent)):
		name, err := broker.Unescape(who.Name)
		return errors.Join(err, fmt.Errorf("the credentials are those of agent %q, and the batch is agent %q's: make "+
			"others (dispatcher creds --agent)", name, k.Agent))
	case who.Role == access.Worker && c != batch.ChainItem:
		return fmt.Errorf("the credentials are those of %s: they take calls, hand in no batches and change none; name an "+
			"operator's or an agent's (--creds)", who)
	case who.Role == access.Worker && who.Name != string(pool):
		return fmt.Errorf("the credentials are those of %s, and cannot append to the chain %s of pool %q", who, c, pool)
	}
	return nil
}

// beating is the content of a heartbeat, and welcome the answer.
type beating struct {
	Worker broker.Worker `json:"worker"`
	Gone   bool          `json:"gone,omitempty"`
}

// welcome is the answer to a heartbeat: what the pool's workers can isolate, and which dependencies they found to be
// down.
type welcome struct {
	Hosts []broker.Worker `json:"hosts,omitempty"`
}

func (g *guest) beat(ctx context.Context, b *Broker, w beating) error {
	value, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("encode worker %s: %w", w.Worker.ID, err)
	}
	a, err := b.nc.RequestWithContext(ctx, subjectBeat(g.who.Name, w.Worker.ID), value)
	if err == nil {
		err = problem(a)
	}
	if err != nil {
		return fmt.Errorf("beat of worker %s: %w", w.Worker.ID, err)
	}
	var answer welcome
	if err := json.Unmarshal(a.Data, &answer); err != nil {
		return fmt.Errorf("beat of worker %s: a dispatcher answered unreadably: %w", w.Worker.ID, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hosts = answer.Hosts
	close(g.heard)
	g.heard = make(chan struct{})
	return nil
}

func subjectBeat(pool, id string) string { return prefixBeat + pool + "." + broker.Escape(id) }

// watch reports the other workers in the answers to heartbeats.
func (g *guest) watch(ctx context.Context, see func(broker.WorkerChange, error)) error {
	told := 0
	for {
		g.mu.Lock()
		hosts, heard := g.hosts, g.heard
		g.mu.Unlock()
		for i := range max(len(hosts), told) {
			c := broker.WorkerChange{ID: "." + strconv.Itoa(i)} // no worker has this name
			if i < len(hosts) {
				c.Worker = &hosts[i]
			}
			see(c, nil)
		}
		told = len(hosts)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-heard:
		}
	}
}
